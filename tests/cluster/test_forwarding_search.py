"""Forwarding: users whom every node is asked for (H12)."""

from __future__ import annotations

import pytest

from chappe.cluster import forwarding as module
from chappe.cluster.forwarding import MISSING_S
from chappe.wire.ops import Presence
from tests.cluster.hamlet import Hamlet
from tests.cluster.test_forwarding import TIMEOUT_S, pair, verdict
from tests.hub.rig import send


def test_nobody_knows_a_user_so_every_node_is_asked_and_who_has_it_answers() -> None:  # H12
    hamlet = Hamlet(*"abc")
    a, c = hamlet["a"], hamlet["c"]
    alice = a.user("alice")
    hamlet.settle()
    hamlet.hold("c", "a")
    bob = c.user("bob")
    hamlet.settle()
    # The news is on its way; the message need not wait for it, but it comes on the same link.
    alice.say(send("user:bob", 1, id=1), send("user:bob", 2, id=2), send("user:bob", 3))
    alice.say(Presence(id=4, to="user:bob"))
    hamlet.settle()
    assert a.cluster.forwarding.finds == 1
    assert alice.heard() == []
    hamlet.release("c", "a")
    hamlet.settle()
    assert {reply.id: reply.ok for reply in alice.heard()} == {1: True, 2: True, 4: True}
    assert bob.got() == [1, 2, 3]


def test_one_who_is_found_is_announced_to_all_again() -> None:  # H12
    hamlet = Hamlet(*"abc")
    a, b, c = (hamlet[name] for name in "abc")
    alice, bob = a.user("alice"), c.user("bob")
    hamlet.settle()
    for node in (a, b):
        node.cluster.routes.remove(node.app, "user:bob", node.peer("c"))
    assert hamlet.ask(alice, send("user:bob", 1, id=1)).ok
    assert bob.got() == [1]
    assert [peer.name for peer in b.app.routes["user:bob"]] == ["c"]


def test_one_who_was_found_and_has_left_again_is_not_looked_for_twice() -> None:  # H11
    hamlet, alice, bob = pair()
    a, b = hamlet["a"], hamlet["b"]
    a.cluster.routes.remove(a.app, "user:bob", a.peer("b"))
    hamlet.hold("b", "a")
    alice.say(send("user:bob", 1, id=1))
    hamlet.settle()
    b.leave(bob)
    hamlet.tick()
    hamlet.end("b", "a").frames.pop()  # the news of that
    hamlet.release("b", "a")
    hamlet.settle()
    assert verdict(alice.reply()) == (False, "unreachable", None)
    assert a.cluster.forwarding.finds == 1


def test_all_miss_and_it_is_unreachable_and_not_asked_again_for_a_moment() -> None:  # H12
    hamlet = Hamlet(*"abc")
    a = hamlet["a"]
    alice = a.user("alice")
    hamlet.settle()
    forwarding = a.cluster.forwarding
    for n in range(3):
        reply = hamlet.ask(alice, send("user:ghost", n, id=n))
        assert verdict(reply) == (False, "unreachable", None)
        assert not hamlet.ask(alice, Presence(id=9, to="user:ghost")).online
    assert forwarding.finds == 1
    hamlet.later(MISSING_S + 0.1)
    assert not hamlet.ask(alice, send("user:ghost", 5, id=5)).ok
    assert forwarding.finds == 2
    # Whoever comes is there at once.
    ghost = hamlet["c"].user("ghost")
    hamlet.settle()
    assert hamlet.ask(alice, send("user:ghost", 6, id=6)).ok
    hamlet["c"].leave(ghost)
    hamlet.settle()
    assert not hamlet.ask(alice, send("user:ghost", 7, id=7)).ok
    assert forwarding.finds == 3


def test_a_search_ends_with_its_time_and_who_has_not_answered_counts_as_a_miss() -> None:  # H12
    hamlet = Hamlet(*"abc")
    alice = hamlet["a"].user("alice")
    hamlet.settle()
    hamlet.hold("c", "a")
    alice.say(send("user:ghost", 1, id=1), Presence(id=2, to="user:ghost"))
    hamlet.settle()
    assert alice.heard() == []
    hamlet.later(TIMEOUT_S + 0.5)
    replies = {reply.id: reply for reply in alice.heard()}
    assert verdict(replies[1]) == (False, "unreachable", None)
    assert replies[2].online is False
    hamlet.release("c", "a")
    hamlet.settle()
    assert alice.heard() == []


