"""A hub inside somebody else's process: `chappe.Hub`.

It joins endpoints of that process. With handlers it also serves sessions that are addressed by key,
mounted in a web application or on a port; with a bus, those of other processes, too.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Self

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.client import Client, ClientOptions, StreamDial
from chappe.client.connection import OnNotice
from chappe.clock import Clock, SystemClock
from chappe.edge.acceptor import AcceptCounters, Acceptor
from chappe.edge.asgi import Asgi, AsgiApp
from chappe.edge.memory import MemoryTransport
from chappe.edge.origin import Origins
from chappe.edge.tcp import TcpConnection
from chappe.edge.websocket.keyed import KeyedEdge
from chappe.endpoints.application import Application
from chappe.errors import ChappeError, CloseCode, ConfigError, ConnectionClosed
from chappe.events.counting import CountingRecorder
from chappe.events.recorder import Recorder
from chappe.hub.hub import Hub as HubCore
from chappe.hub.options import HubOptions
from chappe.ids import Snowflake
from chappe.keys.broker import Broker
from chappe.keys.bus import Alone, Bus
from chappe.keys.options import KeysOptions
from chappe.keys.serving import Serving
from chappe.keys.session import KeySession
from chappe.node.handlers import BlockingKeys, Handlers
from chappe.redis.place import parse_url
from chappe.rooms.options import ProbeOptions, RoomsOptions
from chappe.rooms.process import RoomsProcess
from chappe.store.memory import MemoryStore
from chappe.wire.keyed import MESSAGE
from chappe.wire.limits import Limits
from chappe.wire.rooms import RoleKind

# There is no link to try out.
_ROOMS = RoomsOptions(probe=ProbeOptions(every_s=0.0))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Hub(Handlers):
    """Joins endpoints of this process, without a port or a file.

        async with chappe.Hub() as hub:
            alice = await hub.connect("user:alice")
            bob = await hub.connect("user:bob")
            await alice.send("user:bob", "hello")

    Whoever holds the object may be anybody on it; nobody else can reach it, but for sessions with
    keys, where `asgi()` or `listen()` let them in.

    `bus` is the address of a Redis that joins it to hubs of other processes: `redis://...`,
    `redis+sentinel://...` or `redis+cluster://...`. `origins` are web pages of other hosts that may
    connect. `name` is what other brokers call this one; no two may have the same.
    """

    def __init__(
        self,
        bus: str | None = None,
        *,
        origins: Iterable[str] = (),
        name: str | None = None,
        keys: KeysOptions | None = None,
        options: HubOptions | None = None,
        limits: Limits | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Raises ConfigError for an address, an origin or a name that is none."""
        super().__init__()
        self._options = options or HubOptions()
        self._limits = limits or Limits()
        self._recorder = recorder or CountingRecorder()
        self._keys = keys or KeysOptions()
        self._bus = bus
        if bus is not None:
            parse_url(bus, "bus", frozenset())
        self._name = _checked_name(name or _own_name())
        # Of a process that forks after this, each part is another broker.
        self._named_in = None if name else os.getpid()
        self._origins = Origins(origins)
        self._hub: HubCore | None = None
        self._serving: Serving | None = None
        self._starting: asyncio.Task[None] | None = None
        self._stopped = False
        self._listeners: list[tuple[Acceptor, KeyedEdge]] = []
        self.blocking = BlockingKeys(self)

    async def start(self) -> Self:
        """Begin on the running event loop; raises ConfigError for a bus that lets nobody in."""
        self._stopped = False
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        starting = self._starting
        try:
            await asyncio.shield(starting)
        except ChappeError:
            if self._starting is starting:
                self._starting = None
            raise
        return self

    async def _start(self) -> None:
        try:
            await self._begin(asyncio.get_running_loop())
        except BaseException:
            await self._stop_core()
            raise

    async def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        clock = SystemClock()
        if self._named_in not in (None, os.getpid()):
            self._name, self._named_in = _own_name(), os.getpid()
        self._hub = HubCore(
            loop=loop,
            clock=clock,
            ids=Snowflake(0, clock.wall_ms),
            entropy=os.urandom,
            authenticator=DevAuthenticator(TokenAuthenticator([], clock)),
            recorder=self._recorder,
            options=self._options,
            limits=self._limits,
        )
        self._application = Application.embedded(self._hub, loop, _ROOMS)
        self._rooms = await self._start_rooms(clock)
        self._hub.start()
        bus: Bus = Alone()
        if self._bus is not None:
            # Redis, when somebody asks for it: it is an extra.
            from chappe.cluster.bus.redis import RedisBus  # noqa: PLC0415

            rng = Random()  # noqa: S311, jitter only
            bus = RedisBus(self._bus, self._name, self._keys, clock=clock, rng=rng)
        broker = Broker(self._hub, bus)
        await broker.start()
        self.blocking.loop = loop
        threads = self._threads = ThreadPoolExecutor(self._keys.threads_max, "chappe-handler")
        self._serving = Serving(
            broker,
            self.hooks,
            self._keys,
            self._limits.message_bytes_max,
            partial(loop.run_in_executor, threads),
        )

    async def _start_rooms(self, clock: Clock) -> RoomsProcess:
        """All roles of rooms, joined to each other and to the hub's sessions."""
        lobby = self._application.lobby
        rooms = RoomsProcess(
            options=_ROOMS,
            name="hub",
            clock=clock,
            loop=asyncio.get_running_loop(),
            entropy=os.urandom,
            rng=Random(),  # noqa: S311, to take turns only
            recorder=self._recorder,
            store=MemoryStore(),
            coordination=None,
            secret=None,
            cluster="hub",
            roles=frozenset(RoleKind),
            audience=lobby,
            epoch=1,
            lease_s=1.0,
        )
        await rooms.start()
        assert rooms.publisher is not None
        lobby.open(rooms.publisher, rooms.gateway)
        return rooms

    async def stop(self) -> None:
        """Close every session; clients see that the hub went away."""
        self._stopped = True
        starting = self._starting
        if starting is not None:
            await asyncio.wait([starting])
        listeners, self._listeners = self._listeners, []
        for acceptor, _ in listeners:
            acceptor.close()
        serving = self._serving
        if serving is not None:
            # What hooks say when their sessions end still goes to the others.
            await serving.stop()
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._serving = None
            await serving.broker.stop()
        for _, edge in listeners:
            await edge.stop()
        if self._starting is starting:
            self._starting = None
        await self._stop_core()

    async def _stop_core(self) -> None:
        hub, self._hub = self._hub, None
        if hub is not None:
            hub.stop()
            self._application.stop()
            await self._rooms.stop()

    async def serving(self) -> Serving:
        """What serves sessions with keys, started if it never was."""
        serving = self._serving
        if serving is None and not self._stopped:
            await self.start()
            serving = self._serving
        if serving is None:
            raise ConnectionClosed(CloseCode.GOING_AWAY, "the hub stopped")
        return serving

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Start and stop with a web application: `FastAPI(lifespan=hub.lifespan)`."""
        async with self:
            yield

    def asgi(self, inner: Asgi | None = None, *, path: str = "") -> AsgiApp:
        """An ASGI application: WebSockets below `path` are sessions, all else is `inner`'s."""
        return AsgiApp(self, self._origins, inner, path)

    async def listen(
        self, port: int, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> int:
        """Serve sessions on a port of one's own; which one, should it be 0. Several processes may
        share a port. Raises ConfigError when it cannot be had."""
        serving, loop = await self.serving(), asyncio.get_running_loop()
        assert self._hub is not None
        edge = KeyedEdge(self._hub, serving, self._origins, loop=loop)
        acceptor = Acceptor(loop, edge.protocol, host, port, tls, AcceptCounters(), shared=True)
        self._listeners.append((acceptor, edge))
        return acceptor.port

    async def send(self, key: str | int, data: Any, *, type: str = MESSAGE) -> int:
        """Send by key to all sessions that have it, in any process; how many took it.

        Bytes are a binary message, anything else is text: `{"type", "key", "data"}`. Raises
        BadRequest for what cannot be sent, and BusAway (`reached`: how many took it here) when
        other processes cannot be asked now.
        """
        return await (await self.serving()).broker.send(key, data, type=type)

    async def subscribe(self, session: KeySession, key: str | int) -> bool:
        """Give a session a key: all that is sent by it from then on, it gets.

        False while the bus is away: until it is back, it gets what is sent in this process.
        """
        return await (await self.serving()).broker.subscribe(session, key)

    async def unsubscribe(self, session: KeySession, key: str | int) -> bool:
        """Take a key from a session; whether it had it."""
        return await (await self.serving()).broker.unsubscribe(session, key)

    async def close(
        self, key: str | int, *, code: int = CloseCode.NORMAL, reason: str = "closed by key"
    ) -> int:
        """Close all sessions that have a key, in any process; how many there were."""
        return await (await self.serving()).broker.close(key, code, reason)

    def counts(self) -> dict[str, int]:
        """Sessions and keys of this process, and what has happened so far."""
        return {} if self._serving is None else self._serving.counts()

    async def connect(
        self,
        as_: str,
        *,
        app: str | None = None,
        options: ClientOptions | None = None,
        on_notice: OnNotice | None = None,
    ) -> Client:
        """Connect an endpoint; raises what its hello is answered with."""
        client = Client(
            StreamDial(self._open, 2 * self._limits.message_bytes_max),
            rng=Random(),  # noqa: S311, jitter only
            as_=as_,
            app=app,
            options=options,
            on_notice=on_notice,
        )
        return await client.open()

    async def _open(
        self, factory: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        if self._hub is None:
            raise ConnectionClosed(CloseCode.NORMAL, "the hub is not running")
        protocol = factory()
        here, _ = MemoryTransport.join(
            asyncio.get_running_loop(), protocol, TcpConnection(self._hub, "memory")
        )
        return here, protocol

    @property
    def name(self) -> str:
        """What other brokers call this one."""
        return self._name

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()


def _own_name() -> str:
    """The machine, the process, and something that no other life of it has."""
    machine = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname()[:64])
    return f"{machine or 'hub'}-{os.getpid()}-{os.urandom(4).hex()}"


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"name: {name!r} must be letters, digits, . - and _, 128 at most")
    return name
