"""The same processes on a simulated loop, whose links lose, double and reorder datagrams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import msgspec
import pytest

from chappe.registry.coordination import Coordination
from chappe.rooms.doubling import NotDoubled, Step, doubling_of
from chappe.rooms.options import ProbeOptions, RoomsOptions
from chappe.rooms.paths import paths_of
from chappe.rooms.roll import Place
from chappe.simulation import Faults, Simulation
from chappe.simulation.process import Process
from chappe.store.memory import MemoryStore
from chappe.wire.rooms import RoleKind, State
from tests.rooms.world import BROKER, HUB, PROXY, ROUTER, SECRET, Node, World

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

    async def layout(self, **changes: Any) -> tuple[Node, Node]:
        for name, role in (("b0", BROKER), ("b1", BROKER), ("r0", ROUTER), ("r1", ROUTER)):
            await self.place(name, frozenset({role}), **changes)
        for name in ("p0", "p1"):
            await self.place(name, frozenset({PROXY}), **changes)
        first, second = [await self.place(name, HUB, **changes) for name in ("g0", "g1")]
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

    def cancel(self) -> None:
        """End it."""
        self._task.cancel()

    async def end(self, listener: Node) -> None:
        """End it, and see that somebody has heard all of it, once."""
        self.cancel()
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


# R5
def test_a_gateway_that_loses_large_messages_hears_small_ones_from_the_first_second_on():
    async def story(world: SimulatedWorld) -> None:
        first, second = await world.layout()
        await second.join("large", *ROOMS)
        for node in world.nodes:
            link = world.simulation.network.link(node.name, second.name)
            link.faults = Faults(loss=0.1)
        for _ in range(600):
            first.publish("large", payload=b"x" * 60_000)
            await asyncio.sleep(0.2)
        # Of 50 pieces all come once in two hundred times.
        assert len(second.hall.ids("large")) < 20
        # Of each replica one room at least: a second has some messages of each.
        for _ in range(5):
            talk = Talk(first, 0.01)
            await asyncio.sleep(1)
            talk.cancel()
            for room, ids in talk.sent.items():
                assert len(set(ids).intersection(second.hall.ids(room))) > len(ids) // 2, room

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


@pytest.mark.parametrize("routers", [False, True])
@pytest.mark.parametrize("trouble", ["secret", "links"])
def test_a_partition_that_nobody_reaches_is_not_ready_for_a_doubling(trouble: str, routers: bool):
    async def story(world: SimulatedWorld) -> None:
        fixed = "router_partition" if routers else "partition"
        shared: dict[str, Any] = INDEPENDENT if routers else {}
        first, second = await world.layout(**shared, **{fixed: 0})
        kind = ROUTER if routers else BROKER
        secret = b"z" * 32 if trouble == "secret" else SECRET
        if trouble == "links":
            others = [node.name for node in world.nodes]
            world.simulation.network.partition(("x0", "x1"), others)
        new = [
            await world.place(name, frozenset({kind}), secret=secret, **shared, **{fixed: 1})
            for name in ("x0", "x1")
        ]
        registry = world.registry.open("tool")
        assert registry.coordination is not None
        doubling = doubling_of(registry.coordination, OPTIONS, routers=routers)
        with pytest.raises(NotDoubled) as refused:
            await doubling.run(lambda _: None, 5 * OPTIONS.confirm_s)
        assert len(refused.value.missing) == 2
        for line in refused.value.missing:
            assert "is not Running: not all routers have told it that they know it" in line
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        for room in ROOMS:
            await second.hears(room, [first.publish(room)])
        if trouble == "links":
            world.simulation.network.heal()
            second.hall.got.clear()
            doubling = doubling_of(registry.coordination, OPTIONS, routers=routers)
            talk = Talk(first, 0.05)
            assert (await doubling.run(lambda _: None, 60)).step is Step.DONE
            await talk.end(second)
            assert all(node.process.ready for node in new)

    play(1, story, Faults())


async def starting_s(node: Node) -> float:
    """How long a process takes until it works."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(60):
        await node.process.settled()
    return loop.time() - began


INDEPENDENT = {"independent_routers": True}


# R12
def test_an_independent_router_runs_as_soon_as_the_others_have_written_what_they_heard():
    async def story(world: SimulatedWorld) -> None:
        await world.layout(**INDEPENDENT)
        assert await starting_s(await world.place("r2", frozenset({ROUTER}), **INDEPENDENT)) < 0.1

    play(1, story, Faults())


