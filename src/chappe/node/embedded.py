"""A hub inside somebody else's process: `chappe.Hub`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Self

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.client import Client, ClientOptions, StreamDial
from chappe.client.connection import OnNotice
from chappe.clock import Clock, SystemClock
from chappe.edge.memory import MemoryTransport
from chappe.edge.tcp import TcpConnection
from chappe.endpoints.application import Application
from chappe.errors import CloseCode, ConnectionClosed
from chappe.events.counting import CountingRecorder
from chappe.events.recorder import Recorder
from chappe.hub.hub import Hub as HubCore
from chappe.hub.options import HubOptions
from chappe.ids import Snowflake
from chappe.rooms.options import ProbeOptions, RoomsOptions
from chappe.rooms.process import RoomsProcess
from chappe.store.memory import MemoryStore
from chappe.wire.limits import Limits
from chappe.wire.rooms import RoleKind

# There is no link to try out.
_ROOMS = RoomsOptions(probe=ProbeOptions(every_s=0.0))


class Hub:
    """Joins endpoints of this process, without a port or a file.

        async with chappe.Hub() as hub:
            alice = await hub.connect("user:alice")
            bob = await hub.connect("user:bob")
            await alice.send("user:bob", "hello")

    Whoever holds the object may be anybody on it; nobody else can reach it.
    """

    def __init__(
        self,
        *,
        options: HubOptions | None = None,
        limits: Limits | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._options = options or HubOptions()
        self._limits = limits or Limits()
        self._recorder = recorder or CountingRecorder()
        self._hub: HubCore | None = None

    async def start(self) -> Self:
        """Begin on the running event loop."""
        clock = SystemClock()
        self._hub = HubCore(
            loop=asyncio.get_running_loop(),
            clock=clock,
            ids=Snowflake(0, clock.wall_ms),
            entropy=os.urandom,
            authenticator=DevAuthenticator(TokenAuthenticator([], clock)),
            recorder=self._recorder,
            options=self._options,
            limits=self._limits,
        )
        self._application = Application.embedded(self._hub, asyncio.get_running_loop(), _ROOMS)
        self._rooms = await self._start_rooms(clock)
        self._hub.start()
        return self

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
        if self._hub is not None:
            hub, self._hub = self._hub, None
            hub.stop()
            self._application.stop()
            await self._rooms.stop()

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

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
