"""The packed form of ops: a version byte and a msgpack array; on a stream, behind a length.

    +-------------------+-----------+----------------------------------+
    | length: u32, big  | version   | an op   [code, field, field, ..] |
    | endian, of what   | u8 = 1    | or many [[code, ..], [code, ..]] |
    | follows           |           | as a msgpack array               |
    +-------------------+-----------+----------------------------------+
      only on a stream; a WebSocket binary frame has its own length

Many ops in a frame are read and written by one call of msgspec, which is what makes the packed form
fast: whoever has several to say says them together. A code is a small number and an op an array, so
the array's first element tells one from many.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Union

import msgspec

from chappe.errors import CloseCode, RemoteProtocolError
from chappe.message import Message
from chappe.wire.ops import CLIENT_OPS, CODES, HUB_OPS, PACKED, VERSION, Op, Reply
from chappe.wire.payload import take_payload
from chappe.wire.refusal import UNREADABLE, refusal

LENGTH = Struct(">I")
_LENGTH_AND_VERSION = Struct(">IB")

# Enough that the frame's own cost is shared by many; few enough that ops cost no more memory than
# the messages of a busy tick.
OPS_MAX = 4095
MANY_BYTES_MAX = 64 * 1024
_REPLIES_MAX = 1_024

_client_many = msgspec.msgpack.Decoder(list[Union[tuple(PACKED[op] for op in CLIENT_OPS)]])  # type: ignore[misc]
_hub_many = msgspec.msgpack.Decoder(list[Union[tuple(PACKED[op] for op in HUB_OPS)]])  # type: ignore[misc]
_client_decoder = msgspec.msgpack.Decoder(Union[tuple(PACKED[op] for op in CLIENT_OPS)])
_hub_decoder = msgspec.msgpack.Decoder(Union[tuple(PACKED[op] for op in HUB_OPS)])
_encode = msgspec.msgpack.Encoder().encode
_version = bytes([VERSION])
_reply = CODES[Reply]
_UNPACKED = {packed: op for op, packed in PACKED.items()}
_DEFAULTS = {
    packed: tuple(f.default for f in msgspec.structs.fields(packed)) for packed in PACKED.values()
}


def decode_client_op(data: bytes) -> Op:
    """Read what an endpoint sent, version byte included.

    Raises RemoteProtocolError naming the field that is wrong.
    """
    return read_client_op(check_version(data))


def decode_hub_op(data: bytes) -> Op:
    """Read what a hub sent, version byte included; raises RemoteProtocolError."""
    return read_hub_op(check_version(data))


def read_client_op(array: bytes) -> Op:
    """Read an endpoint's op whose version was checked; raises RemoteProtocolError."""
    try:
        return _client_decoder.decode(array)  # type: ignore[no-any-return]
    except UNREADABLE as error:
        raise refusal(error) from None


def read_hub_op(array: bytes) -> Op:
    """Read a hub's op whose version was checked; raises RemoteProtocolError."""
    try:
        return _hub_decoder.decode(array)  # type: ignore[no-any-return]
    except UNREADABLE as error:
        raise refusal(error) from None


def read_client_ops(array: bytes) -> list[Op]:
    """Read an endpoint's one or many ops; raises RemoteProtocolError."""
    if not _holds_many(array):
        return [read_client_op(array)]
    try:
        return _client_many.decode(array)  # type: ignore[no-any-return]
    except UNREADABLE as error:
        raise refusal(error) from None


def read_hub_ops(array: bytes) -> list[Op]:
    """Read a hub's one or many ops; raises RemoteProtocolError."""
    if not _holds_many(array):
        return [read_hub_op(array)]
    try:
        return _hub_many.decode(array)  # type: ignore[no-any-return]
    except UNREADABLE as error:
        raise refusal(error) from None


def _holds_many(array: bytes) -> bool:
    """Whether an array's first element is an array; raises RemoteProtocolError for one that
    declares more ops than a frame may hold, before any is made."""
    lead = array[0] if array else 0
    if 0x90 <= lead <= 0x9F:
        return 0x90 <= array[1] <= 0x9F or array[1] == 0xDC if len(array) > 1 else False
    if lead == 0xDC and len(array) > 3:
        many = 0x90 <= array[3] <= 0x9F or array[3] == 0xDC
        if many and int.from_bytes(array[1:3], "big") > OPS_MAX:
            raise RemoteProtocolError(f"more than {OPS_MAX} ops in a frame")
        return many
    if lead == 0xDD:
        raise RemoteProtocolError(f"more than {OPS_MAX} ops in a frame")
    return False


def check_version(data: bytes) -> bytes:
    """The array behind the version byte; raises RemoteProtocolError for a version not spoken."""
    if not data or data[0] != VERSION:
        raise _wrong_version(data[0] if data else None)
    return data[1:]


def _wrong_version(found: int | None) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"version: this side speaks {VERSION}, the frame "
        + ("is empty" if found is None else f"has {found}")
    )


