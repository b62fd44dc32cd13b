"""Producers: which of their numbers are remembered (Q5)."""

from __future__ import annotations

from tests.queues.story import LIMITS, made, stored


def test_producers_numbers_that_come_out_of_order_are_forgotten_the_lowest_first() -> None:  # Q5
    state = made()
    for at, seq in enumerate([2, 3, 1, 4], 1):
        state.apply(stored(4, at, producer="p", producer_seq=seq), LIMITS)
    assert list(state.producers["p"]) == [2, 3, 4]


def test_the_producer_that_was_silent_longest_is_forgotten() -> None:  # Q5
    state = made()
    for at, name in enumerate(["p", "q", "p", "r"], 1):
        state.apply(stored(4, at, producer=name, producer_seq=at), LIMITS)
    assert list(state.producers) == ["p", "r"]
