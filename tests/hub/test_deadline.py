"""Deadlines: in order, once, cheap to cancel, and one alarm for all of them."""

from __future__ import annotations

import random

from chappe.hub.deadline import LAPSES_MAX, Alarm, Deadlines
from tests.endpoints.timer import ManualTimer


class Thing:
    def __init__(self, name: object, lapsed: list[object]) -> None:
        self._name = name
        self._lapsed = lapsed

    def lapse(self, now: float) -> None:
        self._lapsed.append(self._name)


def test_things_lapse_in_the_order_of_their_times_and_not_before() -> None:
    deadlines, lapsed = Deadlines(), list[object]()
    for when in (3.0, 1.0, 2.0, 2.0):
        deadlines.add(when, Thing(when, lapsed))
    deadlines.lapse(0.9)
    assert lapsed == []
    deadlines.lapse(2.0)
    assert lapsed == [1.0, 2.0, 2.0]
    assert (deadlines.next(), len(deadlines)) == (3.0, 1)


def test_what_was_cancelled_does_not_lapse_and_may_be_cancelled_again() -> None:
    deadlines, lapsed = Deadlines(), list[object]()
    entry = deadlines.add(1.0, Thing("a", lapsed))
    gone = deadlines.add(2.0, Thing("b", lapsed))
    deadlines.cancel(entry)
    deadlines.cancel(entry)
    deadlines.lapse(5.0)
    deadlines.cancel(gone)
    assert lapsed == ["b"]
    assert (deadlines.next(), len(deadlines)) == (None, 0)


def test_cancelled_entries_do_not_pile_up() -> None:
    deadlines, lapsed = Deadlines(), list[object]()
    kept = [deadlines.add(1e9 + i, Thing(i, lapsed)) for i in range(100)]
    for i in range(100_000):
        deadlines.cancel(deadlines.add(float(i % 977), Thing(i, lapsed)))
        assert len(deadlines._heap) <= 2 * len(kept) + 100
    assert len(deadlines) == 100


def test_any_mixture_of_adding_and_cancelling_leaves_what_was_not_cancelled() -> None:
    rng = random.Random(7)
    deadlines, lapsed, expected = Deadlines(), list[object](), {}
    for serial in range(2_000):
        when = float(rng.randrange(50))
        entry = deadlines.add(when, Thing(serial, lapsed))
        expected[serial] = (when, entry)
        if rng.random() < 0.7:
            name = rng.choice(list(expected))
            deadlines.cancel(expected.pop(name)[1])
    assert len(deadlines) == len(expected)
    deadlines.lapse(100.0)
    assert lapsed == sorted(expected, key=lambda name: (expected[name][0], name))


def test_a_flood_of_deadlines_lapses_in_slices() -> None:
    timer, deadlines, lapsed = ManualTimer(), Deadlines(), list[object]()
    for i in range(LAPSES_MAX + 1):
        deadlines.add(1.0, Thing(i, lapsed))
    deadlines.lapse(1.0)
    assert len(lapsed) == LAPSES_MAX
    Alarm(timer, deadlines).set()
    timer.move_to(1.0)
    assert len(lapsed) == LAPSES_MAX + 1


def test_one_alarm_rings_for_the_earliest_and_is_set_for_the_next() -> None:
    timer, deadlines, lapsed = ManualTimer(), Deadlines(), list[object]()
    alarm = Alarm(timer, deadlines)
    alarm.set()
    assert timer.pending == []
    for when in (5.0, 3.0, 4.0):
        deadlines.add(when, Thing(when, lapsed))
        alarm.set()
    assert timer.pending == [3.0]
    timer.move_to(4.0)
    assert lapsed == [3.0, 4.0]
    assert timer.pending == [5.0]
    alarm.stop()
    timer.move_to(9.0)
    assert lapsed == [3.0, 4.0]
