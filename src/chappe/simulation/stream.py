"""Stream transports: one end of a simulated connection, as asyncio's own behave."""

from __future__ import annotations

import asyncio
import errno
from asyncio.transports import _FlowControlMixin
from collections.abc import Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from chappe.simulation.pipe import Mark, Pipe

if TYPE_CHECKING:
    from chappe.simulation.network import Network

# What one read of a real transport returns at most.
READ_BYTES_MAX = 256 * 1024

Endpoint = tuple[str, int]
Readable = bytes | bytearray | memoryview


class SimulatedSocket:
    """Stands in for the socket of a transport: takes options, and has no descriptor to write to."""

    def fileno(self) -> int:
        """Tell that there is none, as a closed socket does."""
        return -1

    def setsockopt(self, *option: object) -> None:
        """Take any option; none matters here."""

    def getsockopt(self, *option: object) -> int:
        """Every option is off."""
        return 0


class StreamTransport(_FlowControlMixin):
    """One end of a stream.

    Flow control towards the protocol (limits, `pause_writing`, `resume_writing`) is asyncio's own
    code. Writing after `close` is ignored.
    """

    out: Pipe
    into: Pipe

    def __init__(
        self, network: Network, local: Endpoint, remote: Endpoint, context: Context
    ) -> None:
        extra = {"sockname": local, "peername": remote, "socket": SimulatedSocket()}
        super().__init__(extra, network.loop)
        self.network = network
        self.local = local
        self.remote = remote
        self.context = context
        self.lost = False
        self._protocol: Any = None
        self._buffer = bytearray()
        self._inbox = bytearray()
        self._end: Mark | None = None
        self._paused = False
        self._closing = False
        self._eof_written = False
        self._end_sent = False
        self._eof_received = False

    def __str__(self) -> str:
        return f"{self.local[0]}:{self.local[1]}-{self.remote[0]}:{self.remote[1]}"

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect the protocol."""
        self._protocol = protocol
        protocol.connection_made(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        if not self._closing:
            self._paused = True

    def resume_reading(self) -> None:
        if self._paused and not self._closing:
            self._paused = False
            self.network.loop.call_soon(self.deliver, context=self.context)

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def write(self, data: Readable) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be bytes-like, not {type(data).__name__}")
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._closing:
            return
        if self._end is Mark.RESET:
            self.fail(BrokenPipeError(errno.EPIPE, "Broken pipe"))
            return
        waiting = bool(self._buffer)
        self._buffer += data
        if not waiting:
            self.push()
        self._maybe_pause_protocol()  # type: ignore[attr-defined]

    def writelines(self, list_of_data: Iterable[Readable]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._closing or self._eof_written:
            return
        self._eof_written = True
        if not self._buffer:
            self._send_end()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._buffer:
            self._lose_soon(None)

    def abort(self) -> None:
        self.fail(None)

    def fail(self, error: Exception | None) -> None:
        """End at once, without what is still in the buffer."""
        if self.lost:
            return
        self._closing = True
        self._buffer.clear()
        self._lose_soon(error)

    def vanish(self) -> None:
        """Be gone without a word, as a machine without power: neither protocol learns of it."""
        self.lost = self._closing = True
        self._buffer.clear()
        for pipe in (self.out, self.into):
            pipe.dead = True
            pipe.path_changed()

    def die(self) -> None:
        """Be gone with its process: the kernel tells the other end, and there is nobody to tell
        here."""
        self.lost = self._closing = True
        self._buffer.clear()
        self.out.mark(Mark.RESET)

    def push(self) -> None:
        """Give the kernel as much of the buffer as it takes."""
        if not self._buffer or self.lost:
            return
        size = min(self.out.room, len(self._buffer))
        if size > 0:
            data = bytes(self._buffer[:size])
            del self._buffer[:size]
            if not self.out.send(data):
                return
        self._maybe_resume_protocol()  # type: ignore[attr-defined]
        if not self._buffer and self._closing:
            self._lose_soon(None)
        elif not self._buffer and self._eof_written:
            self._send_end()

    def take(self, item: bytes | Mark) -> None:
        """Something has arrived at this end's kernel."""
        if item is Mark.OPEN:
            self.network.accept(self)
        elif self.lost:
            if isinstance(item, bytes):
                # Nobody is here any more, and says so.
                self.out.mark(Mark.RESET)
        elif isinstance(item, bytes):
            self._inbox += item
        elif item is Mark.RESET and (self._buffer or self._closing):
            self.fail(_reset_error())
        elif self._end is not Mark.RESET:
            self._end = item

    def deliver(self) -> None:
        """Let the protocol have what has arrived, unless it reads no more."""
        while self._inbox and self._is_open_for_reading():
            self._read_once()
        if self._end is None or not self._is_open_for_reading():
            return
        if self._end is Mark.RESET:
            self.fail(_reset_error())
        elif not self._eof_received:
            self._eof_received = True
            if not self._protocol.eof_received():
                self.close()

    def _read_once(self) -> None:
        buffer: Any = None
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            buffer = memoryview(self._protocol.get_buffer(-1)).cast("B")
        size = min(len(self._inbox), READ_BYTES_MAX if buffer is None else len(buffer))
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        self.into.consumed(size)
        self.network.trace.record("data", at=str(self), data=data)
        if buffer is None:
            self._protocol.data_received(data)
        else:
            buffer[:size] = data
            self._protocol.buffer_updated(size)

    def _is_open_for_reading(self) -> bool:
        return not (self._paused or self._closing or self._protocol is None)

    def _lose_soon(self, error: Exception | None) -> None:
        """Close the kernel's end now, and tell the protocol in the next turn."""
        self.lost = True
        if self._inbox:
            self.out.mark(Mark.RESET)
        elif not isinstance(error, ConnectionResetError | TimeoutError):
            self._send_end()
        self.network.loop.call_soon(self._tell_lost, error, context=self.context)

    def _send_end(self) -> None:
        if not self._end_sent:
            self._end_sent = True
            self.out.mark(Mark.END)

    def _tell_lost(self, error: Exception | None) -> None:
        self.network.left(self, error)
        if self._protocol is not None:
            self._protocol.connection_lost(error)


def _reset_error() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
