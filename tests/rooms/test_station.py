from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import msgspec

from chappe.errors import StorageError
from chappe.registry.enrolment import Enrolment
from chappe.registry.memory import MemoryRegistry
from chappe.rooms.role import Source
from chappe.rooms.roll import Place, Roll
from chappe.rooms.row import ROWS
from chappe.rooms.station import Met, Opening, Station
from chappe.simulation import Simulation
from chappe.simulation.clock import SimulatedClock
from chappe.store.memory import MemoryStore
from chappe.wire.rooms import Pulse, RoleKind, RoomOp, State

PATH = "/pubsub/broker/partition0"
PLACE = Place(name="b", host="b", port=1, state=State.INIT)
ROUTER = (RoleKind.ROUTER, 7)
CONFIRM_S = 10.0


class Beginner:
    """A role that notes what it is told."""

    kind = RoleKind.BROKER

    def __init__(self) -> None:
        self.id = 0
        self.state = State.INIT
        self.leaving = False
        self.modulus = 1
        self.due = float("inf")
        self.rows: list[str] = []

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        self.rows += [key for key, _ in rows]

    def loaded(self, now: float) -> None:
        self.state = State.RUNNING

    def receive(self, op: RoomOp, source: Source, now: float) -> None:
        raise AssertionError

    def see(self, roll: Roll, now: float) -> None:
        raise AssertionError

    def tick(self, now: float) -> None:
        raise AssertionError


class Rig:
    def __init__(self, simulation: Simulation) -> None:
        coordination = MemoryRegistry().open("b").coordination
        assert coordination is not None
        self.coordination = coordination
        self.store = MemoryStore()
        self.role = Beginner()
        self.clock = SimulatedClock(simulation.loop)
        self.alone = True
        self.load_s = 60.0
        self.excused = True
        self.enrolment = Enrolment(coordination, PATH, PLACE, lease_s=15.0, seated=self._seat)

    def _seat(self, number: int) -> None:
        self.role.id = number
        self.station.look()

    def open(self, known: Callable[[Met], bool] | None) -> None:
        opening = None
        if known is not None:
            opening = Opening(
                store=self.store,
                clock=self.clock,
                wanted=lambda: True,
                known=known,
                alone=lambda: self.alone,
                confirm_s=CONFIRM_S,
                load_s=self.load_s,
                excused=lambda met: self.excused,
            )
        self.station = Station(self.role, self.enrolment, opening)
        self.station.start()

    def meet(self, news: int = 0, stored: int = 0) -> None:
        """Hear a router ask."""
        pulse = Pulse(*ROUTER, RoleKind.BROKER, 1, 1, 0.0, news=news, stored=stored)
        self.station.meet(pulse, Source(("r", 1), "r"), self.clock.monotonic())

    async def seats(self) -> list[Place]:
        row = await anext(self.coordination.watch_seats(PATH))
        return [msgspec.json.decode(value, type=Place) for value in row.values()]


async def unread(table: str, prefix: str = "") -> AsyncIterator[list[tuple[str, bytes]]]:
    raise StorageError("away")
    yield []


def play(story: Callable[[Rig], Awaitable[None]]) -> None:
    simulation = Simulation(1)

    async def whole() -> None:
        rig = Rig(simulation)
        await rig.store.change(ROWS, {"a": b"", "b": b""})
        await story(rig)
        await rig.station.stop()
        assert await rig.seats() == []

    simulation.run(whole())


# R8
def test_a_broker_is_registered_before_it_loads_and_runs_after_it():
    async def story(rig: Rig) -> None:
        rig.open(lambda met: ROUTER in met)
        await asyncio.sleep(1)
        assert [place.state for place in await rig.seats()] == [State.INIT]
        # What a router hears is queued here only once it knows of the broker.
        assert rig.role.rows == []
        rig.meet()
        await asyncio.sleep(0.1)
        assert rig.role.rows == ["a", "b"]
        assert rig.station.running
        assert [place.state for place in await rig.seats()] == [State.RUNNING]

    play(story)


