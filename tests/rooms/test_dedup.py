"""A message is delivered once, however many copies of it come, and however late (R2, R11, R13)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chappe.ids import NODE_MAX, SEQUENCE_BITS
from chappe.rooms.dedup import Dedup


def id_of(time: int, node: int = 0) -> int:
    """The id of a message that a node was given at that time by its clock."""
    return time << 22 | node << SEQUENCE_BITS


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


def test_no_more_is_remembered_than_the_bound() -> None:  # R11
    dedup = Dedup(3)
    for time in range(3 * NODE_MAX):
        dedup.first(id_of(time, node=time % (NODE_MAX + 1)))
    assert len(dedup) == 3
    assert len(dedup._floors) <= NODE_MAX + 1


def test_the_id_longest_unheard_of_is_forgotten_first() -> None:  # R11
    dedup = Dedup(2)
    dedup.first(1)
    dedup.first(2)
    dedup.first(1)  # a copy: it is remembered for longer
    dedup.first(3)
    assert [each in dedup for each in (1, 2, 3)] == [True, False, True]


def test_a_copy_that_comes_after_its_id_was_forgotten_is_not_the_first() -> None:  # R2
    dedup = Dedup(100)
    for time in range(1000):
        assert dedup.first(id_of(time))
    assert not any(dedup.first(id_of(time)) for time in range(1000))


def test_clocks_of_nodes_that_are_hours_apart_lose_nothing() -> None:
    dedup = Dedup(10)
    hours = 5 * 3_600_000
    for time in range(1000):
        assert dedup.first(id_of(hours + time, node=1))
        assert dedup.first(id_of(time, node=2))


def test_what_was_overtaken_by_fewer_than_are_remembered_is_not_lost() -> None:
    dedup = Dedup(100)
    for time in range(0, 1000, 2):
        assert dedup.first(id_of(time))
        # Overtaken by 49 others.
        assert time < 100 or dedup.first(id_of(time - 97))


@given(st.lists(st.integers(0, 30), max_size=60))
def test_within_the_bound_each_message_is_delivered_once(ids: list[int]) -> None:
    dedup = Dedup(31)
    taken = [each for each in ids if dedup.first(each)]
    assert taken == list(dict.fromkeys(ids))


@given(
    st.lists(st.builds(id_of, st.integers(0, 20), st.integers(0, 2)), max_size=80),
    st.integers(1, 10),
)
def test_whatever_the_bound_no_message_is_delivered_twice(ids: list[int], most: int) -> None:  # R2
    dedup = Dedup(most)
    taken = [each for each in ids if dedup.first(each)]
    assert len(taken) == len(set(taken))