def test_a_search_ends_when_the_last_who_was_asked_goes() -> None:
    hamlet = Hamlet(*"abc")
    alice = hamlet["a"].user("alice")
    hamlet.settle()
    hamlet.hold("c", "a")
    hamlet.hold("b", "a")
    alice.say(send("user:ghost", 1, id=1))
    hamlet.settle()
    hamlet.cut("a", "c")
    hamlet.settle()
    assert alice.heard() == []
    hamlet.release("b", "a")
    hamlet.settle()
    assert verdict(alice.reply()) == (False, "unreachable", None)


def test_who_comes_here_while_being_looked_for_gets_what_waits() -> None:
    hamlet = Hamlet(*"abc")
    a = hamlet["a"]
    alice = a.user("alice")
    hamlet.settle()
    hamlet.hold("b", "a")
    alice.say(send("user:bob", 1, id=1), send("user:bob", 2))
    hamlet.settle()
    bob = a.user("bob")
    hamlet.settle()
    assert bob.got() == [1, 2]
    assert alice.reply().ok
    hamlet.release("b", "a")
    hamlet.settle()
    assert bob.got() == []


def test_a_node_alone_answers_at_once() -> None:  # H12
    hamlet = Hamlet("a")
    alice = hamlet["a"].user("alice")
    assert verdict(hamlet.ask(alice, send("user:bob", 1, id=1))) == (False, "unreachable", None)
    assert hamlet.ask(alice, Presence(id=2, to="user:bob")).online is False
    assert hamlet["a"].cluster.forwarding.finds == 0


def test_for_who_is_expected_from_a_node_not_linked_yet_a_message_waits() -> None:
    hamlet = Hamlet("a", "b", joined=False)
    a, b = hamlet["a"], hamlet["b"]
    a.cluster.forwarding.expected = lambda app, user: user == "user:bob"
    alice, bob = a.user("alice"), b.user("bob")
    alice.say(send("user:bob", 1, id=1), send("user:carol", 2, id=2))
    hamlet.settle()
    assert [(reply.id, reply.ok) for reply in alice.heard()] == [(2, False)]
    hamlet.link("a", "b")
    hamlet.settle()
    assert alice.reply().ok
    assert bob.got() == [1]


def test_for_who_is_expected_in_vain_a_message_waits_no_longer_than_the_limit() -> None:
    hamlet = Hamlet("a", "b")
    a = hamlet["a"]
    a.cluster.forwarding.expected = lambda app, user: True
    alice = a.user("alice")
    alice.say(send("user:bob", 1, id=1))
    hamlet.settle()
    assert alice.heard() == []
    hamlet.later(TIMEOUT_S + 0.5)
    assert verdict(alice.reply()) == (False, "unreachable", None)


def test_so_many_messages_wait_for_one_user_and_so_many_users_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_WAITING_MAX", 3)
    monkeypatch.setattr(module, "_SEARCHES_MAX", 2)
    hamlet = Hamlet("a", "b")
    alice = hamlet["a"].user("alice")
    hamlet.hold("b", "a")
    alice.say(*(send("user:x", n, id=n) for n in range(5)))
    hamlet.settle()
    assert [(reply.id, reply.error) for reply in alice.heard()] == [
        (3, "overload"),
        (4, "overload"),
    ]
    alice.say(send("user:y", 5, id=5), send("user:z", 6, id=6))
    hamlet.settle()
    assert [(reply.id, reply.error) for reply in alice.heard()] == [(6, "overload")]
    hamlet.release("b", "a")
    hamlet.settle()
    assert {reply.error for reply in alice.heard()} == {"unreachable"}


def test_so_many_who_are_missing_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MISSING_MAX", 2)
    hamlet = Hamlet("a", "b")
    alice, forwarding = hamlet["a"].user("alice"), hamlet["a"].cluster.forwarding
    for name in "xyz":
        hamlet.ask(alice, send(f"user:{name}", 1, id=1))
    for name in "zy":
        hamlet.ask(alice, send(f"user:{name}", 1, id=1))
    assert forwarding.finds == 3
    hamlet.ask(alice, send("user:x", 1, id=1))
    assert forwarding.finds == 4
