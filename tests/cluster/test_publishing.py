"""Publishing: messages to topics whose home is another node, in runs (H16)."""

from __future__ import annotations

import pytest

from chappe.cluster import settling
from chappe.hub.options import HubOptions
from chappe.message import Message
from chappe.wire.node import Returned, Taken, ToHome
from chappe.wire.ops import Subscribe
from tests.cluster.hamlet import APP, Hamlet, moving, narrow
from tests.cluster.readers import keep_history, of_kind, told
from tests.hub.rig import Endpoint, publish


def pair(**options: object) -> tuple[Hamlet, str, Endpoint, Endpoint]:
    """Alice on one node; on the other a topic's home, and somebody who reads it."""
    hamlet = Hamlet("a", "b", **options)
    topic = hamlet.placed("topic", "b")
    alice, reader = hamlet["a"].user("alice"), hamlet["b"].user("reader")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    return hamlet, topic, alice, reader


def pending(hamlet: Hamlet) -> int:
    return len(hamlet["a"].peer("b").pending)


def test_what_a_tick_brings_is_one_op_and_brings_no_verdict_that_nobody_asked_for() -> None:
    hamlet, topic, alice, reader = pair()
    hamlet.hold("a", "b")
    hamlet.hold("b", "a")
    alice.say(*[publish(topic, n) for n in range(40)])
    alice.say(*[publish(topic, n) for n in range(40, 50)])
    hamlet.tick()
    (op,) = of_kind(hamlet.said("a", "b"), ToHome)
    assert (len(op.messages), op.silent, pending(hamlet)) == (50, True, 0)
    hamlet.release("a", "b")
    hamlet.settle()
    assert reader.got() == list(range(50))
    # One write, of one run, however many there were.
    assert len(reader.sink.writes) == 2
    assert hamlet.said("b", "a") == []
    assert (hamlet["a"].recorder.publishes, hamlet["b"].recorder.publishes) == (0, 50)


def test_each_request_of_a_run_gets_the_verdict_of_its_home_and_not_before() -> None:
    hamlet, topic, alice, reader = pair()
    hamlet.hold("b", "a")
    alice.say(*[publish(topic, n, id=n) for n in range(40)])
    hamlet.settle()
    assert reader.got() == list(range(40))
    assert (alice.heard(), pending(hamlet)) == ([], 40)
    assert of_kind(hamlet.said("b", "a"), Taken) == [Taken(1, 40, 1)]
    hamlet.release("b", "a")
    hamlet.settle()
    replies = alice.heard()
    assert [(reply.id, reply.ok, reply.nodes) for reply in replies] == [
        (n, True, 1) for n in range(40)
    ]
    assert len({reply.message for reply in replies}) == 40
    assert pending(hamlet) == 0


def test_sessions_that_take_turns_keep_their_order_and_get_their_own_answers() -> None:
    hamlet, topic, alice, reader = pair()
    bob = hamlet["a"].user("bob")
    for n in range(10):
        alice.say(publish(topic, ["alice", n], id=n if n % 3 else None))
        bob.say(publish(topic, ["bob", n], id=100 + n if n % 2 else None))
    hamlet.settle()
    got = reader.got()
    for name in ("alice", "bob"):
        assert [n for who, n in got if who == name] == list(range(10))
    assert sorted(reply.id for reply in alice.heard() if reply.ok) == [1, 2, 4, 5, 7, 8]
    assert sorted(reply.id for reply in bob.heard() if reply.ok) == [101, 103, 105, 107, 109]


def test_a_run_ends_where_another_topic_or_kind_of_message_begins() -> None:
    hamlet, topic, alice, reader = pair()
    other = hamlet.placed("topic", "b", 1)
    hamlet.ask(reader, Subscribe(id=2, to=other))
    alice.say(
        publish(topic, 1), publish(other, 2), publish(topic, 3), publish(topic, 4, id=4),
        publish(topic, 5), publish(other, 6, id=6),
    )  # fmt: skip
    hamlet.settle()
    assert reader.got() == [1, 2, 3, 4, 5, 6]
    assert sorted(reply.id for reply in alice.heard()) == [4, 6]


def test_who_subscribes_after_publishing_does_not_get_what_came_before() -> None:
    hamlet, topic, alice, reader = pair()
    alice.say(publish(topic, "before"), Subscribe(id=1, to=topic), publish(topic, "after"))
    hamlet.settle()
    assert told(alice) == [("reply", 1, True), "after"]
    assert reader.got() == ["before", "after"]


def test_a_run_to_a_home_elsewhere_is_not_joined_by_what_is_published_here() -> None:
    hamlet, topic, alice, reader = pair()
    here = hamlet["a"].user("here")
    hamlet.ask(here, Subscribe(id=1, to=topic))
    passed_on = Message(1, "user:x", topic, 1, b'"passed on"')
    alice.say(publish(topic, "mine"))
    hamlet.forge("b", "a", ToHome(APP, 50, [passed_on], True))
    alice.say(publish(topic, "mine, too"))
    hamlet.settle()
    assert reader.got() == ["mine", "mine, too"]
    assert sorted(here.got()) == ["mine", "mine, too", "passed on"]


