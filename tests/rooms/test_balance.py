"""Whose turn it is: by turns, or by weights that are measured or set (R6)."""

from __future__ import annotations

from collections import Counter

import pytest

from chappe.rooms.balance import Balance
from chappe.rooms.options import RoomsOptions
from chappe.rooms.pulse import Neighbour, Pulses
from chappe.rooms.roll import Seat
from chappe.wire.rooms import RoleKind
from tests.rooms.rig import Bench, seats

SEATS = seats(1, 2, 3)


@pytest.fixture
def pulses() -> Pulses:
    bench = Bench()
    pulses = Pulses(
        sender=RoleKind.PUBLISHER,
        role=RoleKind.PROXY,
        options=RoomsOptions(),
        post=bench.post,
        clock=bench.clock,
    )
    pulses.watch(SEATS, bench.now)
    return pulses


def known(pulses: Pulses, id: int) -> Neighbour:
    neighbour = pulses.get(id)
    assert neighbour is not None
    return neighbour


def chosen(balance: Balance, count: int, among: tuple[Seat, ...] = SEATS) -> Counter[int]:
    return Counter(balance.choose(among).id for _ in range(count))


def test_turns_go_round(pulses: Pulses):
    balance = Balance("turns", pulses)
    assert [balance.choose(SEATS).id for _ in range(7)] == [1, 2, 3, 1, 2, 3, 1]


def test_turns_go_on_where_they_were_when_one_is_gone_or_new(pulses: Pulses):
    balance = Balance("turns", pulses)
    assert [balance.choose(SEATS).id for _ in range(2)] == [1, 2]
    assert balance.choose(seats(1, 3)).id == 3
    assert balance.choose(seats(1, 2, 3)).id == 1
    balance.start_after(SEATS[1])
    assert balance.choose(SEATS).id == 3


def test_several_are_different_ones(pulses: Pulses):
    for kind in ("turns", "weights"):
        balance = Balance(kind, pulses)  # type: ignore[arg-type]
        for _ in range(20):
            assert sorted(seat.id for seat in balance.several(SEATS, 3)) == [1, 2, 3]
            assert len({seat.id for seat in balance.several(SEATS, 2)}) == 2
        assert len(balance.several(SEATS[:1], 3)) == 1


def test_several_take_turns_as_well(pulses: Pulses):
    balance = Balance("turns", pulses)
    count = Counter(seat.id for _ in range(30) for seat in balance.several(SEATS, 2))
    assert count == {1: 20, 2: 20, 3: 20}


def test_weights_are_measured_from_success_and_latency(pulses: Pulses):
    known(pulses, 2).success = 0.5
    known(pulses, 3).round_trip_s = 0.003
    balance = Balance("weights", pulses)
    assert balance.weight(SEATS[1]) == pytest.approx(balance.weight(SEATS[0]) / 2)
    assert balance.weight(SEATS[2]) == pytest.approx(balance.weight(SEATS[0]) / 4)
    assert chosen(balance, 700) == {1: 400, 2: 200, 3: 100}


def test_a_weight_that_is_set_overrides_what_is_measured(pulses: Pulses):
    balance = Balance("weights", pulses)
    balance.see({1: 1.0, 2: 2.0, 3: 7.0})
    assert chosen(balance, 100) == {1: 10, 2: 20, 3: 70}


def test_shares_are_spread_and_not_given_in_one_go(pulses: Pulses):
    balance = Balance("weights", pulses)
    balance.see({1: 5.0, 2: 1.0, 3: 1.0})
    assert [balance.choose(SEATS).id for _ in range(7)] == [1, 1, 2, 1, 3, 1, 1]


@pytest.mark.parametrize("kind", ["turns", "weights"])
def test_weight_0_takes_nothing(pulses: Pulses, kind: str):
    balance = Balance(kind, pulses)  # type: ignore[arg-type]
    balance.see({2: 0.0})
    assert [seat.id for seat in balance.open(SEATS)] == [1, 3]
    assert chosen(balance, 60, tuple(balance.open(SEATS)))[2] == 0


def test_where_all_are_to_take_nothing_all_do(pulses: Pulses):
    balance = Balance("turns", pulses)
    balance.see({1: 0.0, 2: 0.0, 3: -1.0})
    assert list(balance.open(SEATS)) == list(SEATS)


def test_a_weight_out_of_bounds_is_cut(pulses: Pulses):
    balance = Balance("weights", pulses)
    balance.see({1: -5.0, 2: 1e300, 3: 1e6})
    assert [balance.weight(seat) for seat in SEATS] == [0.0, 1e6, 1e6]


def test_of_seats_that_are_gone_nothing_is_kept(pulses: Pulses):
    balance = Balance("weights", pulses)
    balance.see(dict.fromkeys(range(1, 1000), 1.0))
    for number in range(1, 900):
        balance.choose(seats(number, number + 1))
    assert len(balance._behind) <= 9
