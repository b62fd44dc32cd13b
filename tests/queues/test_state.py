"""State: the fold of a queue's records (Q11)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from chappe.errors import StorageError
from chappe.queues.record import Done, Made, Registered, Removed, Stored, Tried, Unregistered
from tests.queues.story import LIMITS, MADE, SEEDS, Story, made, stored, told


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_figures_stay_within_what_there_is(seed: int) -> None:
    state = made()
    for record in Story(seed).records():
        state.apply(record, LIMITS)
        total = sum(state.heads[lane] for lane in state.lanes)
        assert 0 <= state.depth() <= total
        assert 0 <= state.waiting_bytes() <= 2 * total
        assert state.depth() <= sum(state.load(lane) for lane in state.lanes)
        for lane in state.lanes:
            assert 0 <= state.load(lane) <= state.heads[lane]
            assert 0 <= state.low(lane) <= state.heads[lane]
        assert len(state.producers) <= LIMITS.producers_max
        assert all(len(seen) <= LIMITS.producer_window for seen in state.producers.values())
        assert state.delayed.keys() == set(state.delayed_seqs.values())


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_to_take_a_message_or_its_end_twice_is_to_take_it_once(seed: int) -> None:
    state, twice = made(), made()
    for record in Story(seed).records():
        state.apply(record, LIMITS)
        for _ in range(2 if isinstance(record, Stored | Done | Tried | Made) else 1):
            twice.apply(record, LIMITS)
    assert told(twice) == told(state)


def test_a_group_begins_with_all_that_is_there_or_with_what_comes() -> None:  # Q8
    state = made(stored(4, 1), stored(4, 2))
    state.apply(Registered(1, "all", "", None, None, 5), LIMITS)
    state.apply(Registered(1, "new", "", None, None, 5, new=True), LIMITS)
    state.apply(stored(4, 3), LIMITS)
    lags = {group.name: group.at(4).lag(3) for group in state.readers()}
    assert lags == {"all": 3, "new": 1}
    assert (state.groups["all"].bytes, state.groups["new"].bytes) == (6, 2)


def test_a_group_that_comes_later_begins_where_the_slowest_is() -> None:
    state = made(Registered(1, "a", ""), stored(4, 1), stored(4, 2), Done(1, 4, "a", [1, 1], 2))
    state.apply(Registered(1, "b", ""), LIMITS)
    assert state.groups["b"].at(4).lag(2) == 1
    assert state.groups["b"].bytes == 2


def test_what_the_last_group_was_done_with_does_not_come_back_when_it_goes() -> None:
    state = made(
        Registered(1, "a", ""),
        stored(4, 1),
        stored(4, 2),
        stored(7, 1),
        Done(1, 4, "a", [1, 2], 4),
        Unregistered(1, "a"),
    )
    assert (state.depth(), state.load(4), state.load(7), state.low(4)) == (1, 0, 1, 2)
    assert state.waiting_bytes() == 2
    state.apply(Registered(1, "b", ""), LIMITS)
    assert (state.depth(), state.groups["b"].at(4).lag(2)) == (1, 0)
    assert state.waiting_bytes() == 2


def test_a_consumer_that_is_awaited_does_not_stand_for_those_who_are_not_there() -> None:  # Q6
    state = made(
        stored(4, 1),
        Registered(1, "x", "", None, None, 5, expected=True),
        stored(4, 2, consumers=["x"]),
        stored(4, 3),
    )
    assert (state.depth(), state.load(4), state.low(4), state.waiting_bytes()) == (3, 3, 0, 6)
    state.apply(Registered(1, "a", ""), LIMITS)
    assert state.groups["a"].at(4).lag(3) == 3
    assert state.groups["a"].bytes == 6
    state.apply(Unregistered(1, "a"), LIMITS)
    assert (state.depth(), state.waiting_bytes(), state.low(4)) == (3, 6, 0)


def test_what_nobody_came_for_in_time_is_counted_no_more() -> None:  # Q6
    state = made(Registered(1, "x", "", None, None, 5, expected=True))
    for seq in range(1, 4):
        state.apply(stored(4, seq, consumers=["x"]), LIMITS)
    state.apply(Done(1, 4, "x", [1, 2], 4), LIMITS)
    assert (state.depth(), state.waiting_bytes()) == (1, 2)
    state.apply(Done(1, 4, "x", [3, 3], 2), LIMITS)
    state.apply(Unregistered(1, "x"), LIMITS)
    assert (state.depth(), state.waiting_bytes(), state.low(4)) == (0, 0, 3)


def test_a_group_that_has_nothing_left_holds_no_bytes_whatever_was_lost() -> None:
    state = made(Registered(1, "a", ""), stored(4, 1), stored(4, 2))
    state.apply(Done(1, 4, "a", [1, 2], 0), LIMITS)  # damaged: nobody knows how large
    assert state.waiting_bytes() == 0


def test_keys_stay_in_their_lanes_while_something_waits() -> None:  # Q4
    state = made(stored(4, 1))
    assert state.key_lanes == 2
    state.apply(msgspec.structs.replace(MADE, lanes=[4, 7, 9]), LIMITS)
    assert (state.lanes, state.key_lanes) == ([4, 7, 9], 2)
    empty = made()
    empty.apply(msgspec.structs.replace(MADE, lanes=[4, 7, 9]), LIMITS)
    assert empty.key_lanes == 3


def test_records_that_are_no_part_of_a_queues_life_are_refused() -> None:
    with pytest.raises(StorageError, match="Removed"):
        made(Removed(1))
