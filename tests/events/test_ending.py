"""The ending of a log: of a life that was killed it is said once that it is gone."""

from __future__ import annotations

from typing import Any

from chappe.events.ending import Ending
from chappe.events.eventlog import EventLog
from chappe.events.record import AT, decode_chunks, rows_of
from chappe.events.tail import Tail
from tests.events.test_eventlog import KeptLog, StepTimer

ONE = b"\x91"


class Life:
    """One life after another in one log; how that ends."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.records: list[bytes] = []
        self.begin()

    def begin(self) -> None:
        self.timer, log = StepTimer(), KeptLog()

        def append(record: bytes, done: Any, *, idle: bool) -> None:
            self.records.append(record)

        log.append = append  # type: ignore[method-assign]
        self.events = EventLog("a", log, self.timer, lambda: self.now)
        self.events.start()

    def ring(self) -> None:
        self.now += 2_000_000
        self.timer.ring()

    def word(self, since: int = 0) -> list[dict[str, Any]]:
        ending = Ending()
        for record in self.records[since:]:
            ending.take(ONE + record)
        word = ending.word("a")
        if word is None:
            return []
        self.records.append(word)
        (chunk,) = decode_chunks(ONE + word)
        return list(rows_of(chunk))


def said(events: EventLog) -> Tail:
    """What the next life knows from the beginning of a segment."""
    tail = Tail()
    tail.take(ONE + events.opening()[0])
    return tail


def test_a_life_that_was_killed_is_gone_since_its_last_sign_of_life() -> None:
    life = Life()
    life.ring()
    alive = life.now
    life.now += 100
    (gone,) = life.word()
    assert (gone["kind"], gone["node"], gone["boot"]) == ("node_gone", "a", 1_000_000)
    # It has started, and said twice that it is alive.
    assert (gone["at"], gone["serial"]) == (alive, 4)
    assert life.word() == []


def test_a_life_that_ended_in_order_is_not_gone() -> None:
    life = Life()
    life.events.stop()
    assert life.word() == []


def test_only_the_last_life_is_told_of() -> None:
    life = Life()
    life.ring()
    life.now += 100
    before = said(life.events)
    life.begin()
    life.events.stop()
    assert life.word() == []
    # A segment may begin with what the life before said.
    life.now += 100
    life.begin()
    life.events.resume(before, dict)
    life.records.append(life.events.opening()[0])
    (gone,) = life.word()
    assert (gone["boot"], gone["at"]) == (life.now, life.now)


def test_what_a_slate_had_of_an_earlier_life_does_not_begin_it_anew() -> None:
    life = Life()
    earlier = life.events
    life.now += 100
    life.begin()
    late = earlier._chunk(("lent", 1, {AT: 5}, {}))
    life.records.append(late)
    (gone,) = life.word()
    assert gone["boot"] == life.now


def test_the_last_segment_says_enough() -> None:
    life = Life()
    life.ring()
    since = len(life.records)
    life.records += life.events.opening()
    (gone,) = life.word(since)
    assert (gone["at"], gone["serial"]) == (life.now, 4)


def test_a_life_that_told_nothing_is_not_told_of_and_neither_is_what_cannot_be_read() -> None:
    ending = Ending()
    assert ending.word("a") is None
    ending.take(b"\xc1")
    assert ending.word("a") is None
    events = EventLog("a", KeptLog(), StepTimer(), lambda: 7)
    before = Tail()
    before.marks = (5, {})
    events.resume(before, dict)
    ending.take(ONE + events.opening()[0])
    assert ending.word("a") is None
