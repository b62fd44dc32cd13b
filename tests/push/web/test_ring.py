"""Clients are spread over comets, and stay where they are (P11)."""

from __future__ import annotations

from collections import Counter

import pytest

from chappe.errors import Overload
from chappe.push.comets import CometCard
from chappe.push.web.ring import choose_comet

CLIENTS = [f"c01{n:05x}6b49d200" for n in range(20_000)]


def comets(count):
    return [CometCard(n, f"comet-{n}", f"10.0.0.{n}:7403") for n in range(count)]


def placed(cards):
    return {client: choose_comet(client, cards).name for client in CLIENTS}


@pytest.mark.parametrize("count", [2, 3, 10])
def test_clients_are_spread_evenly(count):  # P11
    found = Counter(placed(comets(count)).values())
    fair = len(CLIENTS) / count
    # Five standard deviations of a fair throw.
    slack = 5 * (fair * (1 - 1 / count)) ** 0.5
    assert len(found) == count
    assert all(abs(held - fair) < slack for held in found.values()), found


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_comet_that_goes_moves_its_own_clients_only(count):  # P11
    before, after = placed(comets(count)), placed(comets(count)[1:])
    for client in CLIENTS:
        assert before[client] == after[client] or before[client] == "comet-0"


def test_a_comet_that_comes_takes_its_share_and_no_other_moves():  # P11
    before, after = placed(comets(9)), placed(comets(10))
    moved = [client for client in CLIENTS if before[client] != after[client]]
    assert all(after[client] == "comet-9" for client in moved)
    assert 0.08 < len(moved) / len(CLIENTS) < 0.12


def test_the_order_of_comets_and_their_addresses_do_not_matter():
    cards = comets(5)
    elsewhere = [card._replace(address="10.9.9.9:1", server=card.server + 7) for card in cards]
    assert placed(cards) == placed(cards[::-1]) == placed(elsewhere)


def test_without_any_comet_one_is_to_come_back():
    with pytest.raises(Overload, match="comet"):
        choose_comet("c1", [])
