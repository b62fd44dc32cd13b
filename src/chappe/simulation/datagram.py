"""Datagrams: lost, doubled, late and out of order, as the links have it."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chappe.simulation.network import Network

# What UDP over IPv4 can carry.
DATAGRAM_BYTES_MAX = 65_507

Endpoint = tuple[str, int]


class DatagramTransport(asyncio.DatagramTransport):
    """A simulated datagram socket."""

    def __init__(
        self,
        network: Network,
        protocol: asyncio.DatagramProtocol,
        local: Endpoint,
        remote: Endpoint | None,
        context: Context,
    ) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self._network = network
        self._protocol = protocol
        self._remote = remote
        self._closing = False
        self.local = local
        self.context = context

    def sendto(self, data: Any, addr: Any = None) -> None:
        """Send to `addr`, or to the peer this endpoint was opened for."""
        target = addr or self._remote
        if target is None or (self._remote is not None and target != self._remote):
            raise ValueError(f"Invalid address: must be {self._remote}")
        if len(data) > DATAGRAM_BYTES_MAX:
            error = OSError(f"{len(data)} bytes do not fit into a datagram")
            self._network.loop.call_soon(self._protocol.error_received, error)
        elif data and not self._closing:
            self._network.send_datagram(self.local, (target[0], target[1]), bytes(data))

    def take(self, data: bytes, source: Endpoint) -> None:
        """A datagram has arrived."""
        if not self._closing and (self._remote is None or source == self._remote):
            self._protocol.datagram_received(data, source)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._network.close_datagram(self)
            self._network.loop.call_soon(self._protocol.connection_lost, None, context=self.context)

    def abort(self) -> None:
        self.close()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol
