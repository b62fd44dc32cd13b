"""Links over a byte stream: packed ops behind a length, on raw TCP or TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

from chappe.client.form import STREAM, Form
from chappe.client.link import Link, Receiver
from chappe.errors import ABNORMAL, RemoteProtocolError
from chappe.wire.packed import Splitter, frame

# Opens a connection with the protocol of a factory: `loop.create_connection`, bound to an address,
# or a simulated network's own.
Open = Callable[
    [Callable[[], asyncio.Protocol]], Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]
]


class StreamDial:
    """Makes links over whatever `open` opens."""

    form: Form = STREAM

    def __init__(self, open: Open, message_bytes_max: int) -> None:
        self._open = open
        self._message_bytes_max = message_bytes_max

    async def __call__(self, receiver: Receiver) -> Link:
        _, protocol = await self._open(lambda: StreamLink(receiver, self._message_bytes_max))
        return cast(StreamLink, protocol)


class StreamLink(asyncio.Protocol):
    """One connection of a byte stream."""

    _transport: asyncio.Transport

    def __init__(self, receiver: Receiver, message_bytes_max: int) -> None:
        self._receiver = receiver
        self._splitter = Splitter(message_bytes_max)
        self.pause_writing = receiver.pause_writing  # type: ignore[method-assign]
        self.resume_writing = receiver.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._receiver.received
        try:
            for body in self._splitter.feed(data):
                received(body)
        except RemoteProtocolError as error:
            self._receiver.lost(error.close_code, error.reason)
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._receiver.lost(ABNORMAL, str(exc) if exc else "the hub hung up")

    def write(self, bodies: Iterable[bytes]) -> None:
        self._transport.write(b"".join(map(frame, bodies)))

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self, code: int, reason: str) -> None:
        # Closing a socket that holds unread bytes resets the connection, and what was just written
        # may be lost with it: end this direction only, and read until the hub ends the other.
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()
