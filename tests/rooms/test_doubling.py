from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from chappe.errors import ClusterError
from chappe.registry.coordination import Coordination, HeldSeat
from chappe.registry.memory import MemoryRegistry
from chappe.rooms.doubling import NotDoubled, Progress, Step, doubling_of, lay_out
from chappe.rooms.options import RoomsOptions
from chappe.rooms.paths import paths_of
from chappe.rooms.roll import Place
from chappe.simulation import Simulation
from chappe.wire.rooms import State

OPTIONS = RoomsOptions()
NUMBER = "/pubsub/broker/partition_num"
WANTED = "/pubsub/broker/partition_wanted"
INIT, RUNNING = State.INIT, State.RUNNING


class Rig:
    def __init__(self) -> None:
        self.registry = MemoryRegistry()
        self.outside = self.open("outside")
        self.told: list[Progress] = []

    def open(self, name: str) -> Coordination:
        coordination = self.registry.open(name).coordination
        assert coordination is not None
        return coordination

    def double(
        self, *, routers: bool = False, replicas: int | None = None, timeout_s: float = 30.0
    ) -> asyncio.Task[Progress]:
        """Run the tool, as somebody does who has just opened the registry."""
        doubling = doubling_of(self.open("tool"), OPTIONS, routers=routers, replicas=replicas)
        return asyncio.create_task(doubling.run(self.told.append, timeout_s))

    async def sit(
        self, partition: int, state: State, modulus: int = 0, kind: str = "broker"
    ) -> HeldSeat:
        return await self.outside.sit(
            f"/pubsub/{kind}/partition{partition}", place(f"b{partition}", state, modulus)
        )

    async def value(self, path: str) -> int | None:
        found = await self.outside.get(path)
        return None if found is None else int(found.value)

    async def until(self, path: str, wanted: int) -> None:
        async with asyncio.timeout(60):
            async for found in self.outside.watch(path):
                if found is not None and int(found.value) == wanted:
                    return


def place(name: str, state: State, modulus: int = 0) -> bytes:
    return msgspec.json.encode(Place(name=name, host=name, port=1, state=state, modulus=modulus))


def play(story: Callable[[Rig], Awaitable[None]], system: int = 1) -> None:
    """Have a story happen in a system of so many partitions; 0: there is none."""

    async def whole() -> None:
        rig = Rig()
        if system:
            paths = paths_of(OPTIONS)
            for divided in (paths.brokers, paths.independent):
                await lay_out(rig.outside, divided, system)
        await story(rig)

    Simulation(1).run(whole())


# R9
def test_the_number_is_set_when_every_new_replica_is_running_and_not_before():
    async def story(rig: Rig) -> None:
        doubling = rig.double()
        await rig.until(WANTED, 4)
        first, second = await rig.sit(2, RUNNING), await rig.sit(3, INIT)
        third = await rig.sit(3, INIT)
        for seat in (second, third):
            await asyncio.sleep(5)
            assert await rig.value(NUMBER) == 2
            await seat.tell(place("b3", RUNNING))
        result = await doubling
        assert await rig.value(NUMBER) == 4
        assert (result.step, result.partitions, result.missing) == (Step.DONE, 4, ())
        assert not result.resumed
        assert [seat.id for seat in result.replicas[2]] == [first.number]
        said = [line for progress in rig.told for line in progress.missing]
        assert any("partition 3 has no broker: start one with --partition 3" in x for x in said)
        assert any(
            f"broker {third.number} of partition 3, on b3, is not Running" in x for x in said
        )

    play(story, system=2)


def test_a_replica_that_is_not_running_in_time_is_the_reason_to_refuse():
    async def story(rig: Rig) -> None:
        doubling = rig.double(timeout_s=5)
        await rig.until(WANTED, 2)
        seat = await rig.sit(1, INIT)
        with pytest.raises(NotDoubled) as refused:
            await doubling
        assert refused.value.missing == (
            f"broker {seat.number} of partition 1, on b1, is not Running",
        )
        assert await rig.value(NUMBER) == 1
        # It goes on when it is run again.
        await seat.tell(place("b1", RUNNING))
        assert (await rig.double()).partitions == 2
        assert await rig.value(NUMBER) == 2

    play(story)


