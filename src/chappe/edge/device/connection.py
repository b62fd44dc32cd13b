"""Connections of devices: bytes in, bytes out.

There are very many and most are silent, so a connection is small: all of them read into one buffer,
and what is kept of a read is what is not a whole frame yet.
"""

from __future__ import annotations

import asyncio
from typing import cast

from chappe.errors import Overload
from chappe.push.comet.comet import Comet
from chappe.push.comet.session import DeviceSession
from chappe.wire.push import Error, PushError, encode_response

# One read: the largest frame, and more than most bring.
_BUFFER_BYTES = 66 * 1024
# How much a transport takes before it says that it is full: what lies there is beyond every bound.
_HIGH_WATER_BYTES = 64 * 1024
# How long a device may take to read why it is sent away, and to end its side.
LINGER_S = 2.0


class DeviceConnection(asyncio.BufferedProtocol):
    """One connection: the sink of a session."""

    __slots__ = ("_port", "_session", "_transport")

    _transport: asyncio.Transport

    def __init__(self, port: DevicePort) -> None:
        self._port = port
        self._session: DeviceSession | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        try:
            self._session = self._port.comet.open(self)
        except Overload as refusal:
            self._transport.write(too_many(refusal))
            self.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._port.buffer

    def buffer_updated(self, nbytes: int) -> None:
        # What a session says after its end is read, and heard by nobody.
        if self._session is not None:
            self._port.comet.feed(self._session, self._port.buffer[:nbytes].tobytes())

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self._session is not None:
            self._port.comet.pause(self._session)

    def resume_writing(self) -> None:
        if self._session is not None:
            self._port.comet.resume(self._session)

    def connection_lost(self, exc: Exception | None) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._port.comet.lost(session)

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        """End, and let the other side read why.

        What it says before it has read that would be answered with a reset, and that would take the
        reason with it: so this side stays open for a moment.
        """
        self._session = None
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)
        else:
            self._transport.close()

    def abort(self) -> None:
        """End at once."""
        self._session = None
        self._transport.abort()


class DevicePort:
    """Makes connections to a comet, as an acceptor asks for them; they share its buffer."""

    __slots__ = ("buffer", "comet")

    def __init__(self, comet: Comet) -> None:
        self.comet = comet
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))

    def __call__(self) -> DeviceConnection:
        return DeviceConnection(self)

    def close(self) -> None:
        """Take no more; its connections are their transports'."""


def too_many(refusal: Overload) -> bytes:
    """What somebody is told who cannot be taken."""
    return encode_response(Error(PushError.SERVER, refusal.reason))
