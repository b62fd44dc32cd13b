"""The roll: seats and their ids."""

from __future__ import annotations

import msgspec

from chappe.rooms.roll import EMPTY, Place, Seat
from chappe.wire.rooms import State


def test_a_seat_is_where_its_place_says():
    seat = Seat(3, Place(name="n", host="h", port=9, state=State.INIT))
    assert (seat.endpoint, seat.name, seat.running) == (("h", 9), "n", False)
    assert Seat(3, Place(name="n", host="h", port=9)).running


def test_a_place_may_say_more_than_this_program_knows():
    told = b'{"name":"n","host":"h","port":9,"state":0,"new":1}'
    assert msgspec.json.decode(told, type=Place).state is State.INIT


def test_an_empty_roll_knows_of_no_partition():
    assert (EMPTY.partitions, EMPTY.wanted, EMPTY.brokers) == (0, 0, {})