@pytest.mark.parametrize("kind", ["broker", "router"])
def test_a_new_partition_has_as_many_replicas_running_as_its_sibling_or_as_are_asked_for(kind):
    async def story(rig: Rig) -> None:
        routers = kind == "router"
        number = f"/pubsub/{kind}/partition_num"
        for partition in (0, 1, 1):
            await rig.sit(partition, RUNNING, kind=kind)
        doubling = rig.double(routers=routers, timeout_s=5)
        await rig.until(f"/pubsub/{kind}/partition_wanted", 4)
        await rig.sit(2, RUNNING, kind=kind)
        await rig.sit(3, RUNNING, kind=kind)
        with pytest.raises(NotDoubled) as refused:
            await doubling
        assert len(refused.value.missing) == 1
        assert "partition 3 has 1 of 2 replicas Running" in refused.value.missing[0]
        assert (rig.told[-1].ready, rig.told[-1].of) == (2, 3)
        assert await rig.value(number) == 2
        with pytest.raises(NotDoubled, match="partition 2 has 1 of 3 replicas Running"):
            await rig.double(routers=routers, replicas=3, timeout_s=5)
        assert await rig.value(number) == 2
        assert (await rig.double(routers=routers, replicas=1)).partitions == 4

    play(story, system=2)


def test_a_replica_that_dies_before_the_switch_does_not_count():
    async def story(rig: Rig) -> None:
        doubling = rig.double(timeout_s=10)
        await rig.until(WANTED, 4)
        seat = await rig.sit(2, RUNNING)
        await asyncio.sleep(1)
        await seat.release()
        await asyncio.sleep(1)
        await rig.sit(3, RUNNING)
        with pytest.raises(NotDoubled, match="partition 2 has no broker"):
            await doubling
        assert await rig.value(NUMBER) == 2

    play(story, system=2)


def test_a_doubling_is_withdrawn_while_the_number_is_not_set():
    async def story(rig: Rig) -> None:
        doubling = rig.double()
        await rig.until(WANTED, 2)
        other = doubling_of(rig.open("other tool"), OPTIONS)
        assert await other.withdraw() == 1
        with pytest.raises(NotDoubled, match="withdrawn"):
            await doubling
        assert (await rig.value(NUMBER), await rig.value(WANTED)) == (1, 0)
        again = rig.double()
        await rig.until(WANTED, 2)
        await rig.sit(1, RUNNING)
        assert (await again).partitions == 2
        with pytest.raises(NotDoubled, match="no doubling is under way"):
            await doubling_of(rig.open("third tool"), OPTIONS).withdraw()

    play(story)


def test_who_made_ready_for_one_that_was_withdrawn_does_not_count_for_the_next():
    async def story(rig: Rig) -> None:
        seat = await rig.sit(1, RUNNING, 1)
        with pytest.raises(NotDoubled) as refused:
            await rig.double(timeout_s=5)
        assert refused.value.missing == (
            f"broker {seat.number} of partition 1, on b1, is still Running: restart it",
        )
        # Nothing was begun by that.
        assert await rig.value(WANTED) is None
        assert {(each.step, each.missing) for each in rig.told} == {
            (Step.RESTING, refused.value.missing)
        }
        again = rig.double()
        await asyncio.sleep(1)
        assert await rig.value(WANTED) is None
        await seat.tell(place("b1", INIT, 1))
        await rig.until(WANTED, 2)
        assert await rig.value(NUMBER) == 1
        await seat.tell(place("b1", RUNNING, 2))
        assert (await again).partitions == 2

    play(story)


def test_a_number_that_rose_while_it_waited_is_not_doubled_once_more():
    async def story(rig: Rig) -> None:
        seat = await rig.sit(1, RUNNING, 1)
        doubling = rig.double()
        await asyncio.sleep(1)
        found = await rig.outside.get(NUMBER)
        assert found is not None
        await rig.outside.put(NUMBER, b"2", found.version)
        await asyncio.sleep(1)
        await seat.tell(place("b1", RUNNING, 2))
        done = await doubling
        assert (done.step, done.partitions, done.resumed) == (Step.DONE, 2, True)
        assert (await rig.value(NUMBER), await rig.value(WANTED)) == (2, None)
        assert {each.step for each in rig.told} == {Step.RESTING, Step.CLEANING, Step.DONE}

    play(story)


def test_a_registry_that_forgets_is_told_again_what_is_wanted():
    async def story(rig: Rig) -> None:
        doubling = rig.double()
        await rig.until(WANTED, 2)
        await asyncio.sleep(1)
        rig.registry.forget()
        await rig.until(WANTED, 2)
        await rig.sit(1, RUNNING)
        assert (await doubling).partitions == 2
        assert await rig.value(NUMBER) == 2

    play(story)


def test_a_tool_that_was_killed_after_the_switch_waits_for_the_cleaning_and_doubles_no_further():
    async def story(rig: Rig) -> None:
        seat, old = await rig.sit(1, INIT, 1), await rig.sit(0, RUNNING, 1)
        doubling = rig.double()
        await rig.until(WANTED, 2)
        await seat.tell(place("b1", RUNNING, 1))
        await rig.until(NUMBER, 2)
        doubling.cancel()
        again = rig.double()
        await asyncio.sleep(1)
        assert rig.told[-1].step is Step.CLEANING
        await seat.tell(place("b1", RUNNING, 2))
        await old.tell(place("b0", RUNNING, 2))
        result = await again
        assert (result.step, result.partitions, result.resumed) == (Step.DONE, 2, True)
        assert (await rig.value(NUMBER), await rig.value(WANTED)) == (2, None)

    play(story)


