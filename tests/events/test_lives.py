"""The lives of a node: of one that was killed it is said once that it is gone."""

from __future__ import annotations

from typing import Any

from chappe.errors import Overload
from chappe.events.eventlog import EventLog
from chappe.events.lives import Lives
from chappe.events.record import AT, decode_chunks, encode_chunk, rows_of
from chappe.events.schema import VERSION
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
        self.timer, self.log = StepTimer(), KeptLog()

        def append(record: bytes, done: Any, *, idle: bool) -> None:
            self.records.append(record)

        self.log.append = append  # type: ignore[method-assign]
        self.events = EventLog("a", self.log, self.timer, lambda: self.now)
        self.events.start()

    def ring(self) -> None:
        self.now += 2_000_000
        self.timer.ring()

    def word(self, since: int = 0) -> list[dict[str, Any]]:
        word = self.lives(since).word("a")
        if word is None:
            return []
        self.records.append(word)
        (chunk,) = decode_chunks(ONE + word)
        return list(rows_of(chunk))

    def lives(self, since: int = 0) -> Lives:
        lives = Lives()
        for record in self.records[since:]:
            lives.take(ONE + record)
        return lives

    def die_at_start(self) -> None:
        """Another life follows, and comes to no more than to begin a segment."""
        lives = self.lives()
        self.now += 100
        events = EventLog("a", KeptLog(), StepTimer(), lambda: self.now)
        events.resume(said(self.events), dict, dict, lambda: lives.unfinished([]), lives.newest)
        self.records = events.opening()
        self.events = events


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


def test_a_life_that_was_killed_is_gone_though_the_next_ones_die_at_their_start() -> None:
    life = Life()
    life.ring()
    alive, boot = life.now, life.events.boot
    for _ in range(2):
        life.die_at_start()
    (gone,) = life.word()
    assert (gone["boot"], gone["at"], gone["serial"]) == (boot, alive, 4)
    life.die_at_start()
    assert life.word() == []


def test_a_life_in_order_is_not_gone_though_the_next_one_dies_at_its_start() -> None:
    life = Life()
    life.events.stop()
    life.die_at_start()
    assert life.word() == []


def test_a_log_written_before_lives_were_named_says_as_much_as_it_did() -> None:
    lives = Lives()
    alive = ("node_alive", 1, {AT: 150}, {})
    for chunk in (
        (VERSION, "a", 200, 1, [], (150, {"b": 5}), [("stored", 7, "")]),
        # The life after brought what the one before had on its slate.
        (VERSION, "a", 100, 3, [("stored", 1, {AT: 155}, {})]),
        (VERSION, "a", 200, 1, [alive], (250, {"b": 6})),
    ):
        lives.take(ONE + encode_chunk(chunk))
    assert lives.of(100).home
    assert lives.of(50).home
    last = lives.last
    assert last is not None
    assert (last.boot, last.serial, last.alive_at) == (200, 2, 250)


def test_what_the_log_refused_was_no_sign_of_life() -> None:
    life = Life()
    life.ring()
    alive = life.now
    before = life.events.opening()

    def refuse(record: bytes, done: Any, *, idle: bool) -> None:
        raise Overload("disk full")

    life.log.append = refuse  # type: ignore[method-assign]
    life.ring()
    assert life.events.opening() == before
    life.records = life.events.opening()
    (gone,) = life.word()
    assert gone["at"] == alive


def test_a_segment_does_not_begin_with_a_sign_of_life_that_follows() -> None:
    life = Life()
    life.ring()
    alive, opened = life.now, []

    def append(record: bytes, done: Any, *, idle: bool) -> None:
        opened.extend(life.events.opening())
        life.records = [*opened, record]

    life.log.append = append  # type: ignore[method-assign]
    life.ring()
    assert life.word()[0]["at"] == life.now
    # Had no more of it come to the disk, no more would be known.
    life.records = opened
    (gone,) = life.word()
    assert (gone["at"], gone["serial"]) == (alive, 4)


def test_a_clock_that_was_set_back_makes_no_life_older_than_those_before() -> None:
    events = EventLog("a", KeptLog(), StepTimer(), lambda: 7)
    events.resume(Tail(), dict, newest=900)
    assert events.boot == 901


def test_a_life_that_told_nothing_is_not_told_of_and_neither_is_what_cannot_be_read() -> None:
    lives = Lives()
    assert lives.word("a") is None
    lives.take(b"\xc1")
    assert lives.word("a") is None
    events = EventLog("a", KeptLog(), StepTimer(), lambda: 7)
    before = Tail()
    before.marks = (5, {})
    events.resume(before, dict)
    lives.take(ONE + events.opening()[0])
    assert lives.word("a") is None
