"""Which link it was that probes were lost on."""

from __future__ import annotations

import pytest

from chappe.rooms.blame import Path, blame
from chappe.rooms.linkstats import End, Link
from chappe.wire.rooms import RoleKind

USER = End(RoleKind.PUBLISHER, "gw")
GATEWAY = End(RoleKind.GATEWAY, "gw")


def proxy(number):
    return End(RoleKind.PROXY, f"p{number}", number)


def broker(number):
    return End(RoleKind.BROKER, f"b{number}", number, 0)


def path(p, b):
    return Path(Link(USER, proxy(p)), Link(proxy(p), broker(b)), Link(broker(b), GATEWAY))


def judge(proxies, brokers, lost):
    """Send one probe by each way, lose some of them."""
    ways = [(p, b) for p in range(proxies) for b in range(brokers)]
    return blame([path(*way) for way in ways if way not in lost], [path(*way) for way in lost])


def test_if_all_come_nobody_is_blamed():
    assert not judge(3, 3, [])


def test_all_by_one_proxy_are_its_links_fault():  # R15
    assert judge(3, 4, [(1, b) for b in range(4)]) == {Link(USER, proxy(1)): 4}


def test_all_by_one_broker_are_its_links_fault():  # R15
    assert judge(3, 4, [(p, 2) for p in range(3)]) == {Link(broker(2), GATEWAY): 3}


def test_one_that_others_vouch_for_on_both_sides_is_lost_in_between():  # R15
    assert judge(3, 4, [(1, 2)]) == {Link(proxy(1), broker(2)): 1}


def test_two_faults_at_once_are_both_found():
    lost = [*((0, b) for b in range(4)), (2, 3)]
    assert judge(3, 4, lost) == {Link(USER, proxy(0)): 4, Link(proxy(2), broker(3)): 1}


def test_a_dead_proxy_and_a_dead_broker_are_both_found():
    lost = {(0, b) for b in range(4)} | {(p, 3) for p in range(3)}
    assert judge(3, 4, sorted(lost)).keys() == {Link(USER, proxy(0)), Link(broker(3), GATEWAY)}


def test_an_only_proxy_that_is_dead_is_blamed_rather_than_all_brokers():
    assert judge(1, 3, [(0, b) for b in range(3)]) == {Link(USER, proxy(0)): 3}


def test_what_cannot_be_told_apart_is_blamed_together():
    assert judge(1, 1, [(0, 0)]) == dict.fromkeys(path(0, 0), 1)
    both = judge(2, 2, [(p, b) for p in range(2) for b in range(2)])
    assert both == {
        **{Link(USER, proxy(p)): 2 for p in range(2)},
        **{Link(broker(b), GATEWAY): 2 for b in range(2)},
    }


@pytest.mark.parametrize("mask", range(1, 64))
def test_every_loss_is_explained_and_nobody_is_blamed_whom_others_vouch_for(mask):
    ways = [(p, b) for p in range(2) for b in range(3)]
    lost = [way for number, way in enumerate(ways) if mask >> number & 1]
    blamed = judge(2, 3, lost)
    assert all(any(link in blamed for link in path(*way)) for way in lost)
    assert not any(link in blamed for way in ways if way not in lost for link in path(*way))
