"""Forwarding: messages to users on other nodes, and every way of their verdicts (H11, H12)."""

from __future__ import annotations

from typing import Any

from chappe.errors import ErrorCode
from chappe.hub.options import HubOptions
from chappe.message import Message
from chappe.wire.node import FORGET_REFUSED, Find, Forward, Found, Returned, Taken
from chappe.wire.ops import PACKED, Dropped, Presence
from tests.cluster.hamlet import APP, Hamlet, Node, narrow
from tests.hub.rig import Endpoint, send

TIMEOUT_S = 5.0


def pair(**options: Any) -> tuple[Hamlet, Endpoint, Endpoint]:
    """Alice on one node, bob on another, who know of each other."""
    hamlet = Hamlet("a", "b", **options)
    alice, bob = hamlet["a"].user("alice"), hamlet["b"].user("bob")
    hamlet.settle()
    return hamlet, alice, bob


def verdict(reply: Any) -> tuple[bool, str | None, str | None]:
    return reply.ok, reply.error, reply.outcome


def pending(node: Node) -> int:
    return sum(len(peer.pending) for peer in node.cluster.peers)


def of_kind(ops: list[Any], kind: type) -> list[Any]:
    return [op for op in ops if isinstance(op, kind)]


def test_what_is_taken_there_is_ok_here_and_not_before() -> None:  # H5
    hamlet, alice, bob = pair()
    hamlet.hold("b", "a")
    alice.say(send("user:bob", "hello", id=1))
    hamlet.settle()
    assert bob.got() == ["hello"]
    assert alice.heard() == []
    assert pending(hamlet["a"]) == 1
    hamlet.release("b", "a")
    hamlet.settle()
    assert verdict(alice.reply()) == (True, None, None)
    assert pending(hamlet["a"]) == 0


def test_many_come_in_order_and_their_verdicts_come_together() -> None:
    hamlet, alice, bob = pair()
    hamlet.hold("b", "a")
    for n in range(50):
        alice.say(send("user:bob", n, id=n))
    for n in range(50, 100):
        alice.say(send("user:bob", n))
    hamlet.settle()
    assert bob.got() == list(range(100))
    taken = of_kind(hamlet.said("b", "a"), Taken)
    assert sum(op.count for op in taken) == 50
    assert len(taken) <= 2
    hamlet.release("b", "a")
    hamlet.settle()
    assert sorted(reply.id for reply in alice.heard() if reply.ok) == list(range(50))


def test_what_finds_nobody_joins_no_run_of_another_app() -> None:
    hamlet = Hamlet("a", "b")
    theirs, mine = (hamlet["a"].user("alice", app=app) for app in ("theirs", "mine"))
    bob = hamlet["b"].user("bob", app="theirs")
    hamlet.settle()
    theirs.say(send("user:bob", "theirs"))
    mine.say(*[send("user:bob", n) for n in range(3)])
    hamlet.settle()
    assert bob.got() == ["theirs"]


def test_each_gets_its_own_verdict_when_some_are_refused() -> None:
    hamlet, alice, _ = pair()
    hamlet["b"].user("carol")
    hamlet.settle()
    b = hamlet["b"]
    (carol,) = b.app.endpoints.get("user:carol")
    hamlet.hold("a", "b")
    for n in range(9):
        alice.say(send(("user:bob", "user:carol", "user:bob")[n % 3], n, id=n))
    hamlet.settle()
    b.hub.lost(carol)
    hamlet.release("a", "b")
    hamlet.settle()
    replies = {reply.id: verdict(reply) for reply in alice.heard()}
    assert replies == {
        n: (False, "unreachable", None) if n % 3 == 1 else (True, None, None) for n in range(9)
    }


def test_a_stale_route_is_deleted_and_its_user_looked_for_once_more() -> None:  # H11
    hamlet = Hamlet(*"abc")
    a, b, c = (hamlet[name] for name in "abc")
    alice, on_b = a.user("alice"), b.user("bob")
    hamlet.settle()
    # Bob moves from b to c, of which a has not heard.
    hamlet.hold("b", "a")
    hamlet.hold("c", "a")
    b.leave(on_b)
    bob = c.user("bob")
    hamlet.settle()
    alice.say(send("user:bob", 1, id=1))
    hamlet.settle()
    hamlet.release("b", "a")
    hamlet.release("c", "a")
    hamlet.settle()
    assert verdict(alice.reply()) == (True, None, None)
    assert bob.got() == [1]


