"""Streams of server-sent events: a session read for as long as its connection lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from chappe.edge.http.depth import deep
from chappe.edge.http.mailbox import Line, Mailbox, Poll

BEAT = b": beat\n\n"
# Tells the client that it is subscribed, and proxies that bytes flow.
OPENING = b"retry: 2000\n\n"
_HEADERS = {"x-accel-buffering": "no"}

_split = deep(msgspec.json.Decoder(list[msgspec.Raw]).decode)


def events_of(items: bytes) -> bytes:
    """The items of a poll as events; line ends in JSON lie between tokens only."""
    array = b"[%b]" % items.removesuffix(b",").replace(b"\n", b" ").replace(b"\r", b" ")
    return b"".join(b"data: %b\n\n" % bytes(item) for item in _split(array))


class EventStream(StreamingResponse):
    """A response that goes on until the session or the connection ends."""

    def __init__(self, content: AsyncIterator[bytes], left: Callable[[], object]) -> None:
        super().__init__(content, 200, _HEADERS, "text/event-stream")
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()


async def own_events(mailbox: Mailbox) -> AsyncIterator[bytes]:
    """The events of a session that was opened for this stream: bytes as the hub encoded them."""
    yield OPENING
    while (data := await mailbox.take(None)) is not None:
        yield data or BEAT


async def polled_events(poll: Poll) -> AsyncIterator[bytes]:
    """The events of a session that is polled at other times."""
    yield OPENING
    items, poll.unacknowledged = poll.unacknowledged, b""
    if items:
        yield events_of(items)
    while (data := await poll.take(None)) is not None:
        yield events_of(data) if data else BEAT


def connection_of(scope: Scope) -> Line:
    """What carries a request: a connection, or a link to the node that has it."""
    connection: Line = scope["state"]["connection"]
    return connection
