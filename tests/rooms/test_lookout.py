from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog
from structlog.testing import capture_logs

from chappe.registry.coordination import Coordination, HeldSeat
from chappe.registry.memory import MemoryRegistry
from chappe.registry.options import RegistryOptions
from chappe.rooms import lookout
from chappe.rooms.lookout import Lookout
from chappe.rooms.options import RoomsOptions
from chappe.rooms.paths import paths_of
from chappe.rooms.roll import EMPTY, Place, Roll
from chappe.simulation import Simulation
from chappe.wire.rooms import State

LEASE_S = 15.0
PATHS = paths_of(RoomsOptions())


class Rig:
    def __init__(self, independent: bool = False) -> None:
        self.registry = MemoryRegistry(RegistryOptions(lease_s=LEASE_S))
        self.outside = self.open("outside")
        self.rolls: list[Roll] = []
        self._news = asyncio.Event()
        self.lookout = Lookout(
            self.open("n1"),
            PATHS,
            independent=independent,
            lease_s=LEASE_S,
            changed=self._note,
        )

    def open(self, name: str) -> Coordination:
        coordination = self.registry.open(name).coordination
        assert coordination is not None
        return coordination

    def _note(self, roll: Roll) -> None:
        assert not self.rolls or roll != self.rolls[-1]
        self.rolls.append(roll)
        self._news.set()

    async def seen(self, wanted: Callable[[Roll], bool]) -> Roll:
        async with asyncio.timeout(60):
            while not self.rolls or not wanted(self.rolls[-1]):
                self._news.clear()
                await self._news.wait()
        return self.rolls[-1]

    async def sit(self, path: str, name: str, state: State = State.RUNNING) -> HeldSeat:
        place = Place(name=name, host=name, port=1, state=state)
        return await self.outside.sit(path, msgspec.json.encode(place))

    async def put(self, path: str, value: bytes) -> None:
        found = await self.outside.get(path)
        await self.outside.put(path, value, None if found is None else found.version)

    async def value(self, path: str) -> bytes | None:
        found = await self.outside.get(path)
        return None if found is None else found.value


def play(story: Callable[[Rig], Awaitable[None]], *, independent: bool = False) -> None:
    async def whole() -> None:
        rig = Rig(independent)
        await story(rig)
        await rig.lookout.stop()

    Simulation(1).run(whole())


# R4: the paths, and partition_num starts at 1.
def test_the_roll_has_all_that_is_at_the_paths_of_the_registry():
    async def story(rig: Rig) -> None:
        proxy = await rig.sit("/pubsub/proxy", "a")
        router = await rig.sit("/pubsub/router", "b")
        broker = await rig.sit("/pubsub/broker/partition0", "c", State.INIT)
        rig.lookout.start()
        roll = await rig.seen(lambda roll: True)
        # The first is complete, not built up piece by piece.
        assert [seat.id for seat in roll.proxies] == [proxy.number]
        assert [seat.id for seat in roll.routers] == [router.number]
        assert [seat.id for seat in roll.brokers[0]] == [broker.number]
        assert not roll.brokers[0][0].running
        assert (roll.partitions, roll.wanted) == (1, 1)
        assert await rig.value("/pubsub/broker/partition_num") == b"1"
        running = Place(name="c", host="c", port=1, state=State.RUNNING)
        await broker.tell(msgspec.json.encode(running))
        await rig.seen(lambda roll: roll.brokers[0][0].running)

    play(story)


def test_partitions_that_are_wanted_are_looked_at_until_they_are_withdrawn():
    async def story(rig: Rig) -> None:
        rig.lookout.start()
        await rig.seen(lambda roll: roll.partitions == 1)
        broker = await rig.sit("/pubsub/broker/partition1", "new")
        await rig.put("/pubsub/broker/partition_wanted", b"2")
        roll = await rig.seen(lambda roll: bool(roll.brokers.get(1)))
        assert (roll.partitions, roll.wanted) == (1, 2)
        assert roll.brokers[1][0].id == broker.number
        await rig.put("/pubsub/broker/partition_wanted", b"1")
        roll = await rig.seen(lambda roll: roll.wanted == 1)
        assert list(roll.brokers) == [0]
        await rig.put("/pubsub/broker/partition_num", b"2")
        await rig.seen(lambda roll: roll.partitions == 2 and bool(roll.brokers[1]))

    play(story)


# R12: routers with partitions of their own.
def test_independent_routers_are_looked_at_by_their_partitions():
    async def story(rig: Rig) -> None:
        await rig.put("/pubsub/router/partition_num", b"2")
        await rig.sit("/pubsub/router/partition1", "r1")
        rig.lookout.start()
        roll = await rig.seen(lambda roll: True)
        assert roll.router_partitions == 2
        assert [seat.name for seat in roll.independent[1]] == ["r1"]
        assert roll.routers == ()

    play(story, independent=True)


