"""What a device and a comet say to each other: frames over a stream, big-endian (P2).

    +------------+---------+------+
    | length u16 | type u8 | body |   length counts type and body: 1 to 65,535
    +------------+---------+------+

    device                                          comet
      auth(client_id, token) ------------------------>
      <---------------------------- auth_success(encrypt_key)
      exchange_key(secret_key) ---------------------->
      <------------------------------------------- ok
      get_message_list ------------------------------>
      <-------------- message_list(...), several if one frame does not hold it
      <---------------------------------- message(...)
      message_ack(ids) ------------------------------>
      <------------------------------------------- ok

Every command is answered, and in order: auth by auth_success, the two that ask for a list by that
list, all others by ok; or any by error. A list is at least one frame, though nothing is in it.
`message` comes unasked at any time once a key is agreed, and so does an error before the end.

Numbers and the order of fields are the format. Fields are drawn in `chappe.wire.pushfield`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, ClassVar, TypeVar

import msgspec

from chappe.errors import CloseCode, LocalProtocolError, RemoteProtocolError
from chappe.wire.pushfield import (
    BYTE,
    BYTES,
    COUNT_MAX,
    SHORT,
    SHORT_MAX,
    STRING,
    STRINGS,
    Kind,
    Reader,
    write_blob,
    write_byte,
    write_items,
    write_long,
    write_string,
)

FRAME_BYTES_MAX = SHORT_MAX
# What one item of a list may take: a frame of that one alone is type, count and the item.
ITEM_BYTES_MAX = FRAME_BYTES_MAX - 2

Layout = tuple[tuple[str, Kind[Any]], ...]


class PushError(IntEnum):
    """What an error's `code` may say; a device takes others for SERVER."""

    TOKEN_EXPIRED = 0
    CLIENT_NOT_FOUND = 1
    DUPLICATE = 2
    SERVER = 3
    BAD_ARGUMENTS = 4


class MessageStruct(msgspec.Struct, frozen=True, gc=False):
    """A message, its content encrypted for one device.

    +---------+----------+--------------+------------------+------------------------------------+
    | type u8 | id (str) | job_id (str) | timestamp i64 ms | encrypted_content: length u16, ... |
    +---------+----------+--------------+------------------+------------------------------------+
    |<-------------------- head ------------------------->|   the head is authenticated with it
    """

    type: int
    id: str
    job_id: str
    timestamp: int
    encrypted_content: bytes

    @property
    def head(self) -> bytes:
        """What is before the content."""
        return message_head(self.type, self.id, self.job_id, self.timestamp)


# Type, three empty lengths and the timestamp.
_MESSAGE_BYTES_MIN = 1 + 2 + 2 + 8 + 2


def message_head(type: int, id: str, job_id: str, timestamp: int) -> bytes:
    """The fields of a message before its content: alike for all devices."""
    return (
        write_byte("type", type)
        + write_string("id", id)
        + write_string("job_id", job_id)
        + write_long("timestamp", timestamp)
    )


def message_struct(head: bytes, encrypted_content: bytes) -> bytes:
    """A message_struct of a head that is encoded, and its content."""
    return head + write_blob("encrypted_content", encrypted_content)


def _write_message(_: str, message: MessageStruct) -> bytes:
    return message_struct(message.head, message.encrypted_content)


def _write_messages(field: str, messages: tuple[MessageStruct, ...]) -> bytes:
    return write_items(field, [_write_message(field, message) for message in messages])


def _read_message(reader: Reader, _: str = "") -> MessageStruct:
    return MessageStruct(
        reader.byte("type"),
        reader.string("id"),
        reader.string("job_id"),
        reader.long("timestamp"),
        reader.blob("encrypted_content"),
    )


def _read_messages(reader: Reader, field: str) -> tuple[MessageStruct, ...]:
    return reader.listed(field, _read_message, _MESSAGE_BYTES_MIN)