def encode_op(op: Op) -> bytes:
    """An op as version byte and array, without the trailing fields that hold their default."""
    kind = type(op)
    packed = kind if kind in _UNPACKED else PACKED[kind]
    values = list(msgspec.structs.astuple(op))
    if kind is not packed and "data" in op.__struct_fields__:
        _pack_payload(op, values)
    defaults = _DEFAULTS[packed]
    while values and values[-1] == defaults[len(values) - 1]:
        values.pop()
    return _version + _encode((CODES[_UNPACKED[packed]], *values))


def _pack_payload(op: Op, values: list[Any]) -> None:
    """Turn the two payload fields of the JSON form into those of the packed form."""
    at = op.__struct_fields__.index("data")
    if values[at] is msgspec.UNSET and values[at + 1] is None:
        values[at : at + 2] = [None, False]
    else:
        values[at : at + 2] = take_payload(op)  # type: ignore[arg-type]


def plain_op(op: Op) -> Op:
    """An op that was read packed, as the JSON form has it."""
    plain = _UNPACKED[type(op)]
    values = msgspec.structs.asdict(op)
    if "data" in values:
        data, binary = values.pop("data"), values.pop("data64")
        if data is not None:
            values |= (
                {"data64": b64encode(data).decode()} if binary else {"data": msgspec.Raw(data)}
            )
    return plain(**values)


def encode_messages(messages: Sequence[Message]) -> list[bytes]:
    """Messages as their receiver sees them, as few bodies as may be: a message is laid out as a
    packed delivery, so a run of them is one call."""
    if len(messages) == 1:
        return [_version + _encode(messages[0])]
    body = _encode(messages)
    if len(body) <= MANY_BYTES_MAX:
        return [_version + body]
    middle = len(messages) // 2
    return encode_messages(messages[:middle]) + encode_messages(messages[middle:])


def encode_ops(bodies: Sequence[bytes]) -> bytes:
    """Join the bodies of single ops into one body that holds them all."""
    if len(bodies) == 1:
        return bodies[0]
    count = len(bodies)
    head = bytes((0x90 + count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
    return b"".join((_version, head, *(body[1:] for body in bodies)))


def encode_accepted(request: int, message: int) -> bytes:
    """The reply that a message was accepted, as version byte and array."""
    return _version + _encode((_reply, request, True, None, None, None, message))


def encode_all_accepted(accepted: Sequence[tuple[int, int]]) -> list[bytes]:
    """The replies that messages were accepted, as few bodies as may be: request and message."""
    if len(accepted) == 1:
        return [encode_accepted(*accepted[0])]
    return [
        _version
        + _encode(
            [
                (_reply, request, True, None, None, None, message)
                for request, message in accepted[at : at + _REPLIES_MAX]
            ]
        )
        for at in range(0, len(accepted), _REPLIES_MAX)
    ]


def encode_ok(request: int) -> bytes:
    """The reply that all is well, as version byte and array."""
    return _version + _encode((_reply, request, True))


def encode_all_ok(requests: Sequence[int]) -> list[bytes]:
    """The replies that all is well, as few bodies as may be."""
    if len(requests) == 1:
        return [encode_ok(requests[0])]
    return [
        _version
        + _encode([(_reply, request, True) for request in requests[at : at + _REPLIES_MAX]])
        for at in range(0, len(requests), _REPLIES_MAX)
    ]


def frame(body: bytes) -> bytes:
    """Put the length of a stream frame before its body."""
    return LENGTH.pack(len(body)) + body


class Splitter:
    """Cuts a stream into the arrays of its frames; keeps what is not whole yet."""

    __slots__ = ("_need", "_rest", "body_bytes_max")

    def __init__(self, body_bytes_max: int) -> None:
        self.body_bytes_max = body_bytes_max
        self._rest: bytearray | None = None
        self._need = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield each whole op, without length and version.

        Raises RemoteProtocolError as soon as a length is declared that is above the bound, before
        anything of that frame is kept, and for a version this side does not speak. Nothing can be
        read after it.
        """
        rest = self._rest
        if rest is not None:
            rest += data
            # Growing in place until the frame is whole: a peer that sends byte by byte must not
            # make each byte cost a copy of all before it.
            if len(rest) < self._need:
                return
            data = bytes(rest)
            self._rest = None
        at, end = 0, len(data)
        unpack = _LENGTH_AND_VERSION.unpack_from
        while end - at > 4:
            size, version = unpack(data, at)
            if version != VERSION or not 0 < size <= self.body_bytes_max:
                raise self._refusal(size, version)
            stop = at + 4 + size
            if stop > end:
                break
            yield data[at + 5 : stop]
            at = stop
        if at < end:
            self._rest = bytearray(data[at:])
            self._need = 5 if end - at < 5 else 4 + LENGTH.unpack_from(data, at)[0]

    def _refusal(self, size: int, version: int) -> RemoteProtocolError:
        if size > self.body_bytes_max:
            return RemoteProtocolError(
                f"length: {size} bytes declared, {self.body_bytes_max} are allowed",
                CloseCode.MESSAGE_TOO_BIG,
            )
        return _wrong_version(version if size else None)
