"""Growth: how many messages rooms carry with twice and four times the partitions, simulated.

Everything but the machines is real. Each simulated process has one core: whatever message it
handles keeps it busy for the same fixed time, and what comes meanwhile waits as in a socket's
buffer, where the newest is dropped when it is full. Proxies and gateways are many enough, as both
are added without anybody being told, and more is published than all brokers together can carry: how
much arrives is what brokers carry.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from benchmarks.bench import Bench
from benchmarks.chart import GROWTH
from benchmarks.figure import Promise, Table, figure
from chappe.events.counting import CountingRecorder
from chappe.ids import Snowflake
from chappe.message import Message
from chappe.registry.memory import MemoryRegistry
from chappe.rooms.doubling import lay_out
from chappe.rooms.options import ProbeOptions, RoomsOptions
from chappe.rooms.partition import room_number
from chappe.rooms.paths import paths_of
from chappe.rooms.process import RoomsProcess
from chappe.rooms.role import Source
from chappe.simulation import Simulation
from chappe.store.memory import MemoryStore
from chappe.wire.rooms import Carry, Deliver, RoleKind, RoomOp, Submit

_APP = "default"
_SEED = 1
_PARTITIONS = (1, 2, 4)
# What one process handles in a second, and how much waits for it.
_CAPACITY = 200
_WAITING_MAX = 50
# Of gateways, who publish as well, and of proxies.
_EDGES = 8
_ROOMS = 64
# More than the largest can carry, and less than proxies and gateways can.
_OFFERED_PER_S = 1200
_WARM_S = 2.0
_SECONDS = 10.0
_LOOK_S = 0.01
_STEPS_MAX = 20_000_000
_OPTIONS = RoomsOptions(port=7404, probe=ProbeOptions(every_s=0))
_HUB = frozenset({RoleKind.PUBLISHER, RoleKind.GATEWAY})


class _OneCore(RoomsProcess):
    """A process that is busy for a while with each message."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._waiting: deque[tuple[RoomOp, Source]] = deque()
        self._busy = False

    def _receive(self, data: bytes, source: Any) -> None:
        now = self._clock.monotonic()
        for op, who in self.post.take(data, source, now):
            if not isinstance(op, Submit | Carry | Deliver):
                self.dispatch.hand(op, who, now)
            elif len(self._waiting) < _WAITING_MAX:
                self._waiting.append((op, who))
        self._wake()
        if not self._busy:
            self._go_on()

    def _go_on(self) -> None:
        self._busy = bool(self._waiting)
        if self._busy:
            self._loop.call_later(1 / _CAPACITY, self._handle)

    def _handle(self) -> None:
        op, who = self._waiting.popleft()
        self.dispatch.hand(op, who, self._clock.monotonic())
        self._wake()
        self._go_on()


class _Hall:
    """The members of one gateway: one in each of its rooms."""

    def __init__(self, rooms: Sequence[str]) -> None:
        self.rooms = rooms
        self.got = 0

    def count(self, app: str, room: str) -> int:
        return int(room in self.rooms)

    def who(self, app: str, room: str, limit: int) -> list[str]:
        return []

    def deliver(self, app: str, message: Message, came_from: str) -> None:
        self.got += 1


