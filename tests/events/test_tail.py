"""The tail: what one life told of its journals the next does not tell again, however many lives end
before they say a word of their own."""

from __future__ import annotations

import pytest

from chappe.events.eventlog import CHUNK_EVENTS, EventLog
from chappe.events.opening import BYTES_MAX, TOLD_MAX
from chappe.events.record import AT, FOLLOWING, GROUP, MESSAGE, Run
from chappe.events.tail import Tail
from tests.events.test_eventlog import KeptLog, StepTimer

STORED: Run = ("stored", 2, {AT: 5, FOLLOWING: 70}, {})
ACKED: Run = ("acked", 1, {AT: 6, MESSAGE: 70, GROUP: "all"}, {})
NOW = 1000
TOLD = {("stored", 70, ""), ("stored", 71, ""), ("acked", 70, "all")}


class Life:
    """One life of a node, that knows what the one before it said last."""

    def __init__(self, tail: Tail, position: int) -> None:
        self.timer, self.kept = StepTimer(), KeptLog()
        self.log = EventLog("here", self.kept, self.timer, lambda: NOW)
        self.positions = {"jobs": position}
        self.log.resume(
            tail,
            lambda: dict(self.positions),
            lambda: {broker: at * 10 for broker, at in self.positions.items()},
        )

    def tail(self) -> Tail:
        """What the next life finds, if this one is killed as soon as it has begun a segment."""
        tail = Tail()
        for record in self.log.opening():
            tail.take(b"\x91" + record)
        return tail


def write(log: EventLog) -> None:
    """Tell so much at once that it is written down before the interval is over."""
    log.add(("user_came", CHUNK_EVENTS, {AT: 7}, {}))


def test_a_segment_begins_with_what_was_told_since_the_last_word() -> None:
    life = Life(Tail(), position=3)
    life.log.start()
    life.log.add(STORED)
    write(life.log)
    assert life.tail().position("jobs") == 3
    assert life.tail().heard == {one for one in TOLD if one[0] == "stored"}
    life.log.add(ACKED)
    life.timer.ring()
    assert life.tail().heard == set()


def test_a_life_that_says_no_word_hands_on_what_the_one_before_it_told() -> None:
    first = Life(Tail(), position=3)
    first.log.start()
    first.log.add(STORED)
    first.log.add(ACKED)
    write(first.log)
    second = Life(first.tail(), position=9)
    third = Life(second.tail(), position=9)
    assert third.tail().position("jobs") == 3
    assert third.tail().epochs == {"jobs": 30}
    assert third.tail().heard == TOLD
    third.log.start()
    assert third.tail().position("jobs") == 9
    assert third.tail().epochs == {"jobs": 90}
    assert third.tail().heard == set()


def known(**positions: int) -> Tail:
    """What a life long ago said of some brokers."""
    tail = Tail()
    tail.marks, tail.heard = (5, positions), {("stored", 9, "")}
    return tail


def test_once_a_broker_is_told_of_nothing_of_it_need_be_handed_on() -> None:
    life = Life(known(jobs=3, mail=4), position=8)
    life.log.add(STORED)
    life.log.caught_up()
    # What it said of the other broker, and when, holds until that is told of, too.
    assert life.tail().marks == (5, {"jobs": 8, "mail": 4})
    assert life.tail().heard == {("stored", 9, "")}
    life.positions["mail"] = 6
    life.log.add(ACKED)
    life.log.caught_up()
    assert life.tail().marks == (NOW, {"jobs": 8, "mail": 6})
    assert life.tail().heard == set()
    # And the log says the same as a segment's beginning.
    assert [row["kind"] for row in life.kept.rows] == ["stored", "stored", "acked"]


def test_what_the_log_refused_is_not_said() -> None:
    life = Life(known(jobs=3), position=8)
    life.kept.full = True
    life.log.add(STORED)
    life.log.caught_up()
    life.log.start()
    assert life.tail().marks == (5, {"jobs": 3})
    assert life.tail().heard == {("stored", 9, "")}
    life.kept.full = False
    life.timer.ring()
    assert life.tail().marks == (NOW, {"jobs": 8})


@pytest.mark.parametrize("group", ["all", "a" * 255])
def test_what_a_segment_begins_with_is_bounded_however_much_was_told(group: str) -> None:
    life = Life(known(jobs=3), position=8)
    for first in range(0, 3 * TOLD_MAX, 1000):
        life.log.add(("acked", 1000, {AT: 6, FOLLOWING: first, GROUP: group}, {}))
    write(life.log)
    (record,) = life.log.opening()
    assert len(record) <= BYTES_MAX
    assert 1000 < len(life.tail().heard) <= TOLD_MAX + 1
    assert life.tail().position("jobs") == 3
