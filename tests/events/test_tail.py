"""The tail: what one life told of its journals the next does not tell again, however many lives end
before they say a word of their own."""

from __future__ import annotations

from chappe.events.eventlog import CHUNK_EVENTS, EventLog
from chappe.events.record import AT, FOLLOWING, GROUP, MESSAGE, Run
from chappe.events.tail import Tail
from tests.events.test_eventlog import KeptLog, StepTimer

STORED: Run = ("stored", 2, {AT: 5, FOLLOWING: 70}, {})
ACKED: Run = ("acked", 1, {AT: 6, MESSAGE: 70, GROUP: "all"}, {})
TOLD = {("stored", 70, ""), ("stored", 71, ""), ("acked", 70, "all")}


class Life:
    """One life of a node, that knows what the one before it said last."""

    def __init__(self, tail: Tail, position: int) -> None:
        self.timer = StepTimer()
        self.log = EventLog("here", KeptLog(), self.timer, lambda: 1000)
        self.log.resume(tail, lambda: {"jobs": position}, lambda: {"jobs": position * 10})

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
