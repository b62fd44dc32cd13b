"""A simulated machine with roles of rooms, and one life of the process on it."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from chappe.errors import Unreachable
from chappe.events.counting import CountingRecorder
from chappe.ids import Snowflake
from chappe.message import Message
from chappe.registry.memory import MemoryLedger, MemoryRegistry
from chappe.registry.options import RegistryOptions
from chappe.rooms.options import RoomsOptions
from chappe.rooms.partition import room_number
from chappe.rooms.process import RoomsProcess
from chappe.rooms.role import Source
from chappe.simulation import Process, SimulatedClock
from chappe.wire.rooms import Announce, Carry, Deliver, Login, Pass, RoleKind, RoomOp, Submit
from tests.simulation.room_truth import Crowd, Key, Publication

if TYPE_CHECKING:
    from tests.simulation.room_world import RoomWorld

SECRET = b"rooms in the simulation share it"
HUB = frozenset({RoleKind.PUBLISHER, RoleKind.GATEWAY})
PROXY = frozenset({RoleKind.PROXY})
BROKER = frozenset({RoleKind.BROKER})
ROUTER = frozenset({RoleKind.ROUTER})
ALL = HUB | PROXY | BROKER | ROUTER


class SlowLedger(MemoryLedger):
    """A registry that takes its time."""

    delay_s: tuple[float, float] = (0.0, 0.0)
    random: Random

    async def _arrive(self, session: str | None = None) -> None:
        least, most = self.delay_s
        if most:
            await asyncio.sleep(self.random.uniform(least, most))
        await super()._arrive(session)


class SlowRegistry(MemoryRegistry):
    """The one registry of a world: requests take a while, and answers are not of one time."""

    def __init__(self, options: RegistryOptions, random: Random) -> None:
        super().__init__(options)
        self._random = random
        self.delay_s = (0.0, 0.0)

    def ledger(self, name: str) -> MemoryLedger:
        self.cut(name)
        ledger = SlowLedger(self, self._state, name)
        ledger.delay_s, ledger.random = self.delay_s, self._random
        self._ledgers[name] = ledger
        return ledger

    def slow_down(self, delay_s: tuple[float, float]) -> None:
        """Let every request take so long from now on."""
        self.delay_s = delay_s
        for ledger in self._ledgers.values():
            assert isinstance(ledger, SlowLedger)
            ledger.delay_s = delay_s


# What carries messages, and what tells who is where. Beats are neither.
Kinds = tuple[type[RoomOp], ...]
MESSAGES: Kinds = (Submit, Carry, Deliver)
LOGINS: Kinds = (Announce, Login, Pass)


class Machine(NamedTuple):
    """Where a process runs, again and again."""

    name: str
    roles: frozenset[RoleKind]
    options: RoomsOptions
    clock: SimulatedClock
    number: int


class RoomNode:
    """One life of a process: from its start to its end, or its crash."""

    def __init__(self, world: RoomWorld, machine: Machine, run: int) -> None:
        self.world = world
        self.machine = machine
        self.name = machine.name
        self.life = f"{machine.name}#{run}"
        self.process = Process(self.life)
        self.crashed = False
        # Whether it has all that it needs to be told what to do.
        self.up = False
        # What it does not hear of all that comes.
        self.deaf_to: Counter[type[RoomOp]] = Counter()
        self.crowd = Crowd(world.truth, self.life)
        self.ids = Snowflake(machine.number, machine.clock.wall_ms)
        self.registry = world.registry.open(machine.name)
        assert self.registry.coordination is not None
        self.rooms = RoomsProcess(
            options=machine.options,
            name=machine.name,
            clock=machine.clock,
            loop=world.loop,
            entropy=world.simulation.entropy,
            rng=world.simulation.stream(f"process {self.life}"),
            recorder=CountingRecorder(),
            store=world.store,
            coordination=self.registry.coordination,
            secret=SECRET,
            cluster="simulated",
            roles=machine.roles,
            audience=self.crowd,
            epoch=machine.clock.wall_ms(),
            lease_s=world.registry.options.lease_s,
        )

    @property
    def has_clients(self) -> bool:
        """Whether people can come here."""
        return self.rooms.gateway is not None

    @property
    def epoch(self) -> int:
        """Of its gateway."""
        gateway = self.rooms.gateway
        assert gateway is not None
        return gateway.card.epoch

    async def start(self) -> None:
        """Begin, and return when it has begun; it may not be ready by far."""
        await self.rooms.start()
        self._lose_some()
        if self.has_clients:
            self._watch_deliveries()
            gateway = self.rooms.gateway
            assert gateway is not None
            gateway.on_confirmed = self.crowd.confirmed
            self.world.truth.crowds.append(self.crowd)
        self.up = True

    def _lose_some(self) -> None:
        """Lose what it is deaf to, after it was taken from the wire."""
        ways = self.rooms.dispatch._ways

        def lose(op: Any, source: Source, now: float, *, hand: Any) -> None:
            if not self.deaf_to[type(op)]:
                hand(op, source, now)

        for kind in (*MESSAGES, *LOGINS):
            ways[kind] = partial(lose, hand=ways[kind])

    def _watch_deliveries(self) -> None:
        """Let the crowd know by which way comes what it is given."""
        ways = self.rooms.dispatch._ways
        hand, crowd = ways[Deliver], self.crowd

        def hand_and_tell(op: Any, source: Source, now: float) -> None:
            crowd.way = (source.name, op.proxy, op.broker)
            crowd.copies[op.message.id] += not op.reliable
            hand(op, source, now)

        ways[Deliver] = hand_and_tell

    async def stop(self) -> None:
        """End with a goodbye, as a real process does."""
        self.up = False
        await self.rooms.stop()
        await self.registry.close()

    def join(self, client: int, key: Key) -> None:
        """A client comes to a room."""
        gateway = self.rooms.gateway
        assert gateway is not None
        self.crowd.join(client, key)
        if gateway.joined(*key, self.world.loop.time()):
            self.crowd.confirmed(*key)

    def leave(self, client: int, key: Key) -> None:
        """A client goes."""
        gateway = self.rooms.gateway
        assert gateway is not None
        self.crowd.leave(client, key)
        gateway.left(*key, self.world.loop.time())

    def publish(self, key: Key, *, reliable: bool = False, size: int = 20) -> Publication | None:
        """A client says something to a room; None if no proxy could be found."""
        publisher, truth, now = self.rooms.publisher, self.world.truth, self.world.loop.time()
        assert publisher is not None
        ts_ms = self.ids.tick()
        app, room = key
        message = Message(self.ids.next(), "user:0", f"room:{room}", ts_ms, b"x" * size)
        try:
            publisher.publish(app, message, room_number(room), reliable, now)
        except Unreachable:
            truth.refused += 1
            return None
        publication = Publication(message.id, app, room, self.life, reliable, now)
        truth.publish(publication)
        return publication


def options_of(base: RoomsOptions, name: str, **own: Any) -> RoomsOptions:
    """The options of one machine."""
    return msgspec.structs.replace(base, host=name, port=7404, **own)
