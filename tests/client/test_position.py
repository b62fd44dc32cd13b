"""Tracks: what came, what was taken, and in which epoch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chappe.client.position import Position, Track


def test_a_message_is_admitted_once_and_offsets_never_go_back():
    track = Track("a", 3)
    assert [track.admit(n) for n in (3, 4, 4, 2, 7, 6, 8)] == [
        False,
        True,
        False,
        False,
        True,
        False,
        True,
    ]
    assert track.came == ("a", 8)


def test_what_waits_in_the_inbox_is_not_taken_yet():
    track = Track("a", 0)
    for n in (1, 2, 3):
        track.admit(n)
    assert (track.came, track.taken, track.empty) == (("a", 3), ("a", 0), False)
    track.take(1)
    track.take(2)
    assert (track.taken, track.empty) == (("a", 2), False)
    track.take(3)
    assert (track.taken, track.empty) == (("a", 3), True)


def test_a_new_epoch_counts_once_the_messages_of_the_old_one_are_taken():
    track = Track("a", 0)
    track.admit(1)
    track.move("b", 10)
    track.admit(11)
    assert (track.came, track.taken) == (("b", 11), ("a", 0))
    track.take(1)
    assert track.taken == ("b", 10)
    track.take(11)
    assert track.taken == ("b", 11)


def test_moving_within_an_epoch_goes_forward_only():
    track = Track("a", 5)
    track.move("a", 3)
    assert track.came == ("a", 5)
    track.move("a", 9)
    assert track.came == track.taken == ("a", 9)
    track.restart("a", 2)
    assert track.came == track.taken == ("a", 2)


Step = st.one_of(
    st.tuples(st.just("came"), st.integers(1, 30)),
    st.just(("took", 0)),
    st.tuples(st.just("moved"), st.integers(0, 3)),
)


@given(st.lists(Step, max_size=60))
def test_a_track_agrees_with_a_list_of_all_that_waits(steps):
    track, newest, waiting, taken = Track("0", 0), Position("0", 0), [], Position("0", 0)
    for step, n in steps:
        if step == "came":
            fresh = n > newest.offset
            assert track.admit(n) is fresh
            if fresh:
                newest = Position(newest.epoch, n)
                waiting.append(newest)
        elif step == "took" and waiting:
            taken = waiting.pop(0)
            track.take(taken.offset)
        elif step == "moved" and str(n) != newest.epoch:
            newest = Position(str(n), 0)
            track.move(*newest)
        assert track.came == newest
        assert track.empty is not any(waiting)
        if waiting and waiting[0].epoch == taken.epoch:
            # Messages of an epoch that came back are those of the older one.
            assert track.taken.epoch == taken.epoch
        if not waiting:
            assert track.taken == newest
