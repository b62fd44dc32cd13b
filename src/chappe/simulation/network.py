"""A network in memory: hosts with names, ports, streams and datagrams.

Whoever connects does so from a host. Tasks started by `on_host` belong to one, and so does all that
they start; `local_addr` names another. Hosts exist by being named.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

from chappe.errors import ConfigError
from chappe.simulation.datagram import DatagramTransport, Endpoint
from chappe.simulation.link import LOCAL, Faults, Link
from chappe.simulation.loop import NotSimulated, SimulatedLoop
from chappe.simulation.pipe import Mark, Pipe
from chappe.simulation.process import Process
from chappe.simulation.stream import StreamTransport
from chappe.simulation.trace import Trace

T = TypeVar("T")
ProtocolFactory = Callable[[], asyncio.BaseProtocol]

DEFAULT_HOST = "127.0.0.1"
_FIRST_FREE_PORT = 49_152
_PORT_MAX = 65_535
# As a kernel repeats its first packet: after a second, then twice as long each time.
_CONNECT_RETRY_S = 1.0
_CONNECT_TIMEOUT_S = 60.0

_host: ContextVar[str] = ContextVar("chappe_simulated_host", default=DEFAULT_HOST)


class SimulatedListener:
    """Accepts connections on one port of a host until it is closed."""

    def __init__(self, network: Network, factory: ProtocolFactory, at: Endpoint) -> None:
        self._network = network
        self.factory = factory
        self.at = at
        self.context = copy_context()
        self.context.run(_host.set, at[0])

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.at[1]

    def close(self) -> None:
        """Accept no more; connections that were accepted stay."""
        self._network.close_listener(self)


class Network:
    """Joins hosts by links, each with faults of its own."""

    def __init__(
        self, loop: SimulatedLoop, random: Random, trace: Trace, faults: Faults | None = None
    ) -> None:
        self.loop = loop
        self.trace = trace
        self.faults = faults or Faults()
        # Every open end of a stream, in the order of their making.
        self.streams: dict[StreamTransport, None] = {}
        self._random = random
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[Endpoint, SimulatedListener] = {}
        self._datagrams: dict[Endpoint, DatagramTransport] = {}
        self._ports: dict[str, int] = {}
        loop.network = self

    def on_host(
        self,
        host: str,
        coroutine: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        process: Process | None = None,
    ) -> asyncio.Task[T]:
        """Start a task that lives on a host: what it connects, it connects from there."""
        context = _context_of(host)
        if process is not None:
            process.enter(context)
        return self.loop.create_task(coroutine, name=name, context=context)

    def link(self, source: str, target: str) -> Link:
        """The way from one host to another."""
        link = self._links.get((source, target))
        if link is None:
            faults = LOCAL if source == target else self.faults
            link = self._links[source, target] = Link(source, target, faults, self._random)
        return link

    def set_faults(self, faults: Faults) -> None:
        """Give every link between two hosts, known or yet to come, these faults."""
        self.faults = faults
        for link in self._links.values():
            if link.source != link.target:
                link.faults = faults

    def partition(
        self, sources: Iterable[str], targets: Iterable[str], *, both_ways: bool = True
    ) -> None:
        """Let nothing through from any source to any target, nor back unless one-way."""
        targets = list(targets)
        for source in sources:
            for target in targets:
                self.trace.record("partition", source=source, target=target, both=both_ways)
                self.link(source, target).block()
                if both_ways:
                    self.link(target, source).block()

    def heal(self) -> None:
        """End every partition."""
        self.trace.record("heal")
        for link in list(self._links.values()):
            if link.blocked:
                link.heal()

    def streams_of(self, host: str) -> list[StreamTransport]:
        """The open ends of streams on a host."""
        return [stream for stream in self.streams if stream.local[0] == host]

    def reset(self, stream: StreamTransport) -> None:
        """Break a connection: both ends learn of it, the other one when the news arrives."""
        self.trace.record("reset", at=str(stream))
        stream.out.mark(Mark.RESET)
        stream.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def vanish(self, host: str) -> None:
        """Take a host's power: its connections stay half open, nobody is told."""
        self.trace.record("vanish", host=host)
        for stream in self.streams_of(host):
            stream.vanish()
            self.streams.pop(stream)
            if stream.out.receiver not in self.streams:
                self._forget(stream)
        self._stop_listening(host)

    def kill(self, host: str) -> None:
        """End what runs on a host: its kernel goes on, and resets the connections."""
        self.trace.record("kill", host=host)
        for stream in self.streams_of(host):
            stream.die()
            self.streams.pop(stream)
        self._stop_listening(host)

    def _stop_listening(self, host: str) -> None:
        for listener in [one for one in self._listeners.values() if one.at[0] == host]:
            listener.close()
        for at in [at for at in self._datagrams if at[0] == host]:
            del self._datagrams[at]

    def listen(
        self, factory: ProtocolFactory, host: str, port: int, tls: ssl.SSLContext | None
    ) -> SimulatedListener:
        """Accept connections, as `chappe.edge.acceptor.Listen` asks; raises ConfigError."""
        if tls is not None:
            raise NotSimulated("listen: TLS is not simulated")
        at = (host, port or self._free_port(host))
        if at in self._listeners:
            raise ConfigError(f"cannot listen on {host}:{port}: the address is in use")
        self._listeners[at] = listener = SimulatedListener(self, factory, at)
        return listener

    def close_listener(self, listener: SimulatedListener) -> None:
        """Free a listener's port."""
        if self._listeners.get(listener.at) is listener:
            del self._listeners[listener.at]

    async def connect(
        self, factory: ProtocolFactory, host: str, port: int, local: Endpoint | None
    ) -> tuple[StreamTransport, asyncio.BaseProtocol]:
        """Connect a stream; raises ConnectionRefusedError or TimeoutError as a kernel would.

        Cancelling it gives the connection up.
        """
        source = local[0] if local else _host.get()
        here = (source, (local and local[1]) or self._free_port(source))
        listener = await self._shake_hands(here, (host, port))
        near = StreamTransport(self, here, (host, port), _context_of(source))
        far = StreamTransport(self, (host, port), here, listener.context)
        there, back = self.link(source, host), self.link(host, source)
        near.out = far.into = Pipe(self.loop, there, back, near, far)
        near.into = far.out = Pipe(self.loop, back, there, far, near)
        self.streams[near] = None
        self.trace.record("connect", at=str(near))
        protocol = factory()
        near.begin(protocol)
        near.out.mark(Mark.OPEN)
        return near, protocol

    def accept(self, stream: StreamTransport) -> None:
        """A connection has come to its listener, if that still listens."""
        listener = self._listeners.get(stream.local)
        if listener is None:
            stream.out.mark(Mark.RESET)
            stream.lost = True
            self.left(stream, None)
            return
        self.streams[stream] = None
        self.trace.record("accept", at=str(stream))
        stream.begin(listener.factory())

    def left(self, stream: StreamTransport, error: Exception | None) -> None:
        """One end of a stream is gone; with the second one its pipes go."""
        self.trace.record("lost", at=str(stream), error=type(error).__name__)
        self.streams.pop(stream, None)
        if stream.into.sender.lost:
            self._forget(stream)

    def _forget(self, stream: StreamTransport) -> None:
        stream.into.leave()
        stream.out.leave()

    async def open_datagram(
        self,
        factory: Callable[[], asyncio.DatagramProtocol],
        local: Endpoint | None,
        remote: Endpoint | None,
    ) -> tuple[DatagramTransport, asyncio.DatagramProtocol]:
        """Open a datagram endpoint; raises OSError when its port is taken."""
        host = local[0] if local else _host.get()
        at = (host, (local and local[1]) or self._free_port(host))
        if at in self._datagrams:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        protocol = factory()
        transport = DatagramTransport(self, protocol, at, remote, _context_of(host))
        self._datagrams[at] = transport
        protocol.connection_made(transport)
        return transport, protocol

    def close_datagram(self, transport: DatagramTransport) -> None:
        """Free a datagram endpoint's port."""
        if self._datagrams.get(transport.local) is transport:
            del self._datagrams[transport.local]

    def send_datagram(self, source: Endpoint, target: Endpoint, data: bytes) -> None:
        """Put a datagram on its way, if the link does not lose it."""
        link = self.link(source[0], target[0])
        if link.blocked or link.chance(link.faults.loss):
            self.trace.record("datagram.lost", source=str(source), target=str(target))
            return
        for _ in range(2 if link.chance(link.faults.duplicate) else 1):
            at = link.arrival(len(data), self.loop.time())
            self.loop.call_at(at, self._arrive_datagram, link, source, target, data)

    def _arrive_datagram(self, link: Link, source: Endpoint, target: Endpoint, data: bytes) -> None:
        endpoint = self._datagrams.get(target)
        if endpoint is None or link.blocked:
            return
        self.trace.record("datagram", source=str(source), target=str(target), data=data)
        self.loop.call_soon(endpoint.take, data, source, context=endpoint.context)

    async def _shake_hands(self, here: Endpoint, there: Endpoint) -> SimulatedListener:
        """Wait for a listener's answer, asking again while the way is blocked."""
        way, back = self.link(here[0], there[0]), self.link(there[0], here[0])
        deadline, retry_s = self.loop.time() + _CONNECT_TIMEOUT_S, _CONNECT_RETRY_S
        while True:
            await asyncio.sleep(way.latency_s())
            if not way.blocked:
                listener = self._listeners.get(there)
                refused = listener is None or way.chance(way.faults.refuse)
                await asyncio.sleep(back.latency_s())
                if not back.blocked:
                    break
            if self.loop.time() + retry_s > deadline:
                raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed {there}")
            await asyncio.sleep(retry_s)
            retry_s *= 2
        if refused or listener is None:
            self.trace.record("refused", source=str(here), target=str(there))
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {there}")
        return listener

    def _free_port(self, host: str) -> int:
        port = self._ports.get(host, _FIRST_FREE_PORT)
        if port > _PORT_MAX:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} has no free port left")
        self._ports[host] = port + 1
        return port


def _context_of(host: str) -> Context:
    context = copy_context()
    context.run(_host.set, host)
    return context
