"""Each counter is taken once, and none that is too far behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chappe.rooms.replay import WINDOW, ReplayWindow

near = st.integers(0, 3 * WINDOW)
far = st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**64 - 1])


@given(st.lists(near | far, max_size=200))
def test_a_counter_is_taken_once_and_only_within_the_window(counters):
    window, taken = ReplayWindow(), set()
    for counter in counters:
        behind = bool(taken) and counter <= max(taken) - WINDOW
        assert window.take(counter) == (counter not in taken and not behind)
        if not behind:
            taken.add(counter)


def test_datagrams_may_overtake_each_other_by_1023():
    window = ReplayWindow()
    assert window.take(5000)
    assert window.take(5000 - 1023)
    assert not window.take(5000 - 1023)
    assert not window.take(5000 - 1024)
    assert not window.take(0)


def test_all_of_a_window_are_told_apart():
    window = ReplayWindow()
    assert window.take(1024)
    assert all(window.take(counter) for counter in range(1, 1024, 2))
    assert all(window.take(counter) for counter in range(2, 1024, 2))
    assert not any(window.take(counter) for counter in range(1025))


def test_a_leap_leaves_nothing_of_before():
    window = ReplayWindow()
    assert window.take(3)
    assert window.take(2**64 - 1)
    assert not window.take(3)
    assert window.take(2**64 - 2)