# R12
def test_an_independent_router_waits_until_the_others_have_written_what_they_heard():
    async def story(world: SimulatedWorld) -> None:
        first, _ = await world.layout(**INDEPENDENT)

        async def change(
            table: str, puts: Mapping[str, bytes], deletes: Iterable[str] = ()
        ) -> None:
            await asyncio.sleep(0.7)
            await MemoryStore.change(store, table, puts, deletes)

        store = cast("MemoryStore", world.store)
        store.change = change  # type: ignore[method-assign]
        await first.join("late")
        router = await world.place("r2", frozenset({ROUTER}), **INDEPENDENT)
        assert 0.6 < await starting_s(router) < 0.95
        (role,) = router.process.dispatch.routers.values()
        assert role.book.rows == 1  # type: ignore[attr-defined]

    play(1, story, Faults())


# R12
def test_an_independent_router_waits_for_who_is_dead_no_longer_than_all_do():
    async def story(world: SimulatedWorld) -> None:
        await world.layout(**INDEPENDENT)
        (dead,) = [node for node in world.nodes if node.name == "r1"]
        dead.kill()
        router = await world.place("r2", frozenset({ROUTER}), **INDEPENDENT)
        assert 0.9 < await starting_s(router) < OPTIONS.beat_s + 0.2
        # Nobody waits for who it was itself before.
        world.registry.heal("r1")
        again = await world.place("r1", frozenset({ROUTER}), **INDEPENDENT)
        assert await starting_s(again) < 2 * OPTIONS.pulse_s

    play(1, story, Faults())


# R9, R12
def test_independent_routers_that_double_wait_for_their_siblings_and_not_longer():
    async def story(world: SimulatedWorld) -> None:
        first, second = await world.layout(**INDEPENDENT)
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        registry = world.registry.open("tool")
        assert registry.coordination is not None
        paths = paths_of(OPTIONS).independent
        await registry.coordination.put(paths.wanted, b"2", None)
        await asyncio.sleep(2 * OPTIONS.pulse_s)
        for name in ("r0", "r1"):
            (process,) = [node.process for node in world.nodes if node.name == name]
            assert process.crew.running
            assert process.dispatch.routers[1].state is State.RUNNING
            assert process.dispatch.routers[1].book.rows == 2 * len(ROOMS)

    play(1, story, Faults())


async def withdrawn(world: SimulatedWorld, early: Node) -> Coordination:
    """Have a doubling withdrawn after a broker that was started by hand has made ready for it."""
    registry = world.registry.open("tool")
    assert registry.coordination is not None
    held = await registry.coordination.sit(
        "/pubsub/broker/partition1",
        msgspec.json.encode(Place(name="slow", host="slow", port=1, state=State.INIT)),
    )
    with pytest.raises(NotDoubled, match="on slow, is not Running"):
        await doubling_of(registry.coordination, OPTIONS).run(lambda _: None, 20)
    await held.release()
    assert [b.state for b in early.process.dispatch.brokers.values()] == [State.RUNNING]
    await doubling_of(registry.coordination, OPTIONS).withdraw()
    return registry.coordination


# R9
def test_a_broker_of_a_doubling_that_was_withdrawn_waits_for_the_next_one():
    async def story(world: SimulatedWorld) -> None:
        await world.layout(partition=0)
        early = await world.place("b2", frozenset({BROKER}), partition=1)
        outside = await withdrawn(world, early)
        await asyncio.sleep(1)
        (broker,) = early.process.dispatch.brokers.values()
        assert broker.state is State.INIT
        assert early.process.ready
        assert not early.process.dead
        seat = broker.id
        row = await anext(outside.watch_seats("/pubsub/broker/partition1"))
        places = [msgspec.json.decode(value, type=Place) for value in row.values()]
        assert [(place.name, place.state) for place in places] == [("b2", State.INIT)]
        assert list(row) == [seat]
        # While nobody wants it, it stays who it is, whoever else comes.
        await world.place("p2", frozenset({PROXY}))
        await asyncio.sleep(5)
        assert list(early.process.dispatch.brokers.values()) == [broker]
        assert list(await anext(outside.watch_seats("/pubsub/broker/partition1"))) == [seat]

    play(1, story, Faults())


# R9
@pytest.mark.parametrize("pause_s", [0.0, 0.03, 5.0])
def test_a_doubling_after_one_that_was_withdrawn_loses_nothing(pause_s: float):
    async def story(world: SimulatedWorld) -> None:
        first, second = await world.layout(partition=0)
        early = await world.place("b2", frozenset({BROKER}), partition=1)
        outside = await withdrawn(world, early)
        await asyncio.sleep(pause_s)
        # Nobody tells a broker of a partition that is not wanted. To be told of so many rooms later
        # takes it longer than to be given the first messages.
        await second.join(*[str(number) for number in range(100, 8100)])
        await asyncio.gather(first.join(*ROOMS), second.join(*ROOMS))
        talk = Talk(first, 0.005)
        doubling = doubling_of(outside, OPTIONS, replicas=1)
        assert (await doubling.run(lambda _: None, 60)).step is Step.DONE
        await talk.end(second)
        (broker,) = early.process.dispatch.brokers.values()
        assert broker.messages > 0

    play(1, story, SLOW)


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
