"""WebSocket messages without I/O: frame headers, reassembly, UTF-8, permessage-deflate (RFC 7692).

A parser below gives whole frames; this module knows what a run of frames means. A hub's frames are
not masked, so the bytes of one serve every receiver.

      0               1               2               3
     +-+-+-+-+-------+-+-------------+-------------------------------+
     |F|R|R|R| opcode|M| length      | extended length: 16 bits when |
     |I|S|S|S|  (4)  |A|  (7)        | length is 126, 64 bits when   |
     |N|V|V|V|       |S|             | it is 127                     |
     | |1|2|3|       |K|             |                               |
     +-+-+-+-+-------+-+-------------+-------------------------------+
"""

from __future__ import annotations

import codecs
import struct
import zlib
from collections.abc import Iterator

from chappe.errors import CloseCode, RemoteProtocolError
from chappe.wire.limits import Limits

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
FIN, RSV1 = 0x80, 0x40
CONTROL_BYTES_MAX = 125

DEFLATE = "permessage-deflate"
# Without context takeover on either side a compressed frame stands alone: it can be shared by every
# receiver, and no connection holds a window of 32 kB.
DEFLATE_ANSWER = f"{DEFLATE}; server_no_context_takeover; client_no_context_takeover"
DEFLATE_BYTES_MIN = 256
_DEFLATE_TAIL = b"\x00\x00\xff\xff"

_CLOSE_CODES = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014})
_HEAD_16 = struct.Struct("!BBH")
_HEAD_64 = struct.Struct("!BBQ")
_utf8 = codecs.getincrementaldecoder("utf-8")


def encode_frame(first_byte: int, payload: bytes) -> bytes:
    """A frame of a server: opcode and flags as given, not masked."""
    return frame_head(first_byte, len(payload)) + payload


def frame_head(first_byte: int, size: int) -> bytes:
    """What stands before a payload of that size."""
    if size < 126:
        return bytes((first_byte, size))
    if size < 65_536:
        return _HEAD_16.pack(first_byte, 126, size)
    return _HEAD_64.pack(first_byte, 127, size)


def split_frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Whole frames of a server, one after the other, as (opcode, payload): for a transport that
    makes frames itself."""
    at, end = 0, len(data)
    while at < end:
        first, size = data[at], data[at + 1]
        at += 2
        if size >= 126:
            width = 2 if size == 126 else 8
            size = int.from_bytes(data[at : at + width], "big")
            at += width
        yield first & 0x0F, data[at : at + size]
        at += size


def close_reason(reason: str) -> bytes:
    """The reason of a close frame, cut to what fits behind the code, at a character's end."""
    return reason.encode()[: CONTROL_BYTES_MAX - 2].decode(errors="ignore").encode()


def may_travel(code: int) -> bool:
    """Whether a close frame may carry that code."""
    return code in _CLOSE_CODES or 3000 <= code < 5000


def check_close(payload: bytes) -> tuple[int, str]:
    """The code and reason of a received close frame; 1005 when it has none.

    Raises RemoteProtocolError for a code that may not travel, or a reason that is not UTF-8.
    """
    if not payload:
        return 1005, ""
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not may_travel(code):
        raise RemoteProtocolError(f"close code {code} may not be sent")
    try:
        return code, payload[2:].decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("close reason is not UTF-8", CloseCode.INVALID_TEXT) from None


def deflate_answer(header: str) -> str | None:
    """What to answer to a Sec-WebSocket-Extensions header; None when it offers no
    permessage-deflate that this side can take."""
    return next(filter(None, map(_answer, header.split(","))), None)


def _answer(offer: str) -> str | None:
    name, *parameters = (part.strip() for part in offer.split(";"))
    if name != DEFLATE:
        return None
    answer = DEFLATE_ANSWER
    seen = set()
    for parameter in parameters:
        key, _, value = (part.strip().strip('"') for part in parameter.partition("="))
        if key in seen:
            return None
        seen.add(key)
        if key in ("server_no_context_takeover", "client_no_context_takeover"):
            if value:
                return None
        elif key == "client_max_window_bits":
            if value and value not in _WINDOW_BITS:
                return None
        # A smaller window for what the server sends would make its frames unshareable.
        elif key == "server_max_window_bits" and value == "15":
            answer += "; server_max_window_bits=15"  # RFC 7692 7.1.2.1: taken only if repeated
        else:
            return None
    return answer