def test_what_nobody_waits_for_follows_its_user_too() -> None:  # H11
    hamlet = Hamlet(*"abc")
    a, b, c = (hamlet[name] for name in "abc")
    alice, on_b = a.user("alice"), b.user("bob")
    hamlet.settle()
    hamlet.hold("b", "a")
    hamlet.hold("c", "a")
    b.leave(on_b)
    bob = c.user("bob")
    alice.say(*(send("user:bob", n) for n in range(3)))
    hamlet.settle()
    hamlet.release("c", "a")
    hamlet.release("b", "a")
    hamlet.settle()
    assert sorted(bob.got()) == [0, 1, 2]
    assert alice.heard() == []


def test_a_route_that_is_stale_and_nobody_else_is_unreachable_and_forgotten() -> None:
    hamlet, alice, bob = pair()
    hamlet.hold("b", "a")
    hamlet["b"].leave(bob)
    hamlet.settle()
    alice.say(send("user:bob", 1, id=1), send("user:bob", 2))
    hamlet.settle()
    # The news that bob left was held, and comes behind nothing: only the refusal tells.
    end = hamlet.end("b", "a")
    news = end.frames.popleft()
    hamlet.release("b", "a")
    hamlet.settle()
    assert verdict(alice.reply()) == (False, "unreachable", None)
    assert "user:bob" not in hamlet["a"].app.routes
    assert hamlet["a"].recorder.refusals[ErrorCode.UNREACHABLE] == 2
    assert news


def test_a_refusal_for_want_of_room_does_not_end_a_route() -> None:
    hamlet, alice, bob = pair(hub=HubOptions(outbox_bytes_max=3000))
    hamlet["b"].hub.pause(bob.session)
    replies = [hamlet.ask(alice, send("user:bob", "x" * 1000, id=n)) for n in range(4)]
    assert [verdict(reply)[:2] for reply in replies][-1] == (False, "overload")
    assert replies[0].ok
    assert replies[-1].outcome is None  # it was refused for certain
    assert "user:bob" in hamlet["a"].app.routes
    assert hamlet["a"].cluster.forwarding.finds == 0


def test_on_two_nodes_one_that_takes_it_is_enough() -> None:  # H13
    hamlet = Hamlet(*"abc", hub=HubOptions(outbox_bytes_max=1000))
    a, b, c = (hamlet[name] for name in "abc")
    alice, on_b, on_c = a.user("alice"), b.user("bob"), c.user("bob")
    hamlet.settle()
    assert hamlet.ask(alice, send("user:bob", 1, id=1)).ok
    assert on_b.got() == on_c.got() == [1]
    b.hub.pause(on_b.session)
    for _ in range(2):
        assert hamlet.ask(alice, send("user:bob", "x" * 700, id=2)).ok
    assert len(on_c.got()) == 2
    c.hub.pause(on_c.session)
    hamlet.ask(alice, send("user:bob", "x" * 700, id=3))
    reply = hamlet.ask(alice, send("user:bob", "x" * 700, id=4))
    assert verdict(reply) == (False, "overload", None)
    assert pending(a) == 0


def test_who_is_here_and_there_gets_it_on_both_and_is_answered_at_once() -> None:  # H13
    hamlet, alice, bob = pair()
    here = hamlet["a"].user("bob")
    hamlet.hold("b", "a")
    alice.say(send("user:bob", 1, id=1))
    hamlet.settle()
    assert verdict(alice.reply()) == (True, None, None)
    assert here.got() == bob.got() == [1]
    # The copy for the other device asks for nothing back, refused or not.
    hamlet["b"].leave(bob)
    alice.say(send("user:bob", 2, id=2))
    hamlet.tick()
    (op,) = of_kind(hamlet.said("a", "b"), Forward)
    assert op.first == FORGET_REFUSED
    hamlet.settle()
    assert of_kind(hamlet.said("b", "a"), Returned) == []
    assert alice.reply().ok


def test_a_slow_device_elsewhere_is_told_what_it_missed() -> None:  # H13
    hamlet, alice, bob = pair(hub=HubOptions(outbox_bytes_max=1000))
    here = hamlet["a"].user("bob")
    hamlet.settle()
    hamlet["b"].hub.pause(bob.session)
    for n in range(5):
        assert hamlet.ask(alice, send("user:bob", "x" * 700, id=n)).ok
    assert len(here.got()) == 5
    hamlet["b"].hub.resume(bob.session)
    hamlet.settle()
    notice, *came = bob.heard()
    assert (type(notice), notice.n) == (PACKED[Dropped], 5 - len(came))
    assert hamlet["b"].recorder.drops == {"slow_device": notice.n}


