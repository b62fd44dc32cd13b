from __future__ import annotations

import math

import msgspec

from chappe.rooms.bench import Bench
from chappe.rooms.roll import Place

LEASE_S = 15.0


def row(*numbers: int, shift: int = 0) -> dict[int, bytes]:
    """Seats of nodes n1, n2, ..., by ids that are higher by `shift` than these numbers."""
    return {
        number + shift: msgspec.json.encode(Place(name=f"n{number}", host="h", port=number))
        for number in numbers
    }


def ids(bench: Bench, now: float) -> list[int]:
    return [seat.id for seat in bench.seats(now)]


def test_seats_are_in_the_order_of_their_ids_and_go_at_once():
    bench = Bench(LEASE_S)
    assert not bench.known
    bench.see(dict(reversed(row(1, 2, 3).items())), 0.0)
    assert bench.known
    assert ids(bench, 0.0) == [1, 2, 3]
    bench.see(row(1, 3), 1.0)
    assert ids(bench, 1.0) == [1, 3]
    assert bench.until(1.0) == math.inf


# R4: a registry that comes back empty.
def test_who_was_there_before_all_were_gone_stands_for_one_lease():
    bench = Bench(LEASE_S)
    bench.see(row(1, 2), 0.0)
    bench.see({}, 10.0)
    assert ids(bench, 10.0) == [1, 2]
    assert bench.until(10.0) == 25.0
    assert ids(bench, 24.9) == [1, 2]
    assert ids(bench, 25.0) == []
    assert bench.until(25.0) == math.inf


def test_who_sits_down_again_is_not_there_twice():
    bench = Bench(LEASE_S)
    bench.see(row(1, 2), 0.0)
    bench.see({}, 10.0)
    bench.see(row(2, shift=100), 11.0)
    assert ids(bench, 11.0) == [1, 102]
    bench.see(row(1, 2, shift=100), 12.0)
    assert ids(bench, 12.0) == [101, 102]


def test_who_went_before_it_was_known_that_all_were_forgotten_stands_too():
    bench = Bench(LEASE_S)
    bench.see(row(1, 2, 3), 0.0)
    bench.see(row(3, shift=100), 1.0)
    assert ids(bench, 1.0) == [103]
    bench.forget(1.5)
    assert ids(bench, 1.5) == [1, 2, 103]
    assert ids(bench, 16.5) == [103]


def test_who_was_long_gone_does_not_come_back():
    bench = Bench(LEASE_S)
    bench.see(row(1, 2), 0.0)
    bench.see(row(2), 1.0)
    bench.see(row(2), 20.0)
    bench.forget(20.0)
    assert ids(bench, 20.0) == [2]


def test_what_cannot_be_read_is_nobody():
    bench = Bench(LEASE_S)
    bench.see(row(1) | {2: b"{}", 3: b"\xff"}, 0.0)
    assert ids(bench, 0.0) == [1]