class _World:
    """Processes on machines of their own, brokers of so many partitions among them."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._simulation = Simulation(_SEED, steps_max=_STEPS_MAX)
        self._registry, self._store = MemoryRegistry(), MemoryStore()
        self._processes: list[_OneCore] = []
        self._halls = [_Hall([str(n) for n in range(at, _ROOMS, _EDGES)]) for at in range(_EDGES)]

    def run(self, seconds: float) -> float:
        """Let it go on for so long; messages that arrived in a second."""
        return self._simulation.run(self._live(seconds))

    async def _live(self, seconds: float) -> float:
        tool = self._registry.open("tool").coordination
        assert tool is not None
        await lay_out(tool, paths_of(_OPTIONS).brokers, self._partitions)
        for number in range(self._partitions):
            self._add(f"b{number}", frozenset({RoleKind.BROKER}), partition=number)
        self._add("r", frozenset({RoleKind.ROUTER}))
        for number in range(_EDGES):
            self._add(f"p{number}", frozenset({RoleKind.PROXY}))
        hubs = [self._add(f"g{n}", _HUB, hall) for n, hall in enumerate(self._halls)]
        await asyncio.gather(*(self._on(one, one.start()) for one in self._processes))
        await asyncio.gather(*(one.settled() for one in self._processes))
        await asyncio.gather(
            *(
                self._on(hub, self._join(hub, hall))
                for hub, hall in zip(hubs, self._halls, strict=True)
            )
        )
        talk = [self._on(hub, self._publish(hub, n)) for n, hub in enumerate(hubs)]
        await asyncio.sleep(_WARM_S)
        before = self._got()
        await asyncio.sleep(seconds)
        arrived = self._got() - before
        for task in talk:
            task.cancel()
        return arrived / seconds

    def _got(self) -> int:
        return sum(hall.got for hall in self._halls)

    def _add(
        self,
        name: str,
        roles: frozenset[RoleKind],
        hall: _Hall | None = None,
        partition: int | None = None,
    ) -> _OneCore:
        simulation = self._simulation
        process = _OneCore(
            options=msgspec.structs.replace(_OPTIONS, host=name, partition=partition),
            name=name,
            clock=simulation.clock,
            loop=simulation.loop,
            entropy=simulation.entropy,
            rng=simulation.stream(name),
            recorder=CountingRecorder(),
            store=self._store,
            coordination=self._registry.open(name).coordination,
            secret=b"a secret of simulated processes.",
            cluster="simulated",
            roles=roles,
            audience=hall,
            epoch=len(self._processes) + 1,
            lease_s=self._registry.options.lease_s,
        )
        self._processes.append(process)
        return process

    def _on(self, process: _OneCore, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._simulation.network.on_host(process.name, work)

    async def _join(self, process: _OneCore, hall: _Hall) -> None:
        gateway = process.gateway
        assert gateway is not None
        for room in hall.rooms:
            gateway.joined(_APP, room, self._simulation.clock.monotonic())
        while not all(gateway.confirmed(_APP, room) for room in hall.rooms):
            await asyncio.sleep(_LOOK_S)

    async def _publish(self, process: _OneCore, number: int) -> None:
        """Say something to one room after the other, for ever."""
        clock, publisher = self._simulation.clock, process.publisher
        ids = Snowflake(number, clock.wall_ms)
        assert publisher is not None
        for turn in itertools.count(number):
            room = str(turn % _ROOMS)
            message = Message(ids.next(), "user:a", f"room:{room}", clock.wall_ms(), b"x" * 20)
            publisher.publish(_APP, message, room_number(room), False, clock.monotonic())
            await asyncio.sleep(_EDGES / _OFFERED_PER_S)


class RoomGrowth:
    """Measures what arrives, with one partition and with more."""

    name = "rooms-growth"

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds

    def steps(self, bench: Bench) -> int:
        return len(_PARTITIONS)

    def measure(self, bench: Bench) -> list[Table]:
        rates = {}
        for partitions in _PARTITIONS:
            bench.advance(f"rooms: {partitions} partitions, simulated")
            rates[partitions] = _World(partitions).run(1.0 if bench.quick else self._seconds)
        return [_tabulate(rates)]


def _tabulate(rates: dict[int, float]) -> Table:
    table = Table(
        "Rooms: messages carried by more partitions, simulated",
        f"Every process handles {_CAPACITY} messages a second at most, and brokers are offered "
        f"{_OFFERED_PER_S}, to {_ROOMS} rooms; one broker for each partition, {_EDGES} proxies and "
        f"{_EDGES} gateways. Messages a second that arrived at members, and how many times as many "
        "as with one partition.",
        ["partitions", "messages a second", "ratio"],
        bars={f"{partitions} partitions": rate for partitions, rate in rates.items()},
        chart=GROWTH,
    )
    alone = rates[_PARTITIONS[0]]
    for partitions, rate in rates.items():
        table.rows.append([str(partitions), f"{rate:,.0f}", f"{rate / alone:.2f}"])
        if rate is not alone:
            what = (
                f"messages carried by {partitions} partitions, divided by {partitions} times one,"
            )
            share = figure([rate / alone / partitions])
            table.verdicts.append(Promise(what, 0.95).judge(share))
    return table