def test_a_device_behind_a_full_link_is_told_what_it_missed() -> None:  # H13
    hamlet, alice, bob = pair(**narrow(waiting_bytes_max=2_000))
    here = hamlet["a"].user("bob")
    hamlet.settle()
    hamlet.pause("a", "b")
    for n in range(10):
        assert hamlet.ask(alice, send("user:bob", "x" * 500, id=n)).ok
    assert len(here.got()) == 10
    hamlet.resume("a", "b")
    hamlet.settle()
    *came, notice = bob.heard()
    assert (type(notice), notice.n) == (PACKED[Dropped], 10 - len(came))
    assert hamlet["a"].recorder.drops == {"slow_link": notice.n}
    assert hamlet["b"].recorder.drops == {"slow_device": notice.n}


def test_without_a_verdict_in_time_the_outcome_is_unknown_and_the_late_one_ignored() -> None:  # H12
    hamlet, alice, bob = pair()
    hamlet.hold("b", "a")
    alice.say(send("user:bob", 1, id=1))
    hamlet.settle()
    hamlet.later(TIMEOUT_S - 1)
    assert alice.heard() == []
    alice.say(send("user:bob", 2, id=2))
    hamlet.settle()
    hamlet.later(1.5)
    assert [(reply.id, *verdict(reply)) for reply in alice.heard()] == [
        (1, False, "overload", "unknown")
    ]
    assert pending(hamlet["a"]) == 1
    hamlet.release("b", "a")
    hamlet.settle()
    assert [(reply.id, reply.ok) for reply in alice.heard()] == [(2, True)]
    assert bob.got() == [1, 2]
    # A refusal that comes late is as late.
    forwarded = Message(9, "user:alice", "user:bob", 1, b"1")
    hamlet.forge("b", "a", Returned(1, APP, "unreachable", "gone", forwarded))
    hamlet.settle()
    assert alice.heard() == bob.heard() == []
    assert hamlet["a"].cluster.forwarding.finds == 0


def test_when_a_node_goes_what_it_had_is_unknown_and_what_it_never_got_is_not() -> None:
    hamlet, alice, bob = pair()
    hamlet.hold("b", "a")
    alice.say(send("user:bob", 1, id=1))
    hamlet.settle()
    hamlet.pause("a", "b")
    alice.say(send("user:bob", 2, id=2))
    alice.say(send("user:bob", 3))
    hamlet.settle()
    hamlet.cut("a", "b")
    hamlet.settle()
    assert {reply.id: verdict(reply) for reply in alice.heard()} == {
        1: (False, "overload", "unknown"),
        2: (False, "unreachable", None),
    }
    assert bob.got() == [1]
    assert hamlet["a"].recorder.refusals[ErrorCode.UNREACHABLE] == 2


def test_what_a_lost_node_never_got_goes_where_its_user_is() -> None:  # H11
    hamlet = Hamlet(*"abc")
    a, b, c = (hamlet[name] for name in "abc")
    alice = a.user("alice")
    b.user("bob")
    hamlet.settle()
    hamlet.hold("c", "a")
    bob = c.user("bob")
    hamlet.settle()
    hamlet.pause("a", "b")
    alice.say(send("user:bob", 1, id=1))
    alice.say(send("user:bob", 2))
    hamlet.tick()
    hamlet.cut("a", "b")
    hamlet.release("c", "a")
    hamlet.settle()
    assert sorted(bob.got()) == [1, 2]
    assert alice.reply().ok


def test_a_run_gathered_for_a_node_that_goes_in_the_same_tick_is_looked_for() -> None:
    hamlet = Hamlet(*"abc")
    a, b, c = (hamlet[name] for name in "abc")
    alice = a.user("alice")
    b.user("bob")
    bob = c.user("bob")
    hamlet.settle()
    alice.say(send("user:bob", 1, id=1))
    alice.say(send("user:bob", 2, id=2))
    hamlet.cut("a", "b")
    hamlet.settle()
    assert bob.got() == [1, 2]
    assert [reply.ok for reply in alice.heard()] == [True, True]


def test_a_full_link_refuses_what_goes_over_it_and_nothing_else() -> None:
    hamlet, alice, bob = pair(**narrow(waiting_bytes_max=5_000))
    here = hamlet["a"].user("carol")
    hamlet.pause("a", "b")
    for n in range(13):
        alice.say(send("user:bob", "x" * 1000, id=n))
        hamlet.settle()
    refused = [(reply.id, reply.error) for reply in alice.heard()]
    assert refused == [(n, "overload") for n in range(5, 13)]
    assert hamlet.ask(alice, send("user:carol", 1, id=20)).ok
    assert here.got() == [1]
    hamlet.resume("a", "b")
    hamlet.settle()
    assert len(bob.got()) == 5
    assert [reply.ok for reply in alice.heard()] == [True] * 5
    assert hamlet.ask(alice, send("user:bob", 2, id=21)).ok


