"""The roll: seats and their ids."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from chappe.rooms.roll import EMPTY, Place, Seat, seat_id
from chappe.wire.rooms import State

numbers = st.integers(0, 2**31 - 1)
partitions = st.integers(0, 1023)


def test_a_seat_is_where_its_place_says():
    seat = Seat(3, Place(name="n", host="h", port=9, state=State.INIT))
    assert (seat.endpoint, seat.name, seat.running) == (("h", 9), "n", False)
    assert Seat(3, Place(name="n", host="h", port=9)).running


def test_a_place_may_say_more_than_this_program_knows():
    told = b'{"name":"n","host":"h","port":9,"state":0,"new":1}'
    assert msgspec.json.decode(told, type=Place).state is State.INIT


def test_an_empty_roll_knows_of_no_partition():
    assert (EMPTY.partitions, EMPTY.wanted, EMPTY.brokers) == (0, 0, {})


@given(numbers, partitions, numbers, partitions)
def test_no_two_seats_of_a_kind_have_one_id(one: int, its: int, other: int, others: int):
    same = (one, its) == (other, others)
    assert (seat_id(one, its) == seat_id(other, others)) is same


@given(numbers, numbers, partitions)
def test_ids_of_a_partition_are_in_the_order_of_its_row_and_none_is_0(
    one: int, other: int, partition: int
):
    assert (seat_id(one, partition) < seat_id(other, partition)) is (one < other)
    assert seat_id(one, partition) > 0


def test_replicas_of_a_partition_spread_over_routers():  # R12: own id % replicas
    for partition in (0, 1, 7):
        assert {seat_id(number, partition) % 4 for number in range(4)} == {0, 1, 2, 3}
