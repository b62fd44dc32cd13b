"""The wheel: everybody is looked at when it is time, and by nobody twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chappe.push.comet.session import DeviceSession
from chappe.push.comet.wheel import SLOTS, Wheel
from tests.push.comet.rig import KeptSink


def session() -> DeviceSession:
    return DeviceSession(KeptSink(), 0)


def test_who_is_put_anew_is_looked_at_then_and_not_before() -> None:
    wheel, one = Wheel(100), session()
    wheel.put(one, 105)
    wheel.put(one, 110)
    assert wheel.advance(109) == []
    assert wheel.advance(110) == [one]
    assert wheel.sessions() == []


def test_who_is_dropped_is_looked_at_no_more() -> None:
    wheel, one = Wheel(100), session()
    wheel.put(one, 105)
    wheel.drop(one)
    assert wheel.advance(200) == []


def test_what_is_due_beyond_a_turn_is_looked_at_at_its_end() -> None:
    wheel, one = Wheel(100), session()
    wheel.put(one, 100 + 10 * SLOTS)
    assert wheel.advance(100 + SLOTS - 2) == []
    assert wheel.advance(100 + SLOTS - 1) == [one]


def test_a_clock_that_jumps_by_more_than_a_turn_leaves_nobody_out() -> None:
    wheel = Wheel(100)
    some = [session() for _ in range(3)]
    for at, each in enumerate(some):
        wheel.put(each, 101 + at * 400)
    assert wheel.advance(100_000) == some
    assert wheel.now == 100_000


@given(st.lists(st.tuples(st.integers(1, SLOTS - 1), st.integers(0, 50)), max_size=40))
def test_everybody_is_found_in_the_second_that_is_due(steps: list[tuple[int, int]]) -> None:
    wheel, now = Wheel(1000), 1000
    due: dict[DeviceSession, int] = {}
    for delay, passes in steps:
        one = session()
        wheel.put(one, now + delay)
        due[one] = now + delay
        now += passes
        found = wheel.advance(now)
        assert set(found) == {each for each, at in due.items() if at <= now}
        for each in found:
            del due[each]
    assert set(wheel.sessions()) == due.keys()
