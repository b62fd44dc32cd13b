"""Encodings: every way in which a hub puts ops and messages into bytes for a session.

A session names its encoding; a message is encoded once for each encoding among its receivers, and
the bytes are shared by all sessions that name it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType

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
    frame_head,
)


class Encoding:
    """Functions to bytes: from an op, from messages one by one or many joined, and from the
    commonest answers of all, that the message of a request was accepted, and that all is well, one
    by one or many joined; `message_id` is how an id stands in other ops."""

    __slots__ = (
        "accepted",
        "all_accepted",
        "all_ok",
        "message_id",
        "messages",
        "name",
        "ok",
        "op",
    )

    def __init__(
        self,
        name: str,
        op: Callable[[Op], bytes],
        messages: Callable[[Sequence[Message]], bytes],
        accepted: Callable[[int, int], bytes],
        ok: Callable[[int], bytes],
        message_id: Callable[[int], str | int],
        all_accepted: Callable[[Sequence[tuple[int, int]]], bytes] | None = None,
        all_ok: Callable[[Sequence[int]], bytes] | None = None,
    ) -> None:
        self.name = name
        self.message_id = message_id
        self.op = op
        self.messages = messages
        self.accepted = accepted
        self.ok = ok
        self.all_accepted = all_accepted or (lambda run: b"".join([accepted(*one) for one in run]))
        self.all_ok = all_ok or (lambda run: b"".join(map(ok, run)))

    def message(self, message: Message) -> bytes:
        """One message alone."""
        return self.messages((message,))

    def __repr__(self) -> str:
        return f"<Encoding {self.name}>"


def _framed(name: str, form: ModuleType, frame: Callable[[bytes], bytes]) -> Encoding:
    def joined(bodies: Sequence[bytes]) -> bytes:
        return b"".join([frame(body) for body in bodies])

    return Encoding(
        name,
        lambda op: frame(form.encode_op(op)),
        lambda run: joined(form.encode_messages(run)),
        lambda request, message: frame(form.encode_accepted(request, message)),
        lambda request: frame(form.encode_ok(request)),
        str if form is text else int,
        None if form is text else lambda run: joined(packed.encode_all_accepted(run)),
        None if form is text else lambda run: joined(packed.encode_all_ok(run)),
    )


def _websocket_text() -> Encoding:
    """The commonest of all, where a frame's head is made with the body instead of before it."""
    plain = _framed("websocket-text", text, partial(encode_frame, FIN | TEXT))
    head = partial(frame_head, FIN | TEXT)
    return Encoding(
        plain.name,
        plain.op,
        lambda run: b"".join(text.encode_messages(run, head)),
        plain.accepted,
        plain.ok,
        str,
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


WEBSOCKET_TEXT = _websocket_text()
WEBSOCKET_PACKED = _framed("websocket-packed", packed, partial(encode_frame, FIN | BINARY))
WEBSOCKET_TEXT_DEFLATED = _framed("websocket-text-deflated", text, _deflated(TEXT))
WEBSOCKET_PACKED_DEFLATED = _framed("websocket-packed-deflated", packed, _deflated(BINARY))
STREAM = _framed("stream", packed, packed.frame)
# Items of a JSON array: whoever answers a poll puts the brackets around them.
JSON_ITEMS = _framed("json-items", text, lambda body: body + b",")
EVENT_STREAM = _framed("event-stream", text, _event)
