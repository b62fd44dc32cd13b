"""Connections of devices without transports: one selector for all, and of each a few bytes.

An event loop's transport takes 1.4 kB for a connection, and a device that waits has no use for most
of it. Here the kernel's own list of descriptors (epoll) is one thing to the loop, and a connection
is its descriptor and its session. What only few connections have, such as bytes that the kernel did
not take, is kept apart. For TLS, and where there is no epoll, there are transports.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from contextlib import suppress

from chappe.edge.device.connection import LINGER_S, DevicePort, too_many
from chappe.errors import Overload
from chappe.push.comet.comet import Comet
from chappe.push.comet.session import DeviceSession

# Read in one turn of the loop, before others get theirs.
_EVENTS = 64
_CLOSED = -1


class PolledConnection:
    """One connection: the sink of a session."""

    __slots__ = ("fd", "port", "session")

    def __init__(self, port: PolledPort, fd: int) -> None:
        self.port = port
        self.fd = fd
        self.session: DeviceSession | None = None

    def write(self, data: bytes) -> None:
        port = self.port
        if self.fd == _CLOSED or self in port.ending:
            return
        rest = port.rests.get(self)
        if rest is not None:
            rest += data
            return
        try:
            sent = os.write(self.fd, data)
        except BlockingIOError:
            sent = 0
        except OSError:
            # Whoever writes is not to find its session gone under its hands.
            port.loop.call_soon(port.lose, self)
            return
        if sent < len(data):
            port.hold(self, data[sent:])

    def close(self) -> None:
        """End, and let the other side read why, as a connection with a transport does."""
        self.session = None
        if self.fd == _CLOSED or self in self.port.ending:
            return
        self.port.ending.add(self)
        if self not in self.port.rests:
            self.shut()
        self.port.loop.call_later(LINGER_S, self.port.lose, self)

    def shut(self) -> None:
        """Say no more."""
        view = socket.socket(fileno=self.fd)
        try:
            # Whoever is gone already need not be told.
            with suppress(OSError):
                view.shutdown(socket.SHUT_WR)
        finally:
            view.detach()

    def abort(self) -> None:
        """End at once."""
        self.session = None
        self.port.lose(self)


class PolledPort(DevicePort):
    """Takes connections as they were accepted, and polls them."""

    __slots__ = ("_at", "_epoll", "_polling", "ending", "loop", "rests")

    def __init__(self, comet: Comet, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(comet)
        self.loop = loop
        # By descriptor: these are small numbers.
        self._at: list[PolledConnection | None] = []
        # What the kernel did not take.
        self.rests: dict[PolledConnection, bytearray] = {}
        # Those that say no more.
        self.ending: set[PolledConnection] = set()
        self._epoll = select.epoll()
        # A loop that is simulated has nothing to poll, and nobody gives it any.
        self._polling = False

    def take(self, accepted: socket.socket) -> None:
        """Take a connection over; raises OSError when the kernel cannot poll it."""
        fd = accepted.fileno()
        self._epoll.register(fd, select.EPOLLIN)
        accepted.detach()
        if not self._polling:
            self._polling = True
            self.loop.add_reader(self._epoll.fileno(), self._poll)
        connection = PolledConnection(self, fd)
        if fd >= len(self._at):
            self._at.extend([None] * (fd + 1 - len(self._at)))
        self._at[fd] = connection
        try:
            connection.session = self.comet.open(connection)
        except Overload as refusal:
            connection.write(too_many(refusal))
            connection.close()

    def hold(self, connection: PolledConnection, rest: bytes) -> None:
        """Keep what the kernel did not take until it does."""
        self.rests[connection] = bytearray(rest)
        self._epoll.modify(connection.fd, select.EPOLLIN | select.EPOLLOUT)
        if connection.session is not None:
            self.comet.pause(connection.session)

    def lose(self, connection: PolledConnection) -> None:
        """A connection is over."""
        fd, connection.fd = connection.fd, _CLOSED
        if fd == _CLOSED:
            return
        self._at[fd] = None
        self.rests.pop(connection, None)
        self.ending.discard(connection)
        self._epoll.unregister(fd)
        os.close(fd)
        session, connection.session = connection.session, None
        if session is not None:
            self.comet.lost(session)

    def close(self) -> None:
        """End all connections that are left, and poll no more."""
        for connection in self._at:
            if connection is not None:
                self.lose(connection)
        if self._polling:
            self.loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _poll(self) -> None:
        for fd, events in self._epoll.poll(0, _EVENTS):
            connection = self._at[fd]
            if connection is not None and events & select.EPOLLOUT:
                self._write_on(connection)
            if connection is not None and connection.fd != _CLOSED and events != select.EPOLLOUT:
                self._read(connection)

    def _read(self, connection: PolledConnection) -> None:
        try:
            size = os.readv(connection.fd, (self.buffer,))
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self.lose(connection)
        elif connection.session is not None:
            # What a session says after its end is read, and heard by nobody.
            self.comet.feed(connection.session, self.buffer[:size].tobytes())

    def _write_on(self, connection: PolledConnection) -> None:
        rest = self.rests.get(connection)
        if rest is None:
            return
        try:
            del rest[: os.write(connection.fd, rest)]
        except BlockingIOError:
            return
        except OSError:
            self.lose(connection)
            return
        if rest:
            return
        del self.rests[connection]
        self._epoll.modify(connection.fd, select.EPOLLIN)
        if connection in self.ending:
            connection.shut()
        elif connection.session is not None:
            self.comet.resume(connection.session)


def open_port(comet: Comet, loop: asyncio.AbstractEventLoop) -> DevicePort:
    """The port for a comet, with as small connections as there can be."""
    return PolledPort(comet, loop) if hasattr(select, "epoll") else DevicePort(comet)
