"""A port: where datagrams of other processes come in, and ours go out.

Datagrams may get lost anywhere, here as well: what the kernel does not take is counted, and nothing
that it says of one of them disturbs another.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog

from chappe.registry import errand
from chappe.rooms.role import Endpoint

log = structlog.get_logger()

# As SO_RCVBUF, beyond the machine's usual bound, for who may; Python has no name for it.
_SO_RCVBUFFORCE = 33
_REOPEN_S = 1.0

Receive = Callable[[bytes, Any], None]


class Port(asyncio.DatagramProtocol):
    """A datagram endpoint of the loop that opens again should it ever close by itself."""

    def __init__(self, receive: Receive, buffer_bytes: int) -> None:
        self._receive = receive
        self._buffer_bytes = buffer_bytes
        self._transport: asyncio.DatagramTransport | None = None
        self._reopening: errand.Errand | None = None
        self._closed = False
        self._full = False
        self.endpoint: Endpoint = ("", 0)
        # Datagrams that could not be sent, and what the kernel said of others.
        self.unsent = 0
        self.errors = 0

    async def open(self, host: str, port: int) -> None:
        """Bind; raises OSError."""
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=(host, port))
        self._transport = transport
        bound = transport.get_extra_info("sockname")
        self.endpoint = (bound[0], bound[1])
        self._widen(transport.get_extra_info("socket"))

    async def address_of(self, host: str) -> str:
        """The address that a host's name stands for: datagrams go to addresses only.

        Raises OSError. A simulated network knows hosts by their names.
        """
        transport = self._transport
        if transport is None or transport.get_extra_info("socket") is None:
            return host
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, self.endpoint[1], type=socket.SOCK_DGRAM)
        return str(found[0][4][0])

    @property
    def dead(self) -> list[str]:
        """That it is closed for ever, by mistake."""
        return errand.dead((self._reopening,))

    def close(self) -> None:
        """Take nothing more."""
        self._closed = True
        if self._reopening is not None:
            self._reopening.cancel()
        if self._transport is not None:
            self._transport.close()

    def send(self, to: Any, data: bytes) -> None:
        """Send a datagram, or count that it could not be."""
        transport = self._transport
        if transport is None or self._full or transport.is_closing():
            self.unsent += 1
            return
        try:
            transport.sendto(data, to)
        except (OSError, ValueError):
            # Somebody gave a name as its address, or one of another family.
            self.unsent += 1

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._receive(data, addr)

    def error_received(self, exc: Exception) -> None:
        self.errors += 1

    def pause_writing(self) -> None:
        # What does not fit into the socket's buffer is lost, rather than kept without a bound.
        self._full = True

    def resume_writing(self) -> None:
        self._full = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self._closed:
            log.error("rooms.port.closed", reason=str(exc))
            self._reopening = errand.run(self._reopen(), "opening the port again", ends=True)

    async def _reopen(self) -> None:
        while True:
            try:
                await self.open(*self.endpoint)
            except OSError as error:
                log.error("rooms.port.unbound", reason=str(error))
                await asyncio.sleep(_REOPEN_S)
            else:
                return

    def _widen(self, opened: Any) -> None:
        """Let the kernel keep what comes in bursts; a simulated port has no socket."""
        if opened is None:
            return
        for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
            with suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, option, self._buffer_bytes)