def test_weights_of_outside_are_in_the_roll():
    async def story(rig: Rig) -> None:
        rig.lookout.start()
        await rig.seen(lambda roll: True)
        await rig.put("/pubsub/weights", b'{"proxies": {"3": 0.5}, "brokers": {"4": 0}}')
        roll = await rig.seen(lambda roll: bool(roll.weights.proxies))
        assert roll.weights.proxies == {3: 0.5}
        assert roll.weights.brokers == {4: 0.0}
        await rig.put("/pubsub/weights", b"nonsense")
        await rig.put("/pubsub/broker/partition_wanted", b"2")
        roll = await rig.seen(lambda roll: roll.wanted == 2)
        assert roll.weights.proxies == {3: 0.5}

    play(story)


def test_weights_of_whoever_is_gone_and_weights_that_are_forgotten_are_told_of(monkeypatch):  # R6
    async def story(rig: Rig) -> None:
        gone, other = [await rig.sit("/pubsub/proxy", name) for name in ("a", "b")]
        broker = await rig.sit("/pubsub/broker/partition0", "c")
        await rig.put(
            "/pubsub/weights",
            b'{"proxies": {"%d": 1}, "brokers": {"%d": 0}}' % (gone.number, broker.number),
        )
        rig.lookout.start()
        await rig.seen(lambda roll: bool(roll.weights.proxies))
        await other.release()
        await rig.seen(lambda roll: len(roll.proxies) == 1)
        assert [line for line in logged if "weights" in line["event"]] == []
        await rig.sit("/pubsub/proxy", "a")
        await gone.release()
        await rig.sit("/pubsub/broker/partition0", "c")
        await broker.release()
        await asyncio.sleep(1)
        told = [line["who"] for line in logged if line["event"] == "rooms.weights.gone"]
        assert told == [[f"proxy {gone.number} on a"], [f"broker {broker.number} on c"]]
        rig.registry.forget()
        await asyncio.sleep(1)
        assert [line["event"] for line in logged].count("rooms.weights.forgotten") == 1

    with capture_logs() as logged:
        monkeypatch.setattr(lookout, "log", structlog.get_logger())
        play(story)


# R4: meanwhile a role works from its last list.
def test_the_last_roll_stands_while_the_registry_is_away():
    async def story(rig: Rig) -> None:
        proxy = await rig.sit("/pubsub/proxy", "a")
        rig.lookout.start()
        await rig.seen(lambda roll: bool(roll.proxies))
        rig.registry.cut("n1")
        await proxy.release()
        count = len(rig.rolls)
        await asyncio.sleep(10 * LEASE_S)
        assert len(rig.rolls) == count
        assert rig.lookout.roll.proxies
        rig.registry.heal("n1")
        await rig.seen(lambda roll: not roll.proxies)

    play(story)


def test_a_registry_that_comes_back_empty_is_told_the_number_and_not_believed_at_once():
    async def story(rig: Rig) -> None:
        await rig.put("/pubsub/broker/partition_num", b"4")
        await rig.sit("/pubsub/proxy", "a")
        for partition in range(4):
            await rig.sit(f"/pubsub/broker/partition{partition}", f"b{partition}")
        rig.lookout.start()
        before = await rig.seen(lambda roll: roll.partitions == 4)
        rig.registry.forget()
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(1)
        assert await rig.value("/pubsub/broker/partition_num") == b"4"
        assert rig.lookout.roll == before
        await rig.seen(lambda roll: not roll.proxies)
        assert asyncio.get_running_loop().time() - began >= LEASE_S
        assert rig.lookout.roll.partitions == 4

    play(story)


def test_the_number_never_falls_whatever_somebody_writes():
    async def story(rig: Rig) -> None:
        await rig.put("/pubsub/broker/partition_num", b"4")
        rig.lookout.start()
        await rig.seen(lambda roll: roll.partitions == 4)
        # As one does that starts while the registry is empty.
        await rig.put("/pubsub/broker/partition_num", b"1")
        await asyncio.sleep(0.1)
        assert await rig.value("/pubsub/broker/partition_num") == b"4"
        for nonsense in (b"3", b"-1", b"", b"many", b"99999999999999999999"):
            await rig.put("/pubsub/broker/partition_num", nonsense)
            await asyncio.sleep(0.1)
        assert rig.lookout.roll.partitions == 4
        await rig.put("/pubsub/broker/partition_num", b"8")
        await rig.seen(lambda roll: roll.partitions == 8)

    play(story)


def test_nothing_is_told_before_everything_was_looked_at():
    async def story(rig: Rig) -> None:
        rig.registry.cut("n1")
        rig.lookout.start()
        await asyncio.sleep(60)
        assert rig.rolls == []
        assert rig.lookout.roll is EMPTY
        rig.registry.heal("n1")
        await rig.seen(lambda roll: roll.partitions == 1)
        assert len(rig.rolls) == 1

    play(story)
