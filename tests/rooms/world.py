"""Several processes that take part in rooms, in one loop: over real sockets, or simulated ones."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from random import Random
from typing import Any

import msgspec

from chappe.clock import Clock, SystemClock
from chappe.events.counting import CountingRecorder
from chappe.ids import Snowflake
from chappe.message import Message
from chappe.registry.memory import MemoryRegistry
from chappe.registry.options import RegistryOptions
from chappe.registry.registry import Registry
from chappe.rooms.options import ProbeOptions, RoomsOptions
from chappe.rooms.partition import room_number
from chappe.rooms.process import RoomsProcess
from chappe.store.memory import MemoryStore
from chappe.store.store import Store
from chappe.wire.rooms import RoleKind

APP = "default"
SECRET = b"s" * 32
PROXY, BROKER, ROUTER = RoleKind.PROXY, RoleKind.BROKER, RoleKind.ROUTER
HUB = frozenset({RoleKind.PUBLISHER, RoleKind.GATEWAY})
ALL = HUB | {PROXY, BROKER, ROUTER}
WAIT_S = 20.0
# Quick, so that what takes two beats takes a tenth of a second.
OPTIONS = RoomsOptions(
    port=0, beat_s=0.2, confirm_s=2.0, refresh_s=5.0, probe=ProbeOptions(every_s=0)
)


class Hall:
    """The members of one gateway, and what they got."""

    def __init__(self) -> None:
        self.members: Counter[tuple[str, str]] = Counter()
        self.got: list[tuple[str, int]] = []
        self.news = asyncio.Event()

    def count(self, app: str, room: str) -> int:
        return self.members[app, room]

    def who(self, app: str, room: str, limit: int) -> list[str]:
        return [f"user:{number}" for number in range(self.members[app, room])][:limit]

    def deliver(self, app: str, message: Message, came_from: str) -> None:
        self.got.append((message.to.removeprefix("room:"), message.id))
        self.news.set()

    def ids(self, room: str) -> list[int]:
        """What came to a room, in order."""
        return [number for name, number in self.got if name == room]


class Node:
    """A process and its members."""

    def __init__(self, world: World, process: RoomsProcess, hall: Hall, registry: Registry) -> None:
        self.world = world
        self.process = process
        self.hall = hall
        self.registry = registry
        self.name = process.name
        self.ids = Snowflake(next(world.numbers), world.clock.wall_ms)

    async def join(self, *rooms: str) -> None:
        """Have one more member in each, and wait until all brokers know."""
        gateway = self.process.gateway
        assert gateway is not None
        for room in rooms:
            self.hall.members[APP, room] += 1
            gateway.joined(APP, room, self.world.clock.monotonic())
        async with asyncio.timeout(WAIT_S):
            while not all(gateway.confirmed(APP, room) for room in rooms):
                await asyncio.sleep(0.005)

    def leave(self, room: str) -> None:
        gateway = self.process.gateway
        assert gateway is not None
        self.hall.members[APP, room] -= 1
        gateway.left(APP, room, self.world.clock.monotonic())

    def publish(self, room: str, *, reliable: bool = False, payload: bytes = b'"x"') -> int:
        """Send a message, and give its id; raises Unreachable."""
        publisher = self.process.publisher
        assert publisher is not None
        now = self.world.clock.monotonic()
        message = Message(
            self.ids.next(), "user:ann", f"room:{room}", self.world.clock.wall_ms(), payload
        )
        publisher.publish(APP, message, room_number(room), reliable, now)
        return message.id

    async def count(self, room: str, limit: int = 0) -> tuple[int, list[str] | None]:
        """Ask how many are in a room, and who."""
        gateway = self.process.gateway
        assert gateway is not None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        now = self.world.clock.monotonic()
        gateway.ask(APP, room, limit, now, lambda *told: answer.set_result(told))
        async with asyncio.timeout(WAIT_S):
            members, who = await answer
        return members, who

    async def hears(self, room: str, ids: list[int]) -> None:
        """Wait until all of these came."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not set(ids) <= set(self.hall.ids(room)):
                    self.hall.news.clear()
                    await self.hall.news.wait()
        except TimeoutError:
            missing = set(ids) - set(self.hall.ids(room))
            raise AssertionError(f"{self.name}: {len(missing)} of {len(ids)} missing") from None

    def kill(self) -> None:
        """Be gone without a word."""
        process = self.process
        process._stopped = True
        process._unarm()
        assert process.port is not None
        process.port.close()
        self.world.registry.cut(self.name)


class World:
    """A registry, a store, and processes on this machine."""

    def __init__(
        self,
        options: RoomsOptions = OPTIONS,
        *,
        clock: Clock | None = None,
        lease_s: float = 1.5,
        store: Store | None = None,
        registry: Any = None,
    ) -> None:
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self.lease_s = lease_s
        self.registry = registry or MemoryRegistry(
            RegistryOptions(lease_s=lease_s, poll_s=5.0, timeout_s=lease_s / 3)
        )
        self.store: Store = store or MemoryStore()
        self.nodes: list[Node] = []
        self.numbers = itertools.count(1)
        self._random = Random(7)
        self.recorder = CountingRecorder()

    async def start(
        self,
        name: str,
        roles: frozenset[RoleKind],
        *,
        alone: bool = False,
        secret: bytes = SECRET,
        **changes: Any,
    ) -> Node:
        """Start a process; it is not waited for that it has settled, unless it is alone."""
        registry = self.registry.open(name)
        hall = Hall()
        process = RoomsProcess(
            options=msgspec.structs.replace(self.options, **changes),
            name=name,
            clock=self.clock,
            loop=asyncio.get_running_loop(),
            entropy=self._random.randbytes,
            rng=Random(self._random.random()),
            recorder=self.recorder,
            store=self.store,
            coordination=None if alone else registry.coordination,
            secret=None if alone else secret,
            cluster="test",
            roles=roles,
            audience=hall if RoleKind.GATEWAY in roles else None,
            epoch=next(self.numbers),
            lease_s=self.lease_s,
        )
        await process.start()
        node = Node(self, process, hall, registry)
        self.nodes.append(node)
        return node

    async def settled(self, *nodes: Node) -> None:
        """Wait until processes work."""
        async with asyncio.timeout(WAIT_S):
            for node in nodes or self.nodes:
                await node.process.settled()

    async def _end(self, process: RoomsProcess) -> None:
        if not process._stopped:
            await process.stop()
            return
        await process.lookout.stop()
        await process.crew.stop()
        await process.writer.stop(0)

    async def stop(self) -> None:
        """Stop whoever was not killed, all at once: each says for two beats that it ends."""
        await asyncio.gather(*(self._end(node.process) for node in self.nodes))
        for node in self.nodes:
            if isinstance(self.registry, MemoryRegistry):
                self.registry.heal(node.name)
                await node.registry.close()