def test_a_run_of_another_app_is_not_joined_while_nodes_settle() -> None:
    hamlet = Hamlet("a", "b")
    names = [f"topic:{n}" for n in range(99)]
    at_home = hamlet["a"].cluster.is_home
    topic = next(name for name in names if at_home("mine", name) and not at_home("theirs", name))
    theirs, mine = (hamlet["a"].user("alice", app=app) for app in ("theirs", "mine"))
    stranger = hamlet["b"].user("stranger", app="theirs")
    friend = hamlet["a"].user("friend", app="mine")
    hamlet.ask(stranger, Subscribe(id=1, to=topic))
    hamlet.ask(friend, Subscribe(id=1, to=topic))
    a = hamlet["a"].cluster
    a.settling.see(a.peers)
    assert a.settling.holding
    theirs.say(publish(topic, "theirs"))
    mine.say(*[publish(topic, n) for n in range(3)])
    hamlet.settle()
    assert (stranger.got(), friend.got()) == (["theirs"], [0, 1, 2])


def test_a_history_numbers_what_came_in_a_run() -> None:
    hamlet, topic, alice, reader = pair()
    keep_history(hamlet, "ab", topic)
    start = hamlet.ask(reader, Subscribe(id=2, to=topic))
    alice.say(*[publish(topic, n) for n in range(5)])
    hamlet.settle()
    assert reader.got() == list(range(5))
    late = hamlet["a"].user("late")
    late.say(Subscribe(id=3, to=topic, epoch=start.epoch, offset=2))
    hamlet.settle()
    assert told(late) == [2, 3, 4, ("reply", 3, True)]


def test_what_was_gathered_when_the_link_went_is_refused_and_known_not_to_be_there() -> None:
    hamlet, topic, alice, reader = pair()
    bob = hamlet["a"].user("bob")
    bob.say(publish(topic, 0))
    alice.say(*[publish(topic, n, id=n) for n in (1, 2)])
    assert hamlet["a"].hub.fanout.messages == []  # a read's run has ended, and waits for the tick
    alice.say(publish(topic, 3, id=3))
    hamlet.cut("a", "b")
    hamlet.settle()
    outcomes = {reply.id: (reply.error, reply.outcome) for reply in alice.heard()}
    assert outcomes[3] == ("overload", None)
    assert [outcomes[n][0] for n in (1, 2)] == ["overload"] * 2
    # The silent one is counted likewise.
    assert hamlet["a"].recorder.refusals["overload"] == 4
    assert reader.got() == []


def test_a_silent_run_that_is_refused_comes_back_and_is_counted() -> None:
    hamlet = Hamlet("a", "b", hub=HubOptions(apps_max=1))
    hamlet["b"].user("reader")
    topic = next(
        name
        for name in (f"topic:{n}" for n in range(99))
        if not hamlet["a"].cluster.is_home("shop", name)
    )
    alice = hamlet["a"].user("alice", app="shop")
    hamlet.hold("b", "a")
    alice.say(publish(topic, 1), publish(topic, 2), publish(topic, 3, id=3))
    hamlet.settle()
    returned = of_kind(hamlet.said("b", "a"), Returned)
    assert [(op.number, op.error) for op in returned[:2]] == [(0, "overload")] * 2
    assert returned[2].number > 0
    hamlet.release("b", "a")
    hamlet.settle()
    assert hamlet["a"].recorder.refusals["overload"] == 3
    assert alice.reply().error == "overload"


def test_a_full_link_refuses_the_run_that_comes_next() -> None:
    hamlet, topic, alice, reader = pair(**narrow(waiting_bytes_max=5_000))
    hamlet.pause("a", "b")
    for n in range(20):
        alice.say(publish(topic, [n, "x" * 900], id=n))
        hamlet.tick()
    refused = {reply.id for reply in alice.heard() if reply.error == "overload"}
    assert refused == set(range(5, 20))
    hamlet.resume("a", "b")
    hamlet.settle()
    assert [n for n, _ in reader.got()] == list(range(5))


def test_while_nodes_settle_a_run_is_held_and_answered_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settling, "_HELD_MAX", 5)
    hamlet, topic, alice, reader = pair()
    b = hamlet["b"].cluster
    b.settling.see(b.peers)
    assert b.settling.holding
    alice.say(*[publish(topic, n) for n in range(3)])
    alice.say(*[publish(topic, n, id=n) for n in range(3, 7)])
    hamlet.settle(patient=False)
    assert reader.got() == []
    # Two found no room; of the others nothing is said yet.
    assert {reply.id: reply.error for reply in alice.heard()} == {5: "overload", 6: "overload"}
    hamlet.settle()
    assert reader.got() == [0, 1, 2, 3, 4]
    assert {reply.id: reply.nodes for reply in alice.heard()} == {3: 1, 4: 1}


def test_what_is_passed_on_silently_brings_no_verdict_back() -> None:
    hamlet = Hamlet(*"abc", joined=False)
    topic = moving("topic", ("ab", "b"), ("bc", "c"))
    hamlet.link("a", "b")
    hamlet.link("b", "c")
    hamlet.settle()
    alice, reader = hamlet["a"].user("alice"), hamlet["c"].user("reader")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    hamlet.hold("b", "a")
    alice.say(publish(topic, 1), publish(topic, 2))
    hamlet.settle()
    assert reader.got() == [1, 2]
    assert of_kind(hamlet.said("b", "a"), Taken) == []
    assert hamlet["b"].peer("c").pending == {}


def test_a_home_that_answers_what_was_silent_answers_nobody() -> None:
    hamlet, topic, alice, _ = pair()
    hamlet.hold("b", "a")
    alice.say(publish(topic, 1), publish(topic, 2), publish(topic, 3, id=3))
    hamlet.settle()
    hamlet.forge("b", "a", Taken(1, 2, 1))
    hamlet.settle()
    assert alice.heard() == []
    hamlet.release("b", "a")
    hamlet.settle()
    assert alice.reply().id == 3
