"""Processes that take part in rooms, over sockets of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import msgspec
import pytest
import uvloop

from chappe.errors import ConfigError, Unreachable
from chappe.rooms.doubling import NotDoubled, Progress, Step, doubling_of
from chappe.rooms.process import RoomsProcess
from chappe.rooms.row import ROWS
from chappe.store.memory import MemoryStore
from chappe.wire.rooms import State
from tests.rooms.world import ALL, BROKER, HUB, OPTIONS, PROXY, ROUTER, WAIT_S, Node, World

INDEPENDENT = msgspec.structs.replace(OPTIONS, independent_routers=True)


def play(
    story: Callable[[World], Awaitable[None]],
    world: Callable[[], World] = World,
    runner: Callable[..., None] = uvloop.run,
) -> None:
    async def whole() -> None:
        here = world()
        try:
            await story(here)
        finally:
            await here.stop()

    runner(whole())


async def layout(world: World, gateways: int = 2, brokers: int = 2, **changes: object) -> None:
    """A process for each role: a proxy, a router, brokers and gateways."""
    for number in range(brokers):
        await world.start(f"b{number}", frozenset({BROKER}), **changes)
    await world.start("r", frozenset({ROUTER}))
    await world.start("p", frozenset({PROXY}))
    for number in range(gateways):
        await world.start(f"g{number}", HUB)
    await world.settled()


def node(world: World, name: str) -> Node:
    return next(each for each in world.nodes if each.name == name)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("runner", [uvloop.run, asyncio.run])
def test_a_process_alone_serves_rooms_as_soon_as_it_has_started(runner):
    async def story(world: World) -> None:
        alone = await world.start("n1", ALL, alone=True)
        assert alone.process.port is None
        await alone.join("lounge")
        sent = [alone.publish("lounge"), alone.publish("lounge", reliable=True)]
        await alone.hears("lounge", sent)
        await asyncio.sleep(0.05)
        assert alone.hall.ids("lounge") == sent
        assert await alone.count("lounge", 5) == (1, ["user:0"])

    play(story, runner=runner)


# R1
@pytest.mark.parametrize("runner", [uvloop.run, asyncio.run])
def test_a_message_goes_from_a_member_on_one_gateway_to_those_on_others(runner):
    async def story(world: World) -> None:
        await layout(world, gateways=3)
        first, second, third = (node(world, f"g{number}") for number in range(3))
        await asyncio.gather(first.join("a", "b"), second.join("a"), third.join("b"))
        sent = [first.publish("a", payload=b'"%d"' % number) for number in range(100)]
        await second.hears("a", sent)
        await first.hears("a", sent)
        # R14
        assert second.hall.ids("a") == first.hall.ids("a") == sent
        assert third.hall.got == []
        assert (await third.count("a", 10))[0] == 2
        large = third.publish("b", payload=b'"%s"' % (b"x" * 20_000))
        await first.hears("b", [large])
        assert second.hall.ids("b") == []

    play(story, runner=runner)


def test_who_has_left_gets_nothing_more():
    async def story(world: World) -> None:
        await layout(world)
        first, second = node(world, "g0"), node(world, "g1")
        await asyncio.gather(first.join("a"), second.join("a"))
        await second.hears("a", [first.publish("a")])
        second.leave("a")
        await until(lambda: not second.hall.members["default", "a"])
        brokers = [role for each in world.nodes for role in each.process.dispatch.brokers.values()]
        await until(
            lambda: all(len(broker.table.find("default", "a", 0)) < 2 for broker in brokers)
        )
        count = len(second.hall.got)
        await first.hears("a", [first.publish("a") for _ in range(5)])
        assert len(second.hall.got) == count

    play(story)


# R13
def test_a_reliable_message_comes_once_though_it_goes_three_ways():
    async def story(world: World) -> None:
        await world.start("p2", frozenset({PROXY}))
        await world.start("p3", frozenset({PROXY}))
        await layout(world)
        first, second = node(world, "g0"), node(world, "g1")
        await second.join("a")
        await until(lambda: len(first.process.roll.proxies) == 3)
        sent = [first.publish("a", reliable=True) for _ in range(20)]
        await second.hears("a", sent)
        await asyncio.sleep(0.1)
        assert sorted(second.hall.ids("a")) == sent
        carried = sum(
            broker.messages
            for each in world.nodes
            for broker in each.process.dispatch.brokers.values()
        )
        assert carried == 60

    play(story)


# R5
@pytest.mark.parametrize("name", ["b0", "p", "r"])
def test_a_process_that_dies_is_replaced_by_the_others_within_two_beats(name: str):
    async def story(world: World) -> None:
        await world.start("p2", frozenset({PROXY}))
        await world.start("r2", frozenset({ROUTER}))
        await layout(world)
        first, second = node(world, "g0"), node(world, "g1")
        rooms = [str(number) for number in range(8)]
        await second.join(*rooms)
        node(world, name).kill()
        await asyncio.sleep(2 * OPTIONS.beat_s)
        before = asyncio.get_running_loop().time()
        for room in rooms:
            await second.hears(room, [first.publish(room)])
        # Nor do joins need who is gone.
        await second.join("new", *rooms)
        await second.hears("new", [first.publish("new")])
        assert asyncio.get_running_loop().time() - before < 2 * OPTIONS.beat_s

    play(story)


def test_a_gateway_that_dies_gets_no_more_copies_and_takes_nothing_from_others():
    async def story(world: World) -> None:
        await layout(world, gateways=3, brokers=1)
        first, second, third = (node(world, f"g{number}") for number in range(3))
        await asyncio.gather(second.join("a"), third.join("a"))
        third.kill()
        await asyncio.sleep(2 * OPTIONS.beat_s)
        (broker,) = node(world, "b0").process.dispatch.brokers.values()
        before = broker.copies
        await second.hears("a", [first.publish("a") for _ in range(10)])
        assert broker.copies - before == 10

    play(story)


def test_a_process_that_stops_loses_nothing_that_was_sent_meanwhile():
    async def story(world: World) -> None:
        await world.start("p2", frozenset({PROXY}))
        await world.start("r2", frozenset({ROUTER}))
        await layout(world)
        first, second = node(world, "g0"), node(world, "g1")
        rooms = [str(number) for number in range(8)]
        await second.join(*rooms)
        sent: dict[str, list[int]] = {room: [] for room in rooms}

        async def talk() -> None:
            while True:
                for room in rooms:
                    sent[room].append(first.publish(room))
                await asyncio.sleep(0.005)

        talking = asyncio.create_task(talk())
        for name in ("b0", "p", "r"):
            await asyncio.sleep(0.1)
            await node(world, name).process.stop()
        await asyncio.sleep(0.1)
        talking.cancel()
        for room in rooms:
            await second.hears(room, sent[room])
            assert len(second.hall.ids(room)) == len(sent[room])

    play(story)


def test_a_process_that_stops_waits_for_who_learns_of_it_late():
    async def story(world: World) -> None:
        await layout(world)
        first, second = node(world, "g0"), node(world, "g1")
        await second.join("0", "1")
        lookout = node(world, "p").process.lookout
        tell, later = lookout._tell, asyncio.get_running_loop().call_later
        lookout._tell = lambda roll: later(3.5 * OPTIONS.pulse_s, tell, roll)
        sent: list[int] = []

        async def talk() -> None:
            while True:
                sent.append(first.publish(str(len(sent) % 2)))
                await asyncio.sleep(0.005)

        talking = asyncio.create_task(talk())
        await asyncio.sleep(0.1)
        began = world.clock.monotonic()
        await node(world, "b0").process.stop()
        # Not for ever, though.
        assert world.clock.monotonic() - began < 4 * OPTIONS.beat_s
        await asyncio.sleep(0.1)
        talking.cancel()
        for room in (0, 1):
            await second.hears(str(room), sent[room::2])
        assert len(second.hall.got) == len(sent)

    play(story)


# R8
def test_a_broker_that_starts_loads_what_the_store_knows_and_takes_over():
    async def story(world: World) -> None:
        await layout(world, brokers=1)
        first, second = node(world, "g0"), node(world, "g1")
        rooms = [str(number) for number in range(50)]
        await second.join(*rooms)
        await until(lambda: node(world, "r").process.writer.written >= 50)
        fresh = await world.start("b9", frozenset({BROKER}))
        await world.settled(fresh)
        (broker,) = fresh.process.dispatch.brokers.values()
        assert broker.state is State.RUNNING
        assert broker.table.rooms == 50
        proxy = node(world, "p").process.dispatch.proxy
        await until(lambda: proxy.pulses.get(broker.id).state is State.RUNNING)
        await node(world, "b0").process.stop()
        for room in rooms:
            await second.hears(room, [first.publish(room)])

    play(story)


def test_rows_of_rooms_that_were_left_go_from_the_store():
    async def story(world: World) -> None:
        await layout(world)
        second = node(world, "g1")
        await second.join("a", "b")
        writer = node(world, "r").process.writer
        await until(lambda: writer.written >= 2)
        second.leave("a")
        await until(lambda: writer.written >= 3)
        keys = [key async for page in world.store.scan(ROWS) for key, _ in page]
        assert [key.split("/")[2] for key in keys] == ["b"]

    play(story)


async def double(world: World, *, routers: bool = False) -> list[Progress]:
    registry = world.registry.open("tool")
    assert registry.coordination is not None
    told: list[Progress] = []
    doubling = doubling_of(registry.coordination, world.options, routers=routers)
    result = await doubling.run(told.append, WAIT_S)
    assert result.step is Step.DONE, result
    await registry.close()
    return told


class Talk:
    """Messages to many rooms, for as long as it goes on."""

    def __init__(self, speaker: Node, rooms: list[str]) -> None:
        self._speaker = speaker
        self._rooms = rooms
        self.sent: dict[str, list[int]] = {room: [] for room in rooms}
        self._task = asyncio.create_task(self._talk())

    async def _talk(self) -> None:
        while True:
            for room in self._rooms:
                self.sent[room].append(self._speaker.publish(room))
            await asyncio.sleep(0.005)

    async def end(self, *listeners: Node) -> int:
        """End it, see that all have all of it, once and in order, and give how much it was."""
        self._task.cancel()
        for room, ids in self.sent.items():
            for listener in listeners:
                await listener.hears(room, ids)
                heard = listener.hall.ids(room)
                assert len(set(heard)) == len(heard)
        return sum(len(ids) for ids in self.sent.values())


# R9
def test_partitions_double_from_one_to_four_under_traffic_and_nothing_is_lost():
    async def story(world: World) -> None:
        # Each has a broker of every partition there is to be.
        await layout(world)
        await world.start("p2", frozenset({PROXY}))
        first, second = node(world, "g0"), node(world, "g1")
        rooms = [str(number) for number in range(16)]
        await asyncio.gather(first.join(*rooms), second.join(*rooms))
        talk = Talk(first, rooms)
        late: list[str] = []
        for partitions in (2, 4):
            await asyncio.sleep(0.2)
            joining = asyncio.create_task(second.join(f"late{partitions}"))
            told = await double(world)
            assert told[0].partitions == partitions // 2
            await joining
            late.append(f"late{partitions}")
        await asyncio.sleep(0.3)
        assert await talk.end(first, second) > 1000
        for room in late:
            await second.hears(room, [first.publish(room)])
        for name in ("b0", "b1"):
            brokers = node(world, name).process.dispatch.brokers
            assert sorted(brokers) == [0, 1, 2, 3]
            assert [broker.modulus for broker in brokers.values()] == [4] * 4
            await until(lambda brokers=brokers: not any(b.cleaning for b in brokers.values()))
            assert [broker.table.rooms >= 4 for broker in brokers.values()] == [True] * 4
            assert sum(broker.table.rooms for broker in brokers.values()) == 18
        assert {
            seat.place.modulus for seats in first.process.roll.brokers.values() for seat in seats
        } == {4}

    play(story)


def test_brokers_of_one_partition_each_double_when_their_siblings_are_started():
    async def story(world: World) -> None:
        await layout(world, brokers=2, partition=0)
        first, second = node(world, "g0"), node(world, "g1")
        rooms = [str(number) for number in range(16)]
        await asyncio.gather(first.join(*rooms), second.join(*rooms))
        talk = Talk(first, rooms)
        doubling = asyncio.create_task(double(world))
        await asyncio.sleep(0.2)
        for number in range(2):
            await world.start(f"c{number}", frozenset({BROKER}), partition=1)
        told = await doubling
        assert any("has no broker" in line for each in told for line in each.missing)
        await asyncio.sleep(0.2)
        assert await talk.end(first, second) > 500
        # Both halves have work.
        for name in ("b0", "b1", "c0", "c1"):
            (broker,) = node(world, name).process.dispatch.brokers.values()
            assert broker.messages > 0

    play(story)


def test_a_doubling_that_is_withdrawn_leaves_all_as_it_was():
    async def story(world: World) -> None:
        class SlowStore(MemoryStore):
            async def scan(self, table, prefix=""):  # type: ignore[no-untyped-def]
                await asyncio.sleep(3600)
                yield []

        await layout(world)
        first, second = node(world, "g0"), node(world, "g1")
        await second.join("1")
        for name in ("b0", "b1"):
            node(world, name).process.crew._store = SlowStore()
        registry = world.registry.open("tool")
        assert registry.coordination is not None
        with pytest.raises(NotDoubled, match="is not Running"):
            await doubling_of(registry.coordination, world.options).run(lambda _: None, 1.0)
        await second.hears("1", [first.publish("1")])
        await doubling_of(registry.coordination, world.options).withdraw()
        brokers = node(world, "b0").process.dispatch.brokers
        await until(lambda: sorted(brokers) == [0])
        await second.hears("1", [first.publish("1")])
        await registry.close()

    play(story)


# R12
def test_independent_routers_carry_joins_and_double_by_themselves():
    async def story(world: World) -> None:
        await world.start("r2", frozenset({ROUTER}))
        await layout(world)
        first, second = node(world, "g0"), node(world, "g1")
        rooms = [str(number) for number in range(8)]
        await asyncio.gather(first.join(*rooms), second.join(*rooms))
        talk = Talk(first, rooms)
        await double(world, routers=True)
        assert first.process.roll.router_partitions == 2
        await second.join("after the routers", *rooms)
        await double(world)
        await second.join("after the brokers", *rooms)
        await asyncio.sleep(0.2)
        assert await talk.end(first, second) > 100
        for room in ("after the routers", "after the brokers"):
            await second.hears(room, [first.publish(room)])
        node(world, "r").kill()
        await asyncio.sleep(2 * OPTIONS.beat_s)
        await second.join("after a death", *rooms)
        await second.hears("after a death", [first.publish("after a death")])

    play(story, world=lambda: World(INDEPENDENT))


# R12
def test_independent_routers_serve_several_systems():
    async def story(world: World) -> None:
        await world.start("r", frozenset({ROUTER}))
        systems: dict[str, list[Node]] = {}
        for system in ("one", "two"):
            systems[system] = [
                await world.start(f"{system}-{kind.name}", frozenset({kind}), system=system)
                for kind in (BROKER, PROXY)
            ]
        first = await world.start("g1", HUB, system="one")
        second = await world.start("g2", HUB, system="two")
        await world.settled()
        assert first.process.roll.brokers != second.process.roll.brokers
        # A gateway tells one router of a room, and brokers of all systems know.
        await first.join("a")
        for speaker in (first, second):
            await first.hears("a", [speaker.publish("a")])
        for broker, _ in systems.values():
            (role,) = broker.process.dispatch.brokers.values()
            assert role.messages == 1

    play(story, world=lambda: World(INDEPENDENT))


# R4
def test_a_registry_that_is_away_or_comes_back_empty_disturbs_no_message():
    async def story(world: World) -> None:
        await layout(world)
        first, second = node(world, "g0"), node(world, "g1")
        rooms = [str(number) for number in range(8)]
        await asyncio.gather(first.join(*rooms), second.join(*rooms))
        talk = Talk(first, rooms)
        for each in world.nodes:
            world.registry.cut(each.name)
        await asyncio.sleep(2 * world.lease_s)
        await second.join("meanwhile", *rooms)
        for each in world.nodes:
            world.registry.heal(each.name)
        await asyncio.sleep(world.lease_s)
        await talk.end(first, second)

    play(story)


def test_a_registry_that_forgets_everything_is_told_again():
    async def story(world: World) -> None:
        await layout(world)
        await double(world)
        first, second = node(world, "g0"), node(world, "g1")
        await asyncio.gather(first.join("1"), second.join("1", "2"))
        before = {seat.id for seat in first.process.roll.proxies}
        world.registry.forget()
        await until(lambda: {seat.id for seat in first.process.roll.proxies}.isdisjoint(before))
        await world.settled()
        assert first.process.roll.partitions == 2
        await until(lambda: all(len(each) == 2 for each in first.process.roll.brokers.values()))
        await asyncio.sleep(2 * OPTIONS.beat_s)
        for room in ("1", "2"):
            await second.hears(room, [first.publish(room)])
        await second.join("3")
        await second.hears("3", [first.publish("3")])

    play(story)


def test_nobody_can_publish_before_there_is_a_proxy_that_knows_brokers():
    async def story(world: World) -> None:
        hub = await world.start("g", HUB)
        await world.start("p", frozenset({PROXY}))
        await asyncio.sleep(0.3)
        # R7
        assert hub.process.roll.proxies == ()
        with pytest.raises(Unreachable):
            hub.publish("a")
        await world.start("b", frozenset({BROKER}))
        await world.settled(hub)
        hub.publish("a")

    play(story)


def test_a_process_tells_how_it_does():
    async def story(world: World) -> None:
        await layout(world)
        hub = node(world, "g0")
        status = hub.process.status()
        assert [role.role for role in status.roles] == ["publisher", "gateway"]
        assert (status.partitions, len(status.proxies), len(status.brokers)) == (1, 1, 2)
        assert status.proxies[0].alive
        names = {metric.name for metric in hub.process.metrics()}
        assert "chappe_rooms_partition_num" in names

    play(story)


def test_processes_that_share_a_registry_need_a_secret():
    async def story(world: World) -> None:
        with pytest.raises(ConfigError, match="secret"):
            RoomsProcess(
                options=OPTIONS,
                name="n1",
                clock=world.clock,
                loop=asyncio.get_running_loop(),
                entropy=lambda size: b"x" * size,
                rng=Random(1),
                recorder=world.recorder,
                store=world.store,
                coordination=world.registry.open("n1").coordination,
                secret=None,
                cluster="",
                roles=frozenset({PROXY}),
                audience=None,
                epoch=1,
                lease_s=1.0,
            )

    play(story)
