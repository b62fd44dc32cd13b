"""What probes find of proxies weighs them (R6)."""

from __future__ import annotations

import pytest

from chappe.rooms.balance import Balance
from chappe.rooms.options import RoomsOptions
from chappe.rooms.pulse import Pulses
from chappe.rooms.survey import Quality
from chappe.wire.rooms import RoleKind
from tests.rooms.test_prober import World, make_roll


class Silent:
    def send(self, to, op):
        pass


@pytest.fixture
def weighed():
    """Two proxies by weight, and a world whose probes weigh them."""
    roll = make_roll(2, (2,))
    world = World(roll)
    pulses = Pulses(
        sender=RoleKind.PUBLISHER,
        role=RoleKind.PROXY,
        options=RoomsOptions(),
        post=Silent(),
        clock=world.clock,
    )
    pulses.watch(roll.proxies, world.clock.now)
    balance = Balance("weights", pulses)
    world.prober.on_quality = balance.probe
    return world, balance, roll.proxies


def test_a_proxy_by_which_probes_are_lost_is_given_less_though_it_answers(weighed):  # R6
    world, balance, (first, second) = weighed
    assert balance.weight(first) == balance.weight(second)
    world.dead.add(("p1", "b0.0"))
    world.run(12)
    assert balance.weight(second) / balance.weight(first) == pytest.approx(0.5, abs=0.15)
    given = [balance.choose([first, second]).id for _ in range(300)]
    assert given.count(1) / given.count(0) == pytest.approx(0.5, abs=0.15)


def test_a_slower_way_is_given_less(weighed):  # R6
    _, balance, (first, second) = weighed
    balance.probe({0: Quality(1.0, 0.001), 1: Quality(1.0, 0.009)})
    assert balance.weight(first) == pytest.approx(5 * balance.weight(second))


def test_what_somebody_outside_has_set_counts_more_than_probes(weighed):
    _, balance, (first, _) = weighed
    balance.probe({0: Quality(0.0, 9.0)})
    balance.see({0: 3.0})
    assert balance.weight(first) == 3.0
