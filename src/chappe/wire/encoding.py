"""Encodings: every way in which a hub puts ops and messages into bytes for a session.

A session names its encoding; a message is encoded once for each encoding among its receivers, and
the bytes are shared by all sessions that name it.
"""

from __future__ import annotations

from collections.abc import Callable

from chappe.message import Message
from chappe.wire import packed, text
from chappe.wire.ops import Op
from chappe.wire.websocket import (
    BINARY,
    DEFLATE_BYTES_MIN,
    FIN,
    RSV1,
    TEXT,
    deflate,
    encode_frame,
)


class Encoding:
    """Three functions to bytes: from an op, from a message, and from the commonest answer of all,
    that the message of a request was accepted."""

    __slots__ = ("accepted", "message", "name", "op")

    def __init__(
        self,
        name: str,
        op: Callable[[Op], bytes],
        message: Callable[[Message], bytes],
        accepted: Callable[[int, int], bytes],
    ) -> None:
        self.name = name
        self.op = op
        self.message = message
        self.accepted = accepted

    def __repr__(self) -> str:
        return f"<Encoding {self.name}>"


def _framed(name: str, form: str, frame: Callable[[bytes], bytes]) -> Encoding:
    body = text if form == "text" else packed
    return Encoding(
        name,
        lambda op: frame(body.encode_op(op)),
        lambda message: frame(body.encode_message(message)),
        lambda request, message: frame(body.encode_accepted(request, message)),
    )


def _deflated(opcode: int) -> Callable[[bytes], bytes]:
    def frame(body: bytes) -> bytes:
        if len(body) < DEFLATE_BYTES_MIN:
            return encode_frame(FIN | opcode, body)
        return encode_frame(FIN | RSV1 | opcode, deflate(body))

    return frame


def _event(body: bytes) -> bytes:
    # JSON holds raw line ends only between tokens, where a space means the same.
    return b"data: " + body.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n\n"


WEBSOCKET_TEXT = _framed("websocket-text", "text", lambda body: encode_frame(FIN | TEXT, body))
WEBSOCKET_PACKED = _framed(
    "websocket-packed", "packed", lambda body: encode_frame(FIN | BINARY, body)
)
WEBSOCKET_TEXT_DEFLATED = _framed("websocket-text-deflated", "text", _deflated(TEXT))
WEBSOCKET_PACKED_DEFLATED = _framed("websocket-packed-deflated", "packed", _deflated(BINARY))
STREAM = _framed("stream", "packed", packed.frame)
# Items of a JSON array: whoever answers a poll puts the brackets around them.
JSON_ITEMS = _framed("json-items", "text", lambda body: body + b",")
EVENT_STREAM = _framed("event-stream", "text", _event)
