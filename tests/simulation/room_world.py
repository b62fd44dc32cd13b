"""Rooms on a bad day, then on a good one: processes, clients and bad luck, drawn from one seed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from random import Random
from typing import Any

import msgspec
from structlog.testing import capture_logs

from chappe.errors import ClusterError, StorageError
from chappe.registry.enrolment import TRIES
from chappe.registry.options import RegistryOptions
from chappe.rooms.doubling import NotDoubled, Progress, Step, doubling_of, lay_out
from chappe.rooms.options import ProbeOptions, RoomsOptions
from chappe.rooms.paths import paths_of
from chappe.simulation import SimulatedClock, Simulation
from chappe.store.memory import MemoryStore
from tests.simulation.room_calm import GoodDay
from tests.simulation.room_chaos import Chaos, draw_faults
from tests.simulation.room_layout import Layout, Planned, draw_layout
from tests.simulation.room_node import Machine, RoomNode, SlowRegistry, options_of
from tests.simulation.room_people import live
from tests.simulation.room_truth import Truth

TROUBLE_S = 20.0
REGISTRY = RegistryOptions(lease_s=6.0, poll_s=2.0, timeout_s=2.0)
OPTIONS = RoomsOptions(
    refresh_s=4.0,
    confirm_s=3.0,
    load_timeout_s=5.0,
    audit_s=4.0,
    probe=ProbeOptions(every_s=0.0),
)
# The longest time between two HELLOs.
_HELLO_S = 1.0
# The longest time between two announcements that are not confirmed.
_AGAIN_S = 2.0
# A request to the registry that was under way fails, and is made again; who was forgotten finds out
# when it renews its session, and others when they look.
_SEATED_S = REGISTRY.timeout_s + REGISTRY.lease_s / TRIES + REGISTRY.lease_s / 3 + REGISTRY.poll_s
# A broker waits for routers that are not there any more, and an independent router for others.
_OPEN_S = OPTIONS.confirm_s + OPTIONS.beat_s + OPTIONS.pulse_s
# Others find out that it runs, by a datagram for which they need a ticket.
_HEARD_S = REGISTRY.poll_s + _HELLO_S + 2 * OPTIONS.pulse_s
# Somebody is still taken to be alive who is not.
_SILENT_S = 2 * OPTIONS.beat_s
# What nobody remembers is told anew.
_TOLD_S = OPTIONS.refresh_s + _AGAIN_S
# After that time from the end of all trouble every member receives every message.
HEALED_S = _SEATED_S + _OPEN_S + _HEARD_S + _SILENT_S + _TOLD_S
# After that time tables hold nothing else any more: what nobody tells of expires, which is seen
# when its part of the table is swept. Of the store's rows that is seen by an audit; one before it
# may have written what nobody told of any more.
REST_S = HEALED_S + max(
    1.5 * OPTIONS.expire_s - OPTIONS.refresh_s, OPTIONS.expire_s + 2 * OPTIONS.audit_s - _TOLD_S
)
_LOOKS = 8
_LOOK_S = 0.37
# Ten times what a run takes: more is going round in circles.
STEPS_MAX = 4_000_000
# As long as a doubling may take on a good day: a broker opens, proxies confirm, all clean up.
DOUBLED_S = _SEATED_S + _OPEN_S + 2 * OPTIONS.confirm_s + _HEARD_S


class FailingStore(MemoryStore):
    """A store that fails when told to."""

    away = False

    async def _table(self, name: str) -> dict[str, bytes]:
        entries = await super()._table(name)
        if self.away:
            raise StorageError("the store is away")
        return entries


class RoomWorld:
    """Machines with processes, clients of gateways, and bad luck."""

    def __init__(self, seed: int, *, layout: Layout | None = None) -> None:
        self.simulation = Simulation(seed, steps_max=STEPS_MAX)
        self.loop = self.simulation.loop
        self.network = self.simulation.network
        self.trace = self.simulation.trace
        self.random: Random = self.simulation.stream("rooms")
        self.layout = layout or draw_layout(self.simulation.stream("layout"))
        self.options = msgspec.structs.replace(
            OPTIONS, independent_routers=self.layout.router_partitions > 0
        )
        self.truth = Truth(self.loop, self.trace)
        self.store = FailingStore()
        self.machines: dict[str, Machine] = {}
        # The newest life on each machine that has one.
        self.nodes: dict[str, RoomNode] = {}
        self.lives = 0
        self.quiet = False
        self.healed_at = 0.0
        # How long it took after all trouble until nothing was lost any more.
        self.recovered_s = 0.0
        # From when to when datagrams overtook each other, and nothing else was wrong.
        self.mixed_up = (0.0, 0.0)
        # Of brokers, and of routers, whether somebody began to double them.
        self.doubling = {False: False, True: False}
        # What gateways left out, by cause, when all was over.
        self.drops: Counter[str] = Counter()
        # Told by whoever knows how tables should look like: what is wrong with them.
        self.differences: Callable[[RoomWorld], list[str]] = lambda world: []

    def run(self) -> RoomWorld:
        with ExitStack() as stack:
            stack.enter_context(capture_logs())
            self.simulation.run(self._live())
        return self

    async def _live(self) -> None:
        await self.begin()
        await self._suffer()
        await GoodDay(self).run()

    async def begin(self) -> None:
        """Start all processes, and wait until they are ready."""
        self.registry = SlowRegistry(REGISTRY, self.simulation.stream("registry"))
        self.tool = self.registry.open("tool").coordination
        assert self.tool is not None
        paths = paths_of(self.options)
        await lay_out(self.tool, paths.brokers, self.layout.partitions)
        if self.layout.router_partitions:
            await lay_out(self.tool, paths.independent, self.layout.router_partitions)
        for planned in self.layout.machines():
            self.add(planned)
        await asyncio.gather(*(self.start(name) for name in self.machines))
        async with asyncio.timeout(HEALED_S):
            await asyncio.gather(*(node.rooms.settled() for node in self.nodes.values()))
        await asyncio.sleep(_HEARD_S)

    def add(self, planned: Planned) -> None:
        """Put up a machine, without a process."""
        # Clocks differ a little from machine to machine.
        clock = SimulatedClock(self.loop, offset_ms=self.random.uniform(-300, 300))
        options = options_of(self.options, planned.name, **planned.own)
        number = len(self.machines)
        self.machines[planned.name] = Machine(planned.name, planned.roles, options, clock, number)

    def start(self, name: str) -> asyncio.Task[None]:
        """Start a process on a machine that has none."""
        self.lives += 1
        node = self.nodes[name] = RoomNode(self, self.machines[name], self.lives)
        self.trace.record("start", life=node.life)
        return self.on(node, self._start(node))

    async def _start(self, node: RoomNode) -> None:
        await node.start()
        if node.has_clients:
            self.on(node, live(node, self.simulation.stream(f"people {node.life}")))

    def on(self, node: RoomNode, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something in a process."""
        return self.network.on_host(node.name, coroutine, process=node.process)

    def crash(self, name: str) -> None:
        """End a process at once."""
        node = self.nodes.pop(name)
        node.crashed, node.up = True, False
        self.loop.stop_process(node.process)
        self.network.vanish(name)

    def retire(self, name: str) -> None:
        """End a process at once, and for ever."""
        self.crash(name)
        del self.machines[name]

    def drain(self, name: str) -> asyncio.Task[None]:
        """Let a process go with a goodbye."""
        node = self.nodes.pop(name)
        self.trace.record("drain", life=node.life)
        return self.on(node, node.stop())

    @property
    def hubs(self) -> list[RoomNode]:
        """The processes that have clients, so far as they are up."""
        return [node for node in self.nodes.values() if node.up and node.has_clients]

    async def double(self, *, routers: bool, timeout_s: float) -> Progress | None:
        """Double partitions, or go on with it; None when it did not come to its end."""
        assert self.tool is not None
        self.begin_doubling(routers=routers)
        try:
            doubling = doubling_of(self.tool, self.options, routers=routers)
            progress = await doubling.run(self._told, timeout_s)
        except NotDoubled as error:
            self.trace.record("doubling", refused=error.reason)
            return None
        return progress if progress.step is Step.DONE else None

    async def withdraw(self, *, routers: bool) -> None:
        """Take back a doubling, if one is under way."""
        assert self.tool is not None
        try:
            await doubling_of(self.tool, self.options, routers=routers).withdraw()
        except ClusterError as error:
            self.trace.record("withdrawal", refused=str(error))
        else:
            self.trace.record("withdrawal")

    def begin_doubling(self, *, routers: bool) -> None:
        """Put up the machines that a doubling needs, once."""
        if not self.doubling[routers]:
            self.doubling[routers] = True
            for planned in self.layout.added(routers=routers):
                self.add(planned)
                self.start(planned.name)

    def doubled(self, routers: bool) -> bool:
        """Whether there are twice as many partitions as there were, so far as anybody knows."""
        before = self.layout.router_partitions if routers else self.layout.partitions
        rolls = [node.rooms.roll for node in self.nodes.values() if node.up]
        return any((r.router_partitions if routers else r.partitions) > before for r in rolls)

    async def is_doubling(self, *, routers: bool) -> bool:
        """Whether somebody has begun to double, and not seen it to its end."""
        assert self.tool is not None
        paths = paths_of(self.options)
        return (
            await self.tool.get((paths.independent if routers else paths.brokers).wanted)
            is not None
        )

    def _told(self, progress: Progress) -> None:
        self.trace.record("doubling", step=progress.step.value, missing=len(progress.missing))

    async def _suffer(self) -> None:
        chaos = Chaos(self, self.simulation.stream("chaos"))
        self.network.set_faults(draw_faults(self.simulation.stream("faults")))
        await chaos.run(TROUBLE_S)
        self.quiet = True
        await chaos.end()
        self.healed_at = self.loop.time()
        self.trace.record("healed")

    async def come_to_rest(self) -> None:
        """Tables agree with the truth: the bound has passed. What is under way just now, such as a
        refresh, is another each time."""
        looks: list[set[str]] = []
        for _ in range(_LOOKS):
            looks.append(set(self.differences(self)))
            if not looks[-1]:
                return
            await asyncio.sleep(_LOOK_S)
        found = set.intersection(*looks[-3:])
        assert not found, "\n".join(sorted(found))
