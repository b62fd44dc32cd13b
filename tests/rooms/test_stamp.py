"""Stamps: what links took, by clocks that do not agree."""

from __future__ import annotations

from chappe.rooms.stamp import Delays, maybe_delays, stamp
from chappe.wire.rooms import (
    Card,
    Probe,
    RoleKind,
    decode_room_ops,
    encode_room_op,
    join_room_ops,
)

CARD = Card("gw", 1, "127.0.0.1", 7404)


def make_probe():
    return Probe(1, 0, 0, 7, CARD, [])


def carry(probe, *, proxy_ahead=0, broker_ahead=0):
    """Bring it on its way: 100 us to the proxy, 200 to the broker; 10 and 20 in between."""
    stamp(probe, "gw", RoleKind.PUBLISHER, 1_000, 1_000, proxy_ahead)
    came = 1_100 + proxy_ahead
    stamp(probe, "px", RoleKind.PROXY, came, came + 10, broker_ahead - proxy_ahead)
    came = 1_310 + broker_ahead
    stamp(probe, "bk", RoleKind.BROKER, came, came + 20, -broker_ahead)
    return probe


def test_a_stamp_is_put_behind_the_others_and_travels():  # R15
    probe = carry(make_probe())
    (back,) = decode_room_ops(join_room_ops([encode_room_op(probe)]))
    assert [(each.name, each.role) for each in back.stamps] == [
        ("gw", RoleKind.PUBLISHER),
        ("px", RoleKind.PROXY),
        ("bk", RoleKind.BROKER),
    ]
    assert back == probe


def test_the_probe_that_was_stamped_is_given_back():
    probe = make_probe()
    assert stamp(probe, "gw", RoleKind.PUBLISHER, 1, 1) is probe


def test_each_link_has_what_it_took_and_roles_have_the_rest():
    assert maybe_delays(carry(make_probe()), 1_630, 10_000) == Delays(100, 200, 300)


def test_clocks_that_differ_do_not_show_if_it_is_known_by_how_much():
    probe = carry(make_probe(), proxy_ahead=5_000_000, broker_ahead=-7_000_000)
    assert maybe_delays(probe, 1_630, 10_000) == Delays(100, 200, 300)


def test_a_publisher_need_not_know_how_far_a_proxys_clock_is_ahead():
    probe = make_probe()
    stamp(probe, "gw", RoleKind.PUBLISHER, 1_000, 1_000)
    stamp(probe, "px", RoleKind.PROXY, 901_100, 901_110, -1_200_000)
    stamp(probe, "bk", RoleKind.BROKER, -298_690, -298_670, 300_000)
    assert maybe_delays(probe, 1_630, 10_000) == Delays(100, 200, 300)


def test_a_clock_that_jumped_makes_no_link_slower_than_the_way_or_faster_than_nothing():
    probe = carry(make_probe())
    assert maybe_delays(probe, 1_630 + 60_000_000, 700).to_gateway == 700
    assert maybe_delays(probe, 1_630 - 60_000_000, 700).to_gateway == 0


def test_a_probe_that_was_not_at_each_role_once_and_in_order_says_nothing():
    short = make_probe()
    stamp(short, "gw", RoleKind.PUBLISHER, 1, 1)
    assert maybe_delays(short, 2, 10) is None
    swapped = carry(make_probe())
    swapped.stamps.reverse()
    assert maybe_delays(swapped, 2_000, 1_000) is None
    long = carry(make_probe())
    stamp(long, "bk", RoleKind.BROKER, 1, 1)
    assert maybe_delays(long, 2_000, 1_000) is None