MESSAGE = Kind(_write_message, _read_message)
MESSAGES = Kind(_write_messages, _read_messages)


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Any of them: its number, and its fields in their order."""

    number: ClassVar[int]
    layout: ClassVar[Layout] = ()


class Command(Frame, frozen=True, gc=False):
    """What a device says."""


class Response(Frame, frozen=True, gc=False):
    """What a comet says."""


class Auth(Command, frozen=True, gc=False):
    """Who this is: the first command, and the only one before it is answered.

    +------------+---+-----------------+-------------+
    | length u16 | 0 | client_id (str) | token (str) |
    +------------+---+-----------------+-------------+
    """

    client_id: str
    token: str
    number = 0
    layout = (("client_id", STRING), ("token", STRING))


class ExchangeKey(Command, frozen=True, gc=False):
    """The device's part of the key.

    +------------+---+--------------------+
    | length u16 | 1 | secret_key (bytes) |
    +------------+---+--------------------+
    """

    secret_key: bytes
    number = 1
    layout = (("secret_key", BYTES),)


class GetTopicList(Command, frozen=True, gc=False):
    """Ask what this client is subscribed to.

    +--------------+---+
    | length u16=1 | 2 |
    +--------------+---+
    """

    number = 2


class Subscribe(Command, frozen=True, gc=False):
    """Add topics.

    +------------+---+----------+--------------+ - - -
    | length u16 | 3 | count u8 | topic (str)  |
    +------------+---+----------+--------------+ - - -
    """

    topics: tuple[str, ...]
    number = 3
    layout = (("topics", STRINGS),)


class Unsubscribe(Command, frozen=True, gc=False):
    """Remove topics.

    +------------+---+----------+--------------+ - - -
    | length u16 | 4 | count u8 | topic (str)  |
    +------------+---+----------+--------------+ - - -
    """

    topics: tuple[str, ...]
    number = 4
    layout = (("topics", STRINGS),)


class GetMessageList(Command, frozen=True, gc=False):
    """Ask for what waits.

    +--------------+---+
    | length u16=1 | 5 |
    +--------------+---+
    """

    number = 5


class Heartbeat(Command, frozen=True, gc=False):
    """Say that this device is there.

    +--------------+---+
    | length u16=1 | 6 |
    +--------------+---+
    """

    number = 6


class MessageAck(Command, frozen=True, gc=False):
    """Messages that arrived: they are not sent again.

    +------------+---+----------+----------+ - - -
    | length u16 | 7 | count u8 | id (str) |
    +------------+---+----------+----------+ - - -
    """

    ids: tuple[str, ...]
    number = 7
    layout = (("ids", STRINGS),)


class Ok(Response, frozen=True, gc=False):
    """Done.

    +--------------+---+
    | length u16=1 | 0 |
    +--------------+---+
    """

    number = 0


class Error(Response, frozen=True, gc=False):
    """Not done; `code` is a PushError, or a number that this side does not know.

    +------------+---+---------+--------------+
    | length u16 | 1 | code u8 | reason (str) |
    +------------+---+---------+--------------+
    """

    code: int
    reason: str
    number = 1
    layout = (("code", BYTE), ("reason", STRING))


class AuthSuccess(Response, frozen=True, gc=False):
    """The token was right; the comet's part of the key.

    +------------+---+---------------------+
    | length u16 | 2 | encrypt_key (bytes) |
    +------------+---+---------------------+
    """

    encrypt_key: bytes
    number = 2
    layout = (("encrypt_key", BYTES),)


class TopicList(Response, frozen=True, gc=False):
    """What this client is subscribed to.

    +------------+---+----------+--------------+ - - -
    | length u16 | 3 | count u8 | topic (str)  |
    +------------+---+----------+--------------+ - - -
    """

    topics: tuple[str, ...]
    number = 3
    layout = (("topics", STRINGS),)


class MessageList(Response, frozen=True, gc=False):
    """What waited.

    +------------+---+----------+----------------+ - - -
    | length u16 | 4 | count u8 | message_struct |
    +------------+---+----------+----------------+ - - -
    """

    messages: tuple[MessageStruct, ...]
    number = 4
    layout = (("messages", MESSAGES),)


class Message(Response, frozen=True, gc=False):
    """A message as it comes.

    +------------+---+----------------+
    | length u16 | 5 | message_struct |
    +------------+---+----------------+
    """

    message: MessageStruct
    number = 5
    layout = (("message", MESSAGE),)


COMMANDS: tuple[type[Command], ...] = (
    Auth,
    ExchangeKey,
    GetTopicList,
    Subscribe,
    Unsubscribe,
    GetMessageList,
    Heartbeat,
    MessageAck,
)
RESPONSES: tuple[type[Response], ...] = (Ok, Error, AuthSuccess, TopicList, MessageList, Message)

F = TypeVar("F", bound=Frame)


def encode_command(command: Command) -> bytes:
    """A command as it is sent; a list that one frame does not hold, as several frames.

    Raises LocalProtocolError for what no frame holds. Each frame is answered: `parts` tells how
    many there are.
    """
    return b"".join([_encode(part) for part in parts(command)])


def encode_response(response: Response) -> bytes:
    """A response as it is sent; a list that one frame does not hold, as several frames.

    Raises LocalProtocolError for what no frame holds.
    """
    return b"".join([_encode(part) for part in parts(response)])


def decode_command(frame: bytes) -> Command:
    """Read a command, without its length; raises RemoteProtocolError that names the field."""
    return _decode(frame, COMMANDS, "command")


def decode_response(frame: bytes) -> Response:
    """Read a response, without its length; raises RemoteProtocolError that names the field."""
    return _decode(frame, RESPONSES, "response")


def parts(whole: F) -> list[F]:
    """The same as frames that are small enough: more than one only of a long list."""
    if len(whole.layout) != 1 or whole.layout[0][1] not in (STRINGS, MESSAGES):
        return [whole]
    ((field, kind),) = whole.layout
    items = getattr(whole, field)
    # The size of each item is that of a list of it alone, less the count.
    sizes = [len(kind.write(field, (item,))) - 1 for item in items]
    return [type(whole)(items[start:stop]) for start, stop in _runs(field, sizes)]


def message_frame(struct: bytes) -> bytes:
    """The frame of one message_struct that is encoded already."""
    return _frame(Message, struct)


def message_list_frames(structs: Iterable[bytes]) -> list[bytes]:
    """The frames of a list of message_structs that are encoded already; at least one."""
    items = list(structs)
    return [
        _frame(MessageList, write_items("messages", items[start:stop]))
        for start, stop in _runs("messages", list(map(len, items)))
    ]


def _runs(field: str, sizes: list[int]) -> Iterator[tuple[int, int]]:
    """From where to where a list goes into one frame: as much as it holds."""
    start, room = 0, ITEM_BYTES_MAX
    for at, size in enumerate(sizes):
        if size > ITEM_BYTES_MAX:
            raise LocalProtocolError(f"{field}: {size} bytes, {ITEM_BYTES_MAX} are allowed")
        if size > room or at - start == COUNT_MAX:
            yield start, at
            start, room = at, ITEM_BYTES_MAX
        room -= size
    yield start, len(sizes)


def _encode(frame: Frame) -> bytes:
    body = b"".join([kind.write(name, getattr(frame, name)) for name, kind in frame.layout])
    return _frame(type(frame), body)


def _frame(kind: type[Frame], body: bytes) -> bytes:
    size = 1 + len(body)
    if size > FRAME_BYTES_MAX:
        raise LocalProtocolError(
            f"{kind.__name__}: a frame of {size} bytes, {FRAME_BYTES_MAX} are allowed"
        )
    return SHORT.pack(size) + bytes((kind.number,)) + body


def _decode(frame: bytes, kinds: tuple[type[F], ...], what: str) -> F:
    if not frame:
        raise RemoteProtocolError("type: an empty frame has none")
    if frame[0] >= len(kinds):
        raise RemoteProtocolError(f"type: {frame[0]} is no {what}")
    kind = kinds[frame[0]]
    reader = Reader(frame, 1)
    fields = [field.read(reader, name) for name, field in kind.layout]
    reader.end(kind.__name__)
    return kind(*fields)


def is_whole(data: bytes) -> bool:
    """Whether these bytes are one frame, as most reads bring, of a length that anybody may say."""
    size = len(data) - SHORT.size
    return size > 0 and data[0] << 8 | data[1] == size


class Splitter:
    """Cuts a stream into frames; keeps what is not whole yet, never more than the bound."""

    __slots__ = ("_need", "_rest", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        # A device that is quiet, as most are, has nothing here.
        self._rest: bytearray | None = None
        self._need = 0

    @property
    def partial(self) -> bool:
        """Whether the beginning of a frame is kept."""
        return self._rest is not None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each whole frame without its length; whoever stops half-way gets nothing more.

        Raises RemoteProtocolError as soon as a length is declared that is 0 or above the bound,
        before anything of that frame is kept. Nothing can be read after it.
        """
        rest = self._rest
        if rest is not None:
            rest += data
            # Growing in place: a peer that sends byte by byte must not make each byte cost a copy
            # of all before it.
            if len(rest) < self._need:
                return
            data = bytes(rest)
            self._rest = None
        at, end = 0, len(data)
        while end - at >= SHORT.size:
            stop = at + SHORT.size + self._size(data, at)
            if stop > end:
                break
            yield data[at + SHORT.size : stop]
            at = stop
        if at < end:
            self._rest = bytearray(data[at:])
            short = end - at < SHORT.size
            self._need = SHORT.size if short else SHORT.size + SHORT.unpack_from(data, at)[0]

    def _size(self, data: bytes, at: int) -> int:
        size: int = SHORT.unpack_from(data, at)[0]
        if not size:
            raise RemoteProtocolError("length: a frame of 0 bytes has no type")
        if size > self.frame_bytes_max:
            raise RemoteProtocolError(
                f"length: {size} bytes declared, {self.frame_bytes_max} are allowed",
                CloseCode.MESSAGE_TOO_BIG,
            )
        return size
