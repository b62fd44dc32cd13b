"""Homes: every node finds the same one, and a node that comes or goes moves its own share only."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.cluster import homes as module
from chappe.cluster.homes import Homes, mix, stable_hash
from chappe.cluster.peer import Peer
from chappe.events.counting import CountingRecorder
from tests.cluster.hamlet import HandLink

NAMES = st.sets(st.text("abcdefgh-0123456789", min_size=1, max_size=8), min_size=1, max_size=6)
ADDRESSES = [f"topic:t{n}" for n in range(60)]


def peer(name: str) -> Peer:
    link: Any = HandLink(name, lambda link, reason: None)
    waker: Any = None
    return Peer(link, waker, CountingRecorder(), bytes_max=1, pending_max=1)


def seen_from(name: str, names: set[str]) -> Homes:
    homes = Homes(name)
    homes.see(peer(other) for other in sorted(names - {name}))
    return homes


def home_of(homes: Homes, name: str, address: str, app: str = "default") -> str:
    """The name of an address's home, as one node sees it."""
    found = homes.home(app, address)
    return name if found is None else found.name


def placed(names: set[str]) -> dict[str, str]:
    """The homes of all addresses, on which all nodes have to agree."""
    views = []
    for name in sorted(names):
        homes = seen_from(name, names)
        views.append({address: home_of(homes, name, address) for address in ADDRESSES})
    assert all(view == views[0] for view in views)
    return views[0]


@given(NAMES)
def test_all_nodes_find_the_same_home_whatever_the_order_they_met_in(names: set[str]) -> None:
    homes = placed(names)
    assert set(homes.values()) <= names
    name = min(names)
    backwards = Homes(name)
    backwards.see(peer(other) for other in sorted(names - {name}, reverse=True))
    assert {a: home_of(backwards, name, a) for a in ADDRESSES} == homes


@given(NAMES, st.data())
def test_a_node_that_goes_moves_its_own_share_only(names: set[str], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(names)))
    before, left = placed(names), names - {gone}
    if left:
        after = placed(left)
        assert {a: home for a, home in after.items() if before[a] != gone} == {
            a: home for a, home in before.items() if home != gone
        }


def test_each_node_is_home_to_about_its_share() -> None:
    names = {f"node-{n}" for n in range(5)}
    homes = seen_from("node-0", names)
    shares = Counter(home_of(homes, "node-0", f"topic:{n}") for n in range(5000))
    assert set(shares) == names
    assert all(850 < share < 1150 for share in shares.values())


def test_the_same_name_in_two_apps_need_not_live_on_one_node() -> None:
    homes = seen_from("a", {"a", "b", "c"})
    apps = [{t: home_of(homes, "a", t, app) for t in ADDRESSES} for app in ("shop", "chat")]
    assert apps[0] != apps[1]


def test_a_node_without_others_is_home_to_everything() -> None:
    homes = Homes("a")
    assert [homes.home("default", address) for address in ADDRESSES] == [None] * len(ADDRESSES)


def test_what_was_looked_up_before_is_placed_anew_when_nodes_change() -> None:
    homes, b = Homes("a"), peer("b")
    homes.see([b])
    at_b = [address for address in ADDRESSES if homes.home("default", address) is b]
    assert 0 < len(at_b) < len(ADDRESSES)
    homes.see(())
    assert {homes.home("default", address) for address in at_b} == {None}
    # The same node after a restart is another peer.
    again = peer("b")
    homes.see([again])
    assert {homes.home("default", address) for address in at_b} == {again}


def test_what_is_remembered_is_bounded_and_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KNOWN_MAX", 10)
    homes = seen_from("a", {"a", "b", "c"})
    first = [home_of(homes, "a", address) for address in ADDRESSES]
    assert first == [home_of(homes, "a", address) for address in ADDRESSES]
    assert len(homes._known) <= 10


def test_nodes_with_the_same_number_are_told_apart_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "stable_hash", lambda *words: 7)
    assert set(placed({"a", "b", "c"}).values()) == {"c"}


def test_the_numbers_are_the_same_in_every_release() -> None:
    # Nodes of two releases in one cluster must agree: these may never change.
    assert stable_hash("default", "topic:t") == 0xE03FBBCAB8E85946
    assert stable_hash("ab", "c") != stable_hash("a", "bc")
    assert mix(1) == 0x5692161D100B05E5
    assert mix((1 << 64) - 1) == 0xB4D055FCF2CBBD7B


@given(st.sets(st.integers(0, (1 << 64) - 1), min_size=2, max_size=50))
def test_mixing_loses_no_difference(values: set[int]) -> None:
    mixed = {mix(value) for value in values}
    assert len(mixed) == len(values)
    assert all(0 <= value < 1 << 64 for value in mixed)


@given(NAMES)
def test_a_node_that_leaves_knows_the_home_its_share_will_have(names: set[str]) -> None:
    leaving, *_ = sorted(names)
    homes, left = seen_from(leaving, names), names - {leaving}
    if not left:
        assert homes.next_home("default", ADDRESSES[0]) is None
        return
    after = placed(left)
    for address in ADDRESSES:
        found = homes.next_home("default", address)
        assert found is not None
        assert found.name == after[address]