def test_more_verdicts_than_may_be_awaited_are_not_begun() -> None:
    hamlet, alice, bob = pair(**narrow(pending_max=2))
    hamlet.hold("b", "a")
    for n in range(4):
        alice.say(send("user:bob", n, id=n))
        hamlet.settle()
    assert [(reply.id, reply.error) for reply in alice.heard()] == [
        (2, "overload"),
        (3, "overload"),
    ]
    hamlet.release("b", "a")
    hamlet.settle()
    assert bob.got() == [0, 1]
    assert [(reply.id, reply.ok) for reply in alice.heard()] == [(0, True), (1, True)]
    assert hamlet.ask(alice, send("user:bob", 9, id=9)).ok


def test_a_forwarded_message_for_an_app_that_is_not_here_is_returned() -> None:
    hamlet = Hamlet("a", "b")
    message = Message(1, "user:x", "user:y", 1, b"1")
    hamlet.hold("b", "a")
    hamlet.forge("a", "b", Forward("nowhere", 5, [message, message]))
    hamlet.tick()
    assert [op.number for op in of_kind(hamlet.said("b", "a"), Returned)] == [5, 6]
    assert "nowhere" not in hamlet["b"].hub.apps


def test_what_comes_from_a_node_is_never_forwarded_again() -> None:
    hamlet = Hamlet(*"abc")
    b = hamlet["b"]
    hamlet["c"].user("bob")
    hamlet.settle()
    message = Message(1, "user:x", "user:bob", 1, b"1")
    hamlet.hold("b", "a")
    hamlet.forge("a", "b", Forward(APP, 5, [message]))
    hamlet.tick()
    assert of_kind(hamlet.said("b", "c"), Forward) == []
    (op,) = of_kind(hamlet.said("b", "a"), Returned)
    assert (op.number, op.error, op.message) == (5, "unreachable", message)
    assert pending(b) == 0


def test_a_message_to_an_avatar_finds_its_user_on_another_node() -> None:  # H14
    hamlet, alice, bob = pair()
    for name in "ab":
        owners = hamlet[name].application.avatars
        owners._owners[APP] = {"avatar:bobby": "user:bob"}
    assert hamlet.ask(alice, send("avatar:bobby", 1, id=1)).ok
    alice.say(send("avatar:bobby", 2), send("avatar:bobby", 3))
    hamlet.settle()
    assert bob.got() == [1, 2, 3]
    # The user has gone, and nobody told: the route of the user goes, not one of the avatar.
    hamlet.hold("b", "a")
    hamlet["b"].leave(bob)
    hamlet.tick()
    hamlet.end("b", "a").frames.clear()
    hamlet.release("b", "a")
    alice.say(send("avatar:bobby", 4, id=4))
    hamlet.settle()
    assert verdict(alice.reply()) == (False, "unreachable", None)
    assert "user:bob" not in hamlet["a"].app.routes


def test_an_avatar_that_a_node_has_not_heard_of_yet_ends_no_route() -> None:  # H14
    hamlet, alice, bob = pair()
    here = hamlet["a"].application.avatars
    here._owners[APP] = {"avatar:bobby": "user:bob"}
    reply = hamlet.ask(alice, send("avatar:bobby", 1, id=1))
    assert verdict(reply) == (False, "unreachable", None)
    assert [peer.name for peer in hamlet["a"].app.routes["user:bob"]] == ["b"]
    finds = hamlet["a"].cluster.forwarding.finds
    assert hamlet.ask(alice, send("user:bob", 2, id=2)).ok
    assert hamlet["a"].cluster.forwarding.finds == finds
    # If it hears of it while it is asked, the message is delivered.
    hamlet.hold("b", "a")
    alice.say(send("avatar:bobby", 3, id=3))
    hamlet.settle()
    hamlet["b"].application.avatars._owners[APP] = {"avatar:bobby": "user:bob"}
    hamlet.release("b", "a")
    hamlet.settle()
    assert verdict(alice.reply()) == (True, None, None)
    assert bob.got() == [2, 3]


def test_so_many_wait_to_hear_whether_somebody_is_online() -> None:  # H8
    hamlet, alice, _ = pair()
    hamlet.hold("b", "a")
    alice.say(*(Presence(id=n, to="user:ghost") for n in range(1003)))
    hamlet.settle()
    assert [reply.error for reply in alice.heard()] == ["overload"] * 3
    hamlet.release("b", "a")
    hamlet.settle()
    assert [reply.online for reply in alice.heard()] == [False] * 1000


def test_an_answer_to_a_question_that_nobody_asked_is_ignored() -> None:
    hamlet, alice, _ = pair()
    hamlet.forge("b", "a", Found(77, True), Taken(500, 3), Find(9, "nowhere", "user:x"))
    hamlet.settle()
    assert alice.heard() == []
    assert hamlet.end("a", "b").up