def test_that_not_all_have_cleaned_up_in_time_is_said_and_no_failure():
    async def story(rig: Rig) -> None:
        seat = await rig.sit(0, RUNNING, 1)
        doubling = rig.double(timeout_s=5)
        await rig.until(WANTED, 2)
        await rig.sit(1, RUNNING, 2)
        result = await doubling
        assert (result.step, result.partitions) == (Step.CLEANING, 2)
        assert result.missing == (
            f"broker {seat.number} of partition 0, on b0, has not cleaned up",
        )

    play(story)


def test_two_tools_at_once_double_once():
    async def story(rig: Rig) -> None:
        first = asyncio.create_task(doubling_of(rig.open("t1"), OPTIONS).run(rig.told.append, 30.0))
        second = asyncio.create_task(
            doubling_of(rig.open("t2"), OPTIONS).run(rig.told.append, 30.0)
        )
        await rig.until(WANTED, 2)
        await asyncio.sleep(1)
        await rig.sit(1, RUNNING)
        assert {(await first).partitions, (await second).partitions} == {2}
        assert (await rig.value(NUMBER), await rig.value(WANTED)) == (2, None)

    play(story)


# R12
def test_independent_routers_double_by_themselves():
    async def story(rig: Rig) -> None:
        doubling = rig.double(routers=True, timeout_s=5)
        with pytest.raises(NotDoubled, match="no router: start one with --router-partition 1"):
            await doubling
        await rig.sit(1, RUNNING, kind="router")
        assert (await rig.double(routers=True)).partitions == 2
        assert await rig.value("/pubsub/router/partition_num") == 2
        assert await rig.value(WANTED) is None

    play(story)


def test_there_are_partitions_enough_at_some_time():
    async def story(rig: Rig) -> None:
        with pytest.raises(NotDoubled, match="1024 partitions are the most"):
            await rig.double()

    play(story, system=1024)


def test_a_system_that_has_a_number_keeps_it():
    async def story(rig: Rig) -> None:
        brokers = paths_of(OPTIONS).brokers
        assert await lay_out(rig.outside, brokers, 4) == 4
        assert await lay_out(rig.outside, brokers, 2) == 4

    play(story, system=0)


@pytest.mark.parametrize(
    ("routers", "reason"),
    [(False, "no system pubsub at this registry"), (True, "no independent routers of system")],
)
def test_where_nobody_is_registered_it_is_refused_at_once_and_leaves_nothing(routers, reason):
    async def story(rig: Rig) -> None:
        before = asyncio.get_running_loop().time()
        with pytest.raises(NotDoubled, match=reason):
            await rig.double(routers=routers)
        assert asyncio.get_running_loop().time() - before < 1
        for divided in (paths_of(OPTIONS).brokers, paths_of(OPTIONS).independent):
            assert await rig.value(divided.number) is None
            assert await rig.value(divided.wanted) is None

    play(story, system=0)


def test_who_sits_at_a_registry_that_has_forgotten_the_number_is_doubled():
    async def story(rig: Rig) -> None:
        await rig.sit(0, RUNNING)
        doubling = rig.double()
        await rig.until(WANTED, 2)
        await rig.sit(1, RUNNING)
        assert (await doubling).partitions == 2

    play(story, system=0)


def test_how_many_are_to_be_ready_is_known_from_their_siblings():
    async def story(rig: Rig) -> None:
        for _ in range(3):
            await rig.sit(0, RUNNING, 2)
        doubling = rig.double()
        await rig.until(WANTED, 2)
        seats = []
        for _ in range(3):
            await asyncio.sleep(1)
            seats.append(await rig.sit(1, INIT, 2))
        for seat in seats:
            await asyncio.sleep(1)
            await seat.tell(place("b1", RUNNING, 2))
        done = await doubling
        far = [(each.ready, each.of) for each in rig.told if each.step is Step.READYING]
        assert list(dict.fromkeys(far)) == [(0, 3), (1, 3), (2, 3), (3, 3)]
        assert (done.ready, done.of) == (6, 6)

    play(story)


def test_a_registry_that_is_away_is_the_cause():
    async def story(rig: Rig) -> None:
        doubling = doubling_of(_Refusing(), OPTIONS)  # type: ignore[arg-type]
        with pytest.raises(NotDoubled, match="does not answer: connection refused"):
            await doubling.run(rig.told.append, 30.0)

    play(story)


class _Refusing:
    """A registry that nobody reaches."""

    async def get(self, path: str) -> None:
        raise ClusterError("connection refused")
