"""In-process connections: two ends joined by memory, with the manners of a socket.

An endpoint inside the hub's process speaks the same ops through the same session as one across the
world (H2, H3): the cluster is invisible to it, and nothing about it is a special case.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

# As asyncio's own transports: above the first mark the writer is asked to pause, below the second
# to go on.
_HIGH_BYTES = 64 * 1024
_LOW_BYTES = 16 * 1024

Factory = Callable[[], asyncio.Protocol]


class MemoryTransport(asyncio.Transport):
    """One end of a connection in memory."""

    _peer: MemoryTransport

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": ("memory", 0), "sockname": ("memory", 0)})
        self._loop = loop
        self._protocol = protocol
        self._arrived: deque[bytes] = deque()
        self._under_way_bytes = 0  # written here, not yet read by the peer
        self._writing_paused = False
        self._reading_paused = False
        self._closing = False
        self._lost = False
        self._scheduled = False

    @classmethod
    def join(
        cls, loop: asyncio.AbstractEventLoop, here: asyncio.Protocol, there: asyncio.Protocol
    ) -> tuple[MemoryTransport, MemoryTransport]:
        """Connect two protocols."""
        one, other = cls(loop, here), cls(loop, there)
        one._peer, other._peer = other, one
        there.connection_made(other)
        here.connection_made(one)
        return one, other

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not data:
            return
        self._peer._arrived.append(bytes(data))
        self._under_way_bytes += len(data)
        self._peer._schedule()
        if self._under_way_bytes > _HIGH_BYTES and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._under_way_bytes

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._schedule()

    def is_reading(self) -> bool:
        return not self._reading_paused

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Close once the peer has read what was written."""
        if not self._closing:
            self._closing = True
            self._peer._schedule()
            self._loop.call_soon(self._lose)

    def abort(self) -> None:
        """Close at once; what the peer has not read is lost."""
        self._peer._arrived.clear()
        self._under_way_bytes = 0
        self.close()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def _schedule(self) -> None:
        if not self._scheduled and not self._lost:
            self._scheduled = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._scheduled = False
        while self._arrived and not self._reading_paused and not self._lost:
            data = self._arrived.popleft()
            self._peer._was_read(len(data))
            if not self._closing:
                self._protocol.data_received(data)
        if self._peer._closing and not self._arrived:
            self._closing = True
            self._lose()

    def _was_read(self, size: int) -> None:
        self._under_way_bytes = max(0, self._under_way_bytes - size)
        if self._writing_paused and self._under_way_bytes <= _LOW_BYTES and not self._lost:
            self._writing_paused = False
            self._protocol.resume_writing()

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            self._arrived.clear()
            self._protocol.connection_lost(None)
