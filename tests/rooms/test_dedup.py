"""A message is delivered once, however many copies of it come (R11, R13)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chappe.rooms.dedup import Dedup


def test_only_the_first_of_several_copies_counts() -> None:  # R13
    dedup = Dedup(10)
    assert [dedup.first(each) for each in (1, 1, 2, 1, 2, 3)] == [
        True,
        False,
        True,
        False,
        False,
        True,
    ]


def test_no_more_ids_are_remembered_than_the_bound() -> None:  # R11
    dedup = Dedup(3)
    for each in range(100):
        dedup.first(each)
    assert len(dedup) == 3


def test_the_id_longest_unheard_of_is_forgotten_first() -> None:  # R11
    dedup = Dedup(2)
    dedup.first(1)
    dedup.first(2)
    dedup.first(1)  # a copy: it is remembered for longer
    dedup.first(3)
    assert not dedup.first(1)
    assert dedup.first(2)


@given(st.lists(st.integers(0, 30), max_size=60))
def test_within_the_bound_no_message_is_delivered_twice(ids: list[int]) -> None:
    dedup = Dedup(31)
    taken = [each for each in ids if dedup.first(each)]
    assert taken == list(dict.fromkeys(ids))