def test_a_broker_loads_when_routers_have_written_what_they_heard_before_they_knew_it():
    async def story(rig: Rig) -> None:
        rig.open(lambda met: ROUTER in met)
        # What is news after that, the broker is told.
        for news, stored in ((5, 2), (9, 4)):
            rig.meet(news, stored)
            await asyncio.sleep(0.1)
            assert rig.role.rows == []
        rig.meet(20, 5)
        await asyncio.sleep(0.1)
        assert rig.station.running

    play(story)


def test_a_broker_that_cannot_load_does_not_run_beside_one_that_has_its_rooms():
    async def story(rig: Rig) -> None:
        scan, rig.store.scan = rig.store.scan, unread  # type: ignore[method-assign]
        rig.alone, rig.load_s = False, 1.0
        rig.open(lambda met: True)
        await asyncio.sleep(3.5)
        assert rig.role.state is State.INIT
        rig.store.scan = scan  # type: ignore[method-assign]
        await asyncio.sleep(1)
        assert (rig.role.rows, rig.station.running) == (["a", "b"], True)

    play(story)


def test_a_broker_that_cannot_load_and_is_alone_runs():
    async def story(rig: Rig) -> None:
        rig.store.scan = unread  # type: ignore[method-assign]
        rig.load_s = 1.0
        rig.open(lambda met: True)
        await asyncio.sleep(1.5)
        assert rig.station.running

    play(story)


def test_who_ends_tells_those_who_ask_and_waits_until_they_know():
    async def story(rig: Rig) -> None:
        rig.open(lambda met: True)
        rig.meet()
        parting = asyncio.create_task(rig.station.part(1.75, rig.clock.monotonic()))
        await asyncio.sleep(0.5)
        assert rig.role.leaving
        assert not parting.done()
        rig.meet()
        await asyncio.sleep(0.01)
        assert parting.done()
        began = rig.clock.monotonic()
        await rig.station.part(1.75, began)
        assert 1.7 < rig.clock.monotonic() - began < 1.8

    play(story)


def test_who_does_not_confirm_in_time_does_not_count():
    async def story(rig: Rig) -> None:
        rig.open(lambda met: False)
        await asyncio.sleep(CONFIRM_S - 0.1)
        assert rig.role.state is State.INIT
        await asyncio.sleep(0.2)
        assert rig.station.running

    play(story)


# R9: whom nobody reaches must not be ready for a doubling.
def test_who_is_not_needed_yet_waits_until_all_know_it_and_says_so():
    async def story(rig: Rig) -> None:
        rig.excused = False
        rig.open(lambda met: ROUTER in met)
        await asyncio.sleep(10 * CONFIRM_S)
        (place,) = await rig.seats()
        assert place.state is State.INIT
        assert "have the same cluster.secret" in place.waits
        assert rig.role.rows == []
        rig.meet()
        await asyncio.sleep(0.1)
        (place,) = await rig.seats()
        assert (place.state, place.waits) == (State.RUNNING, "")

    play(story)


def test_who_is_needed_while_it_waits_starts_after_all():
    async def story(rig: Rig) -> None:
        rig.excused = False
        rig.open(lambda met: False)
        await asyncio.sleep(3 * CONFIRM_S)
        assert rig.role.state is State.INIT
        rig.excused = True
        await asyncio.sleep(CONFIRM_S)
        assert rig.station.running

    play(story)


# R7
def test_a_proxy_is_registered_when_it_runs_and_stays_when_it_does_not():
    async def story(rig: Rig) -> None:
        rig.open(None)
        rig.station.settle()
        await asyncio.sleep(1)
        assert await rig.seats() == []
        rig.role.state = State.RUNNING
        rig.station.settle()
        await asyncio.sleep(0.1)
        assert [place.state for place in await rig.seats()] == [State.RUNNING]
        rig.role.state = State.INIT
        rig.station.settle()
        await asyncio.sleep(0.1)
        assert [place.state for place in await rig.seats()] == [State.INIT]

    play(story)


# R9: who doubles sees who has cleaned up.
def test_the_registry_has_what_a_broker_goes_by():
    async def story(rig: Rig) -> None:
        rig.open(lambda met: True)
        await asyncio.sleep(0.1)
        rig.role.modulus = 2
        rig.station.settle()
        await asyncio.sleep(0.1)
        assert [place.modulus for place in await rig.seats()] == [2]

    play(story)
