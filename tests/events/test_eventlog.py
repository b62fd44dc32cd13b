"""The event log: nothing is told twice, nothing is missing without a word of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chappe.errors import Overload, RequestError
from chappe.events.eventlog import CHUNK_EVENTS, CHUNK_RUNS, INTERVAL_S, EventLog
from chappe.events.record import AT, decode_chunks, rows_of


class StepTimer:
    """A timer that rings when it is told to."""

    def __init__(self) -> None:
        self.callback: Callable[[], None] | None = None

    def call_later(self, delay: float, callback: Callable[[], None]) -> StepTimer:
        assert delay == INTERVAL_S
        self.callback = callback
        return self

    def cancel(self) -> None:
        self.callback = None

    def ring(self) -> None:
        assert self.callback is not None
        self.callback()


class KeptLog:
    """Keeps records, or refuses them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.idle: list[bool] = []
        self.full = False
        self.waiting: list[Callable[[RequestError | None], None]] = []

    def append(
        self, record: bytes, done: Callable[[RequestError | None], None], *, idle: bool
    ) -> None:
        if self.full:
            raise Overload("disk full")
        (chunk,) = decode_chunks(b"\x91" + record)
        self.rows += rows_of(chunk)
        self.idle.append(idle)
        self.waiting.append(done)

    def settle(self, error: RequestError | None = None) -> None:
        for done in self.waiting:
            done(error)
        self.waiting.clear()

    def kinds(self) -> list[str]:
        return [row["kind"] for row in self.rows]


class World:
    def __init__(self) -> None:
        self.now = 1_000_000_000
        self.timer, self.log = StepTimer(), KeptLog()
        self.events = EventLog("a", self.log, self.timer, lambda: self.now)
        self.events.start()

    def tell(self, n: int = 1) -> None:
        for _ in range(n):
            self.events.add(("user_came", 1, {AT: self.now}, {}))

    def ring(self, after_us: int = 250_000) -> None:
        self.now += after_us
        self.timer.ring()


def test_what_an_interval_brought_is_one_record_and_ends_with_a_sign_of_life() -> None:
    world = World()
    world.tell(3)
    world.ring()
    assert world.log.kinds()[-4:] == ["user_came"] * 3 + ["node_alive"]
    assert world.log.rows[-1]["at"] == world.now
    serials = [row["serial"] for row in world.log.rows]
    assert serials == list(range(1, len(serials) + 1))
    assert {row["boot"] for row in world.log.rows} == {1_000_000_000}


def test_a_node_with_nothing_to_tell_says_once_a_second_that_it_is_alive() -> None:
    world = World()
    for _ in range(12):
        world.ring()
    assert world.log.kinds().count("node_alive") == 4
    assert world.log.idle == [False, True, True, True]


def test_much_at_once_is_written_before_the_interval_is_over() -> None:
    world = World()
    before = len(world.log.rows)
    world.tell(CHUNK_RUNS)
    assert len(world.log.rows) - before >= CHUNK_RUNS
    world.events.add(("user_came", CHUNK_EVENTS, {AT: world.now}, {}))
    assert len(world.log.rows) - before >= CHUNK_RUNS + CHUNK_EVENTS
    world.ring()
    serials = [row["serial"] for row in world.log.rows]
    assert serials == list(range(1, len(serials) + 1))


def test_refusals_are_counted_and_told_together() -> None:
    world = World()
    for code in ("overload", "overload", "unreachable"):
        world.events.refuse("shop", code)
    world.ring()
    told = {row["reason"]: row["n"] for row in world.log.rows if row["kind"] == "refused"}
    assert told == {"overload": 2, "unreachable": 1}


def test_what_finds_no_room_is_told_as_missed_as_soon_as_there_is_some() -> None:
    world = World()
    world.ring()
    written = len(world.log.rows)
    world.log.full = True
    world.tell(5)
    world.ring()
    world.tell(2)
    world.ring()
    assert (world.events.missed, len(world.log.rows)) == (7, written)
    world.log.full = False
    world.ring()
    (missed,) = [row for row in world.log.rows if row["kind"] == "missed"]
    assert (missed["n"], missed["reason"]) == (7, "disk full")
    world.ring(2_000_000)
    assert world.log.kinds().count("missed") == 1
    serials = [row["serial"] for row in world.log.rows]
    assert serials == list(range(1, len(serials) + 1))


def test_what_was_taken_and_not_written_is_missed_too() -> None:
    world = World()
    world.ring()
    world.log.settle()
    assert world.events.written == 1
    world.tell(4)
    world.ring()
    world.log.settle(Overload("the disk failed", outcome_unknown=True))
    assert (world.events.written, world.events.missed) == (1, 4)
    world.ring()
    assert [row["n"] for row in world.log.rows if row["kind"] == "missed"] == [4]


def test_a_node_that_ends_in_order_says_so_last() -> None:
    world = World()
    world.tell()
    world.events.stop()
    assert world.log.kinds()[-2:] == ["user_came", "node_stopped"]
    assert world.timer.callback is None
    world.events.stop()
    assert world.log.kinds().count("node_stopped") == 1
