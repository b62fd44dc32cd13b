"""The same processes on a simulated loop, whose links lose, double and reorder datagrams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
import pytest

from chappe.rooms.doubling import Step, doubling_of
from chappe.rooms.options import ProbeOptions, RoomsOptions
from chappe.simulation import Faults, Simulation
from chappe.simulation.process import Process
from chappe.store.memory import MemoryStore
from chappe.wire.rooms import RoleKind, State
from tests.rooms.world import BROKER, HUB, PROXY, ROUTER, Node, World

OPTIONS = RoomsOptions(port=7404, probe=ProbeOptions(every_s=0))
ROOMS = [str(number) for number in range(12)]


# Datagrams are under way for so long that what is on its way matters; they stay in order.
SLOW = Faults(latency_s=(0.02, 0.02))


class SimulatedWorld(World):
    """Processes on hosts of their own, which can be stopped."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(OPTIONS, clock=simulation.clock, lease_s=15.0)
        self.simulation = simulation
        self.processes: dict[str, Process] = {}

    async def place(self, name: str, roles: frozenset[RoleKind], **changes: Any) -> Node:
        process = self.processes[name] = Process(name)
        return await self.simulation.network.on_host(
            name, self.start(name, roles, host=name, **changes), process=process
        )

    async def layout(self) -> tuple[Node, Node]:
        for name, role in (("b0", BROKER), ("b1", BROKER), ("r0", ROUTER), ("r1", ROUTER)):
            await self.place(name, frozenset({role}))
        for name in ("p0", "p1"):
            await self.place(name, frozenset({PROXY}))
        first, second = await self.place("g0", HUB), await self.place("g1", HUB)
        async with asyncio.timeout(60):
            for node in self.nodes:
                await node.process.settled()
        return first, second


class Talk:
    """Messages to all rooms, in turns, for as long as it goes on."""

    def __init__(self, speaker: Node, every_s: float) -> None:
        self.sent: dict[str, list[int]] = {room: [] for room in ROOMS}
        self._task = asyncio.create_task(self._talk(speaker, every_s))

    async def _talk(self, speaker: Node, every_s: float) -> None:
        while True:
            for room in ROOMS:
                self.sent[room].append(speaker.publish(room))
                await asyncio.sleep(every_s)

    async def end(self, listener: Node) -> None:
        """End it, and see that somebody has heard all of it, once."""
        self._task.cancel()
        for room in ROOMS:
            await listener.hears(room, self.sent[room])
            assert len(listener.hall.ids(room)) == len(self.sent[room])


def play(seed: int, story: Callable[[SimulatedWorld], Awaitable[None]], faults: Faults) -> None:
    simulation = Simulation(seed, faults=faults)

    async def whole() -> None:
        await story(SimulatedWorld(simulation))

    simulation.run(whole())


@pytest.mark.parametrize("seed", range(6))
def test_nobody_hears_anything_twice_and_all_hear_again_when_links_are_well(seed: int):
    async def story(world: SimulatedWorld) -> None:
        first, second = await world.layout()
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        for turn in range(100):
            first.publish(ROOMS[turn % len(ROOMS)], reliable=turn % 3 == 0)
            await asyncio.sleep(0.02)
        world.simulation.network.set_faults(Faults())
        await asyncio.sleep(2 * OPTIONS.beat_s)
        for room in ROOMS:
            await second.hears(room, [first.publish(room)])
        for node in (first, second):
            heard = [number for _, number in node.hall.got]
            assert len(set(heard)) == len(heard)
            assert len(heard) > 50

    play(seed, story, Faults(loss=0.1, duplicate=0.1, latency_s=(0.000_2, 0.05)))


# R5
@pytest.mark.parametrize("name", ["b0", "p0", "r0"])
def test_a_process_that_stands_still_is_passed_over_and_comes_back(name: str):
    async def story(world: SimulatedWorld) -> None:
        first, second = await world.layout()
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        world.simulation.loop.stop_process(world.processes[name])
        await asyncio.sleep(2 * OPTIONS.beat_s)
        for room in ROOMS:
            await second.hears(room, [first.publish(room)])
        await second.join("new")
        # Long enough that the registry has given it up.
        await asyncio.sleep(20)
        world.simulation.loop.resume_process(world.processes[name])
        await asyncio.sleep(20)
        for room in (*ROOMS, "new"):
            await second.hears(room, [first.publish(room)])
        roles = [node.process.crew.running for node in world.nodes if node.name == name]
        assert roles == [True]

    play(1, story, Faults())