_WINDOW_BITS = frozenset(str(bits) for bits in range(8, 16))


def deflate(payload: bytes) -> bytes:
    """Compress one message on its own."""
    squeeze = zlib.compressobj(6, zlib.DEFLATED, -15)
    return (squeeze.compress(payload) + squeeze.flush(zlib.Z_SYNC_FLUSH))[:-4]


def inflate(payload: bytes, bytes_max: int) -> bytes:
    """Decompress one message, stopping at the bound.

    Raises RemoteProtocolError when it would grow past `bytes_max`, or is not deflate data.
    """
    expand = zlib.decompressobj(-15)
    try:
        data = expand.decompress(payload + _DEFLATE_TAIL, bytes_max + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"compressed message: {error}", CloseCode.INVALID_TEXT) from None
    if len(data) > bytes_max:
        raise RemoteProtocolError(
            f"compressed message grows past {bytes_max} bytes", CloseCode.MESSAGE_TOO_BIG
        )
    return data


class Assembler:
    """Joins the frames of one connection into messages.

    `feed` takes the data frames in order; control frames between them do not concern it. A
    connection that never fragments never needs one.
    """

    __slots__ = (
        "_compressed",
        "_count",
        "_deflate",
        "_limits",
        "_opcode",
        "_parts",
        "_size",
        "_text",
    )

    def __init__(self, limits: Limits, *, deflate: bool = False) -> None:
        self._limits = limits
        self._deflate = deflate
        self._opcode = CONTINUATION
        self._text: codecs.IncrementalDecoder | None = None
        self._reset()

    @property
    def under_way(self) -> bool:
        """Whether a message has begun and not ended."""
        return self._opcode != CONTINUATION

    def feed(self, opcode: int, fin: bool, rsv: int, payload: bytes) -> tuple[int, bytes] | None:
        """Take a data frame; return (TEXT or BINARY, message) when it completes one.

        `rsv` is the three reserved bits as a number, RSV1 the highest. Raises RemoteProtocolError
        with the close code that RFC 6455 asks for.
        """
        self._begin(opcode, rsv)
        self._take(payload, fin)
        if not fin:
            return None
        message = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        kind, compressed = self._opcode, self._compressed
        self._opcode = CONTINUATION
        self._reset()
        if compressed:
            message = inflate(message, self._limits.inflated_bytes_max)
            if kind == TEXT:
                check_text(message)
        return kind, message

    def _begin(self, opcode: int, rsv: int) -> None:
        if opcode == CONTINUATION:
            if not self.under_way:
                raise RemoteProtocolError("continuation frame without a message to continue")
            if rsv:
                raise RemoteProtocolError("reserved bits set on a continuation frame")
            return
        if self.under_way:
            raise RemoteProtocolError("new message before the last one ended")
        if rsv & 0b011 or (rsv and not self._deflate):
            raise RemoteProtocolError("reserved bits set without an extension that uses them")
        self._opcode = opcode
        self._compressed = bool(rsv)
        if opcode == TEXT and not self._compressed:
            self._text = _utf8()

    def _take(self, payload: bytes, fin: bool) -> None:
        self._size += len(payload)
        self._count += 1
        limits = self._limits
        if self._size > limits.message_bytes_max or self._count > limits.fragments_max:
            raise RemoteProtocolError(
                f"message of more than {limits.message_bytes_max} bytes "
                f"or {limits.fragments_max} fragments",
                CloseCode.MESSAGE_TOO_BIG,
            )
        if self._text is not None:
            try:
                self._text.decode(payload, fin)
            except UnicodeDecodeError:
                raise _not_utf8() from None
        self._parts.append(payload)

    def _reset(self) -> None:
        self._parts: list[bytes] = []
        self._size = self._count = 0
        self._compressed = False
        self._text = None


def check_text(data: bytes) -> None:
    """Refuse a text message that is not UTF-8; raises RemoteProtocolError."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError:
            raise _not_utf8() from None


def _not_utf8() -> RemoteProtocolError:
    return RemoteProtocolError("text message is not UTF-8", CloseCode.INVALID_TEXT)
