"""Accepting connections: paused, not broken, when descriptors run out.

The event loop's own server gives up, or drops strangers, when `accept` fails for want of
descriptors. This one leaves them in the kernel's backlog and tries again shortly after.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import structlog

from chappe.edge.door import Door
from chappe.errors import ConfigError

log = structlog.get_logger()

BACKLOG = 4096
# What one turn of the loop accepts before others get theirs.
_BATCH = 64
_PAUSE_S = 0.1
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
# A connection that was gone before it was accepted is nobody's error.
_GONE = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EINTR})

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


@runtime_checkable
class Taker(Protocol):
    """A factory that can do without transports: it takes connections as they were accepted."""

    def take(self, accepted: socket.socket) -> None:
        """Take a connection over; raises OSError, and then it is not taken."""
        ...


class Listener(Protocol):
    """Something that accepts connections until it is closed."""

    @property
    def port(self) -> int:
        """Where it listens."""
        ...

    def close(self) -> None:
        """Accept no more; connections that were accepted stay."""
        ...


class Listen(Protocol):
    """How an edge gets its connections; a simulation has its own."""

    def __call__(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None
    ) -> Listener:
        """Begin to accept connections; raises ConfigError when the address cannot be had."""
        ...


class AcceptCounters:
    """What accepting met, for `/metrics`."""

    __slots__ = ("accepted", "failed", "pauses", "turned_away")

    def __init__(self) -> None:
        self.accepted = 0
        self.failed = 0
        self.pauses = 0
        self.turned_away = 0


class Acceptor:
    """A listening socket on an event loop; one that is shared may be listened on by others too."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: ProtocolFactory,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        counters: AcceptCounters,
        door: Door | None = None,
        tls_timeout_s: float = 10.0,
        *,
        shared: bool = False,
    ) -> None:
        self._loop = loop
        self._factory = factory
        # Who encrypts has more to do than bytes.
        maybe: object = factory
        self._taker = maybe if tls is None and isinstance(maybe, Taker) else None
        self._tls = tls
        self._tls_timeout_s = tls_timeout_s
        self._counters = counters
        self._door = door
        self._opening: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._short = False  # of descriptors: said once, not at every try
        self._socket = _listening_socket(host, port, shared)
        self.port: int = self._socket.getsockname()[1]
        loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Accept no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                connection, peer = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE:
                    continue
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(error)
                return
            if self._door is not None and not self._door.allow(peer[0]):
                self._counters.turned_away += 1
                connection.close()
                continue
            if self._short:
                self._short = False
                log.info("accept.resumed", port=self.port)
            connection.setblocking(False)
            self._counters.accepted += 1
            if self._taker is not None:
                self._take(self._taker, connection)
                continue
            task = self._loop.create_task(self._open(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def _pause(self, error: OSError) -> None:
        self._counters.pauses += 1
        if not self._short:
            self._short = True
            log.warning("accept.paused", reason=error.strerror, port=self.port)
        self._loop.remove_reader(self._socket)
        self._timer = self._loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._socket, self._accept)
        self._accept()

    def _take(self, taker: Taker, connection: socket.socket) -> None:
        try:
            taker.take(connection)
        except OSError:
            self._counters.failed += 1
            connection.close()

    async def _open(self, connection: socket.socket) -> object:
        try:
            return await self._loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=self._tls_timeout_s if self._tls else None,
            )
        except (TimeoutError, OSError, ssl.SSLError):
            self._counters.failed += 1
            connection.close()
            return None


def _listening_socket(host: str, port: int, shared: bool) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Accepted connections inherit both: small messages leave at once, and a peer that takes
        # nothing is given up by the kernel well before its usual quarter of an hour, though not
        # before a reader had time to pause.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 120_000)
        listening.bind((host, port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except (OSError, OverflowError) as error:
        listening.close()
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from None
    return listening