# R9
@pytest.mark.parametrize("seed", range(4))
def test_a_doubling_on_clean_links_loses_nothing(seed: int):
    async def story(world: SimulatedWorld) -> None:
        first, second = await world.layout()
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        registry = world.registry.open("tool")
        assert registry.coordination is not None
        talk = Talk(first, 0.05)
        for partitions in (2, 4):
            doubling = doubling_of(registry.coordination, OPTIONS)
            result = await doubling.run(lambda _: None, 60)
            assert (result.step, result.partitions) == (Step.DONE, partitions)
        await talk.end(second)

    play(seed, story, Faults())


@pytest.mark.parametrize("seed", range(4))
def test_a_process_that_ends_loses_nothing_that_was_on_its_way(seed: int):
    async def story(world: SimulatedWorld) -> None:
        first, second = await world.layout()
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        talk = Talk(first, 0.002)
        for node in world.nodes:
            if node.name in ("b0", "p0", "r0"):
                await asyncio.sleep(0.5)
                await node.process.stop()
        await asyncio.sleep(0.5)
        await talk.end(second)

    play(seed, story, SLOW)


@pytest.mark.parametrize("name", ["b0", "p0"])
def test_a_process_that_ends_loses_nothing_though_nobody_sees_it_in_the_registry(name: str):
    async def story(world: SimulatedWorld) -> None:
        first, second = await world.layout()
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        for node in world.nodes:
            if node.name != name:
                world.registry.cut(node.name)
        talk = Talk(first, 0.002)
        await asyncio.sleep(0.5)
        (ending,) = [node for node in world.nodes if node.name == name]
        await ending.process.stop()
        await asyncio.sleep(2)
        await talk.end(second)

    play(1, story, SLOW)


class SlowStore(MemoryStore):
    """One that takes its time to write."""

    async def change(
        self, table: str, puts: Mapping[str, bytes], deletes: Iterable[str] = ()
    ) -> None:
        await asyncio.sleep(3)
        await super().change(table, puts, deletes)


# R8
def test_a_broker_that_starts_while_rows_are_slowly_written_loses_nothing():
    async def story(world: SimulatedWorld) -> None:
        world.store = SlowStore()
        first, second = await world.layout()
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        talk = Talk(first, 0.005)
        for name in ("b2", "b3"):
            await world.place(name, frozenset({BROKER}))
        await asyncio.sleep(12)
        assert all(node.process.crew.running for node in world.nodes)
        await talk.end(second)

    play(1, story, Faults())


# R9
def test_a_doubling_while_rows_are_slowly_written_loses_nothing():
    async def story(world: SimulatedWorld) -> None:
        world.store = SlowStore()
        first, second = await world.layout()
        registry = world.registry.open("tool")
        assert registry.coordination is not None
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        talk = Talk(first, 0.005)
        doubling = doubling_of(registry.coordination, OPTIONS)
        assert (await doubling.run(lambda _: None, 60)).step is Step.DONE
        await talk.end(second)

    play(1, story, Faults())


# R9
def test_a_broker_that_was_started_before_its_partition_is_wanted_misses_no_login():
    async def story(world: SimulatedWorld) -> None:
        first, second = await world.layout()
        early = await world.place("b2", frozenset({BROKER}), partition=1)
        # Longer than it waits for routers, none of which knows of it.
        await asyncio.sleep(5 * OPTIONS.confirm_s)
        assert early.process.ready
        (broker,) = early.process.dispatch.brokers.values()
        assert broker.state is State.INIT
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        registry = world.registry.open("tool")
        assert registry.coordination is not None
        talk = Talk(first, 0.005)
        doubling = doubling_of(registry.coordination, OPTIONS)
        assert (await doubling.run(lambda _: None, 60)).step is Step.DONE
        assert broker.state is State.RUNNING
        await talk.end(second)

    play(1, story, Faults())


# R4
@pytest.mark.parametrize("seed", range(4))
def test_a_registry_that_forgets_everything_costs_no_message(seed: int):
    async def story(world: SimulatedWorld) -> None:
        first, second = await world.layout()
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        before = {seat.id for seat in first.process.roll.proxies}
        talk = Talk(first, 0.002)
        await asyncio.sleep(0.5)
        world.registry.forget()
        await asyncio.sleep(16)
        assert before.isdisjoint(seat.id for seat in first.process.roll.proxies)
        assert len(first.process.roll.proxies) == 2
        await talk.end(second)

    play(seed, story, SLOW)


def test_a_host_is_known_by_what_it_says_it_is():
    async def story(world: SimulatedWorld) -> None:
        world.options = msgspec.structs.replace(OPTIONS, advertise="b0")
        node = await world.place("b0", frozenset({BROKER}))
        assert node.process.endpoint == ("b0", OPTIONS.port)

    play(1, story, Faults())
