"""The gateways of a broker: of two lives the later one counts (R11)."""

from __future__ import annotations

import pytest

from chappe.rooms.gateways import Gateways
from tests.rooms.rig import card


@pytest.fixture
def gateways() -> Gateways:
    return Gateways(10, hush_s=2.0, remember_s=60.0)


def test_a_card_of_an_earlier_life_is_refused(gateways: Gateways):
    later = gateways.maybe_admit(card(1, 5), 0.0)
    assert later is not None
    assert gateways.maybe_admit(card(1, 4), 0.0) is None
    assert gateways.maybe_admit(card(1, 5), 1.0) is later
    assert later.seen == 1.0


def test_a_later_life_takes_the_place_of_the_earlier(gateways: Gateways):
    earlier = gateways.maybe_admit(card(1, 5), 0.0)
    later = gateways.maybe_admit(card(1, 6), 0.0)
    assert earlier is not None
    assert later is not None
    assert later.number != earlier.number
    assert len(gateways) == 1
    assert [seat.id for seat in gateways.seats()] == [later.number]


def test_two_gateways_may_have_one_epoch(gateways: Gateways):
    assert gateways.maybe_admit(card(1), 0.0) is not gateways.maybe_admit(card(2), 0.0)
    assert len(gateways) == 2


def test_there_is_a_bound_on_gateways(gateways: Gateways):
    for id_ in range(10):
        assert gateways.maybe_admit(card(id_), 0.0) is not None
    assert gateways.maybe_admit(card(10), 0.0) is None
    assert len(gateways.by_number) == 10


def test_after_a_goodbye_what_was_on_its_way_is_not_believed(gateways: Gateways):
    gateways.maybe_admit(card(1, 5), 0.0)
    assert gateways.leave(card(1, 5), 10.0) is not None
    assert len(gateways) == 0
    assert gateways.maybe_admit(card(1, 5), 11.9) is None
    assert gateways.maybe_admit(card(1, 4), 69.9) is None


def test_one_that_was_said_goodbye_for_wrongly_may_be_back(gateways: Gateways):
    gateways.maybe_admit(card(1, 5), 0.0)
    gateways.leave(card(1, 5), 10.0)
    assert gateways.maybe_admit(card(1, 5), 12.1) is not None


def test_a_goodbye_that_comes_first_is_heard_as_well(gateways: Gateways):
    assert gateways.leave(card(1, 5), 10.0) is None
    assert gateways.maybe_admit(card(1, 5), 10.1) is None


def test_a_new_life_may_begin_right_after_a_goodbye(gateways: Gateways):
    gateways.maybe_admit(card(1, 5), 0.0)
    gateways.leave(card(1, 5), 10.0)
    assert gateways.maybe_admit(card(1, 6), 10.0) is not None


def test_a_late_goodbye_of_an_earlier_life_ends_nothing(gateways: Gateways):
    gateways.maybe_admit(card(1, 6), 0.0)
    assert gateways.leave(card(1, 5), 1.0) is None
    assert len(gateways) == 1


def test_one_that_is_forgotten_may_come_back_with_an_earlier_epoch(gateways: Gateways):
    later = gateways.maybe_admit(card(1, 5), 0.0)
    assert later is not None
    gateways.give_up(later)
    assert gateways.maybe_admit(card(1, 4), 1.0) is not None


def test_goodbyes_are_remembered_within_a_bound(gateways: Gateways):
    for id_ in range(30):
        gateways.leave(card(id_, 5), 0.0)
    assert len(gateways._left) == 10
    assert gateways.maybe_admit(card(29, 5), 0.0) is None
