"""Routes: a peer's part of the table is what it told, from the first page to the last delta."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.cluster import routes as module
from chappe.cluster.routes import Routes
from chappe.hub.options import HubOptions
from chappe.wire.node import Changed
from chappe.wire.node import Routes as Page
from tests.cluster.hamlet import APP, Hamlet, Node, narrow
from tests.hub.rig import Endpoint


class Diary:
    """An audience and a notebook that keep what they are told."""

    def __init__(self, routes: Routes) -> None:
        self.heard: list[Any] = []
        self.noted: list[tuple[str, str, bool]] = []
        routes.audience = self
        routes.notebook = self

    def online(
        self, app: str, address: str, *, at_ms: int | None = None, news: bool = True
    ) -> None:
        self.heard.append(("online", address, at_ms, news))

    def offline(self, app: str, address: str, *, at_ms: int | None = None) -> None:
        self.heard.append(("offline", address, at_ms))

    def note(self, app: str, address: str, *, online: bool) -> None:
        self.noted.append((app, address, online))


def routes(node: Node, app: str = APP) -> dict[str, list[str]]:
    """Who a node takes to be where."""
    found = node.hub.apps.get(app)
    if found is None:
        return {}
    return {address: [peer.name for peer in there] for address, there in found.routes.items()}


def test_a_new_peer_is_told_who_is_there_and_then_who_comes_and_goes() -> None:
    hamlet = Hamlet("a", "b", joined=False)
    a, b = hamlet["a"], hamlet["b"]
    bob, other = b.user("bob"), b.user("bob")
    b.user("carol", app="shop")
    hamlet.tick()
    hamlet.link("a", "b")
    assert not a.peer("b").synced
    hamlet.settle()
    assert a.peer("b").synced
    assert b.peer("a").synced
    assert routes(a) == {"user:bob": ["b"]}
    assert routes(a, "shop") == {"user:carol": ["b"]}
    # A second device is no news, and neither is the first of two that leaves.
    b.leave(bob)
    hamlet.tick()
    assert hamlet.said("b", "a") == []
    b.leave(other)
    hamlet.tick()
    (op,) = hamlet.said("b", "a")
    assert (op.seq, op.online, op.offline) == (1, [], [(APP, "user:bob")])
    hamlet.settle()
    assert routes(a) == {}
    assert APP not in a.hub.apps


def test_who_comes_and_goes_in_one_tick_is_told_of_once() -> None:
    hamlet = Hamlet("a", "b")
    b = hamlet["b"]
    b.leave(b.user("brief"))
    first = b.user("back")
    b.leave(first)
    b.user("back")
    hamlet.tick()
    (op,) = hamlet.said("b", "a")
    assert op.online == [(APP, "user:back")]
    assert op.offline == [(APP, "user:brief")]
    hamlet.settle()
    assert routes(hamlet["a"]) == {"user:back": ["b"]}


def test_a_long_table_comes_in_pages_and_whoever_left_meanwhile_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PAGE_ADDRESSES", 10)
    # Room for one page at a time.
    hamlet = Hamlet("a", "b", joined=False, **narrow(waiting_bytes_max=4 * 32 * 1024))
    a, b = hamlet["a"], hamlet["b"]
    people = [b.user(f"u{n}") for n in range(35)]
    hamlet.tick()
    hamlet.link("a", "b")
    hamlet.pause("b", "a")
    hamlet.settle()  # the first pages are made by now, the others wait
    for place in (2, 33):
        b.leave(people[place])
    b.user("late")
    hamlet.settle()
    assert routes(a) == {}
    hamlet.resume("b", "a")
    hamlet.hold("b", "a")
    hamlet.settle()
    pages = [op for op in hamlet.said("b", "a") if isinstance(op, Page)]
    assert [page.last for page in pages] == [False] * (len(pages) - 1) + [True]
    assert max(len(page.addresses) for page in pages) == 10
    hamlet.release("b", "a")
    hamlet.settle()
    expected = {f"user:u{n}" for n in range(35) if n not in (2, 33)} | {"user:late"}
    assert set(routes(a)) == expected
    assert a.peer("b").synced


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.sampled_from("abc"), st.integers(0, 3)),
        st.tuples(st.just("go"), st.integers(0, 30)),
        st.tuples(st.just("settle")),
        st.tuples(st.just("tick")),
        st.tuples(st.just("cut"), st.sampled_from(["ab", "bc", "ac"])),
        st.tuples(st.just("hold"), st.permutations("abc")),
        st.tuples(st.just("release"), st.permutations("abc")),
    ),
    max_size=40,
)


@given(MOVES)
def test_when_all_is_said_every_table_is_what_the_others_hold(moves: list[Any]) -> None:  # H10
    hamlet = Hamlet(*"abc")
    there: list[tuple[Node, Endpoint]] = []
    for kind, *rest in moves:
        if kind == "come":
            node = hamlet[rest[0]]
            there.append((node, node.user(f"u{rest[1]}")))
        elif kind == "go" and there:
            node, who = there.pop(rest[0] % len(there))
            node.leave(who)
        elif kind == "cut":
            hamlet.cut(*rest[0])
            hamlet.link(*rest[0])
        elif kind == "hold":
            hamlet.hold(*rest[0][:2])
        elif kind == "release":
            hamlet.release(*rest[0][:2])
        elif kind == "settle":
            hamlet.settle()
        else:
            hamlet.tick()
    for way in permutations("abc", 2):
        hamlet.release(*way)
    hamlet.settle()
    for name in "abc":
        expected: dict[str, set[str]] = {}
        for node, who in there:
            if node.name != name:
                expected.setdefault(who.session.address, set()).add(node.name)
        found = routes(hamlet[name])
        assert {address: set(nodes) for address, nodes in found.items()} == expected
        assert all(len(nodes) == len(set(nodes)) for nodes in found.values())


def test_a_delta_that_is_missing_resets_the_link() -> None:
    hamlet = Hamlet("a", "b")
    b = hamlet["b"]
    b.user("bob")
    hamlet.settle()
    hamlet.forge("b", "a", Changed(3, [(APP, "user:ghost")], []))
    assert "delta is missing: 3 after 1" in hamlet.end("a", "b").reason
    assert routes(hamlet["a"]) == {}


@pytest.mark.parametrize("seq", [0, 1])
def test_a_delta_that_comes_again_is_not_taken_for_the_next(seq: int) -> None:
    hamlet = Hamlet("a", "b")
    hamlet["b"].user("bob")
    hamlet.settle()
    hamlet.forge("b", "a", Changed(seq, [], []))
    assert not hamlet.end("a", "b").up


def test_the_audience_hears_of_the_first_and_the_last_session_in_the_cluster() -> None:
    hamlet = Hamlet(*"abc")
    a, b, c = (hamlet[name] for name in "abc")
    diary = Diary(a.cluster.routes)
    on_b = b.user("bob")
    hamlet.settle()
    at_ms = b.clock.wall_ms()
    assert diary.heard == [("online", "user:bob", at_ms, True)]
    on_c, here = c.user("bob"), a.user("bob")
    hamlet.settle()
    b.leave(on_b)
    hamlet.settle()
    a.leave(here)
    hamlet.settle()
    assert len(diary.heard) == 1
    c.clock.now_s += 5
    c.leave(on_c)
    hamlet.settle()
    assert diary.heard[1:] == [("offline", "user:bob", at_ms + 5000)]
    # What is noted is who is here, whoever else there is.
    assert diary.noted == [(APP, "user:bob", True), (APP, "user:bob", False)]


def test_of_who_was_there_before_the_link_the_audience_hears_without_news() -> None:
    hamlet = Hamlet("a", "b", joined=False)
    diary = Diary(hamlet["a"].cluster.routes)
    hamlet["b"].user("bob")
    hamlet["b"].user("alice")
    hamlet["a"].user("alice")
    hamlet.tick()
    hamlet.link("a", "b")
    hamlet.settle()
    assert diary.heard == [
        ("online", "user:alice", None, True),
        ("online", "user:bob", None, False),
    ]


def test_here_and_alone_the_first_and_last_session_are_heard_of_too() -> None:
    hamlet = Hamlet("a")
    a = hamlet["a"]
    diary = Diary(a.cluster.routes)
    a.leave(a.user("bob"))
    assert diary.heard == [("online", "user:bob", None, True), ("offline", "user:bob", None)]


def test_with_a_link_goes_all_that_it_brought_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PURGE_ROUTES", 10)
    hamlet = Hamlet(*"abc")
    a, b, c = (hamlet[name] for name in "abc")
    for n in range(45):
        b.user(f"u{n}")
        b.user(f"u{n}", app="shop")
    for n in range(5):
        c.user(f"u{n}")
    here = a.user("u44")
    hamlet.settle()
    diary = Diary(a.cluster.routes)
    hamlet.cut("a", "b")
    # Not all in one turn of the loop: others have theirs.
    assert 5 < len(routes(a)) < 45
    hamlet.tick()
    assert routes(a) == {f"user:u{n}": ["c"] for n in range(5)}
    assert "shop" not in a.hub.apps
    gone = [heard[1] for heard in diary.heard if heard[0] == "offline"]
    # Once in each app, but for the one who is here and those who are on c.
    assert sorted(gone) == sorted(
        [f"user:u{n}" for n in range(5, 44)] + [f"user:u{n}" for n in range(45)]
    )
    assert not here.session.closed


def test_who_comes_back_on_a_new_link_while_the_old_is_purged_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PURGE_ROUTES", 2)
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    for n in range(20):
        b.user(f"u{n}")
    hamlet.settle()
    old = a.peer("b")
    hamlet.cut("a", "b")
    hamlet.link("a", "b")
    hamlet.settle()
    assert routes(a) == {f"user:u{n}": ["b"] for n in range(20)}
    assert old not in {peer for there in a.app.routes.values() for peer in there}


def test_an_app_beyond_the_bound_is_not_known_here_and_nothing_breaks() -> None:
    hamlet = Hamlet("a", "b", hub=HubOptions(apps_max=1))
    a, b = hamlet["a"], hamlet["b"]
    a.user("alice")
    b.user("bob")
    hamlet.settle()
    hamlet.forge("b", "a", Changed(2, [("shop", "user:x"), (APP, "user:y")], [("shop", "user:x")]))
    assert set(a.hub.apps) == {APP}
    assert set(routes(a)) == {"user:bob", "user:y"}


def test_an_app_is_held_as_long_as_somebody_in_it_is_anywhere() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    bob, alice = b.user("bob", app="shop"), a.user("alice", app="shop")
    hamlet.settle()
    a.leave(alice)
    hamlet.settle()
    assert "shop" in a.hub.apps
    b.leave(bob)
    hamlet.settle()
    assert "shop" not in a.hub.apps
    assert "shop" not in b.hub.apps
