"""Watching: topics across nodes, whatever becomes of their homes (H16)."""

from __future__ import annotations

import pytest

from chappe.cluster import watching as module
from chappe.hub.options import HubOptions
from chappe.message import Message
from chappe.wire.node import Recover, Returned, Taken, ToHome, Unwatch, Watch
from chappe.wire.ops import PACKED, Dropped, Presence, Subscribe, Unsubscribe
from tests.cluster.hamlet import APP, Hamlet, home_among, moving, narrow
from tests.cluster.readers import keep_history, of_kind, told, watchers
from tests.hub.rig import payload_of, publish


def test_a_topic_reaches_every_node_once_and_says_how_many_took_it() -> None:
    hamlet = Hamlet(*"abc")
    topic = hamlet.placed("topic", "b")
    everybody = {name: [hamlet[name].user(f"{name}{n}") for n in range(2)] for name in "abc"}
    alice = hamlet["a"].user("alice")
    assert hamlet.ask(alice, publish(topic, 0, id=1)).nodes == 0
    nodes = []
    for name in "cba":
        for who in everybody[name]:
            assert hamlet.ask(who, Subscribe(id=2, to=topic)).ok
        nodes.append(hamlet.ask(alice, publish(topic, name, id=3)).nodes)
    assert nodes == [1, 2, 3]
    assert [who.got() for who in everybody["c"]] == [["c", "b", "a"]] * 2
    assert [who.got() for who in everybody["b"]] == [["b", "a"]] * 2
    assert [who.got() for who in everybody["a"]] == [["a"]] * 2


def test_many_publishes_in_a_tick_come_in_order_and_are_answered_together() -> None:
    hamlet = Hamlet(*"abc")
    topic, other = (hamlet.placed("topic", "b", skip) for skip in (0, 1))
    alice, reader = hamlet["a"].user("alice"), hamlet["c"].user("reader")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    hamlet.hold("b", "a")
    for n in range(30):
        alice.say(publish(topic, n, id=n))
        if n % 10 == 9:
            alice.say(publish(other, n, id=100 + n))
    alice.say(publish(topic, "last"))
    hamlet.settle()
    assert reader.got() == [*range(30), "last"]
    taken = of_kind(hamlet.said("b", "a"), Taken)
    # A stretch of one answer is one op; the other topic, which nobody reads, divides them. Nobody
    # asked about the last.
    assert [(op.count, op.nodes) for op in taken] == [
        (10, 1), (1, 0), (10, 1), (1, 0), (10, 1), (1, 0),
    ]  # fmt: skip
    hamlet.release("b", "a")
    hamlet.settle()
    assert {reply.id: reply.nodes for reply in alice.heard()} == {
        **dict.fromkeys(range(30), 1),
        **dict.fromkeys((109, 119, 129), 0),
    }


def test_what_is_published_after_the_homes_word_comes_behind_it_once() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    topic = hamlet.placed("topic", "b")
    bob, writer = a.user("bob"), b.user("writer")
    writer.say(publish(topic, "before"))
    hamlet.settle()
    hamlet.hold("b", "a")
    bob.say(Subscribe(id=1, to=topic))
    hamlet.settle()
    for n in range(3):
        writer.say(publish(topic, n))
    hamlet.settle()
    assert told(bob) == []
    hamlet.release("b", "a")
    hamlet.settle()
    assert told(bob) == [("reply", 1, True), 0, 1, 2]


def test_a_run_under_way_at_home_is_missed_or_comes_and_never_both() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    topic = hamlet.placed("topic", "b")
    keep_history(hamlet, "ab", topic)
    bob, writer, other = a.user("bob"), b.user("writer"), a.user("other")
    hamlet.ask(other, Subscribe(id=1, to=topic))
    place = hamlet.ask(other, Subscribe(id=2, to=topic, epoch="", offset=0))
    # In one tick of the home: a message, the question, another message.
    writer.say(publish(topic, 1))
    hamlet.forge(
        "a", "b", Recover(99, APP, "topic:none"), Recover(1, APP, topic, place.epoch, place.offset)
    )
    bob.say(Subscribe(id=3, to=topic, epoch=place.epoch, offset=place.offset))
    hamlet.settle()
    writer.say(publish(topic, 2))
    hamlet.settle()
    assert told(bob) == [1, ("reply", 3, True), 2]
    assert told(other) == [1, 2]


@pytest.mark.parametrize("full", [False, True])
def test_what_is_too_much_to_be_recovered_is_left_out_and_said_so(
    monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    monkeypatch.setattr(module, "_RECOVERED_BYTES_MAX", 5_000)
    hamlet = Hamlet("a", "b", **narrow(waiting_bytes_max=5_000))
    a, b = hamlet["a"], hamlet["b"]
    topic = hamlet.placed("topic", "b")
    keep_history(hamlet, "ab", topic, 100)
    bob, writer = a.user("bob"), b.user("writer")
    hamlet.settle()
    start = hamlet.ask(writer, Subscribe(id=1, to=topic))
    for n in range(20):
        hamlet.ask(writer, publish(topic, [n, "x" * 900], id=n))
    if full:
        hamlet.pause("b", "a")
        b.peer("a").tell(Unwatch("none", []), 6_000)
    bob.say(Subscribe(id=2, to=topic, epoch=start.epoch, offset=2))
    hamlet.settle()
    if full:
        hamlet.resume("b", "a")
        hamlet.settle()
    *messages, reply = bob.heard()
    assert [payload_of(op)[0] for op in messages] == ([] if full else [16, 17, 18, 19])
    assert (reply.recovered, reply.offset) == (False, 20)
    assert hamlet.end("b", "a").up
    # What fits comes, all of it.
    near = a.user("near")
    near.say(Subscribe(id=3, to=topic, epoch=start.epoch, offset=18))
    hamlet.settle()
    *messages, reply = near.heard()
    assert (len(messages), reply.recovered) == (2, True)


def test_a_wrong_clock_on_another_node_ends_no_history() -> None:
    hamlet = Hamlet("a", "b")
    topic = hamlet.placed("topic", "b")
    keep_history(hamlet, "ab", topic)
    alice, bob = hamlet["a"].user("alice"), hamlet["b"].user("bob")
    hamlet.settle()
    start = hamlet.ask(bob, Subscribe(id=1, to=topic))
    hamlet.ask(bob, publish(topic, 1, id=2))
    hamlet["a"].clock.now_s += 4_000
    assert hamlet.ask(alice, publish(topic, 2, id=3)).ok
    late = hamlet["b"].user("late")
    late.say(Subscribe(id=4, to=topic, epoch=start.epoch, offset=0))
    hamlet.settle()
    *messages, reply = late.heard()
    assert [payload_of(op) for op in messages] == [1, 2]
    assert reply.recovered


def test_the_first_subscriber_watches_and_the_last_one_leaves() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    topic = hamlet.placed("topic", "b")
    one, two = a.user("one"), a.user("two")
    hamlet.settle()
    one.say(Subscribe(id=1, to=topic))
    hamlet.tick()
    assert [type(op) for op in hamlet.said("a", "b")] == [Watch, Recover]
    hamlet.settle()
    two.say(Subscribe(id=2, to=topic))
    hamlet.tick()
    assert [type(op) for op in hamlet.said("a", "b")] == [Recover]
    hamlet.settle()
    assert watchers(b, topic) == ["a"]
    one.say(Unsubscribe(to=topic))
    hamlet.settle()
    assert watchers(b, topic) == ["a"]
    two.say(Unsubscribe(to=topic))
    hamlet.tick()
    (op,) = hamlet.said("a", "b")
    assert op == Unwatch(APP, [topic])
    hamlet.settle()
    assert watchers(b, topic) == []
    # Nothing is left of it, on either side.
    assert hamlet.ask(b.user("w"), publish(topic, 1, id=1)).nodes == 0
    a.leave(one)
    a.leave(two)
    hamlet.settle()
    assert APP not in a.hub.apps or not a.app.topics


def test_presence_of_a_topic_is_asked_at_its_home() -> None:  # H8
    hamlet = Hamlet(*"abc")
    topic = hamlet.placed("topic", "b")
    bob, alice = hamlet["a"].user("bob"), hamlet["c"].user("alice")
    assert hamlet.ask(alice, Presence(id=1, to=topic)).online is False
    hamlet.ask(bob, Subscribe(id=2, to=topic))
    assert hamlet.ask(alice, Presence(id=3, to=topic)).online is True
    hamlet["a"].leave(bob)
    hamlet.settle()
    assert hamlet.ask(alice, Presence(id=4, to=topic)).online is False


@pytest.mark.parametrize("others", [0, 1])
def test_a_session_that_closes_while_its_subscribe_is_under_way_leaves_nothing(
    others: int,
) -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    topic = hamlet.placed("topic", "b")
    staying = [a.user(f"s{n}") for n in range(others)]
    for who in staying:
        hamlet.ask(who, Subscribe(id=1, to=topic))
    bob = a.user("bob")
    hamlet.hold("b", "a")
    bob.say(Subscribe(id=1, to=topic))
    hamlet.settle()
    assert watchers(b, topic) == ["a"]
    a.leave(bob)
    hamlet.release("b", "a")
    hamlet.settle()
    assert watchers(b, topic) == ["a"] * others
    assert hamlet.ask(b.user("w"), publish(topic, 1, id=1)).nodes == others
    assert [who.got() for who in staying] == [[1]] * others
    assert bob.heard() == []


@pytest.mark.parametrize("lost", [False, True])
def test_who_unsubscribes_while_its_subscribe_is_under_way_is_not_bound(lost: bool) -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    topic, other = (hamlet.placed("topic", "b", skip) for skip in (0, 1))
    bob, eve = a.user("bob"), a.user("eve")
    hamlet.hold("b", "a")
    bob.say(Subscribe(id=1, to=topic), Subscribe(id=2, to=other), Unsubscribe(id=3, to=topic))
    eve.say(Subscribe(id=1, to=topic), Unsubscribe(to=topic), Subscribe(id=2, to=topic))
    bob.say(Unsubscribe(to=topic, as_="avatar:none"), Unsubscribe(to=other, as_="avatar:none"))
    hamlet.settle()
    if lost:
        hamlet.cut("a", "b")
    hamlet.release("b", "a")
    hamlet.settle()
    assert sorted(reply.id for reply in bob.heard() if reply.ok) == [1, 2, 3]
    eve.heard()
    writer = a.user("writer")
    for n, to in enumerate((topic, other)):
        hamlet.ask(writer, publish(to, n, id=n))
    assert (bob.got(), eve.got()) == ([1], [0])
    hamlet.ask(eve, Unsubscribe(id=4, to=topic))
    assert watchers(b, topic) == []


def test_the_last_one_leaves_while_another_subscribe_is_under_way() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    topic = hamlet.placed("topic", "b")
    one, two = a.user("one"), a.user("two")
    hamlet.ask(one, Subscribe(id=1, to=topic))
    hamlet.hold("b", "a")
    two.say(Subscribe(id=2, to=topic))
    hamlet.settle()
    one.say(Unsubscribe(to=topic))
    hamlet.settle()
    hamlet.release("b", "a")
    hamlet.settle()
    hamlet.ask(b.user("w"), publish(topic, 1, id=1))
    assert told(two) == [("reply", 2, True), 1]
    assert one.got() == []


def test_so_many_subscribes_wait_for_their_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_JOINING_MAX", 2)
    hamlet = Hamlet("a", "b")
    topics = [hamlet.placed("topic", "b", n) for n in range(3)]
    bob = hamlet["a"].user("bob")
    hamlet.hold("b", "a")
    bob.say(*(Subscribe(id=n, to=topic) for n, topic in enumerate(topics)))
    hamlet.settle()
    assert [(reply.id, reply.error) for reply in bob.heard()] == [(2, "overload")]
    hamlet.release("b", "a")
    hamlet.settle()
    assert told(bob) == [("reply", 0, True), ("reply", 1, True)]
    assert watchers(hamlet["b"], topics[2]) == []
    assert hamlet.ask(bob, Subscribe(id=5, to=topics[2])).ok


def test_a_publish_without_a_verdict_in_time_is_unknown() -> None:  # H12
    hamlet = Hamlet("a", "b")
    topic = hamlet.placed("topic", "b")
    alice = hamlet["a"].user("alice")
    hamlet.hold("b", "a")
    alice.say(publish(topic, 1, id=1))
    hamlet.settle()
    hamlet.later(5.5)
    reply = alice.reply()
    assert (reply.ok, reply.error, reply.outcome) == (False, "overload", "unknown")
    hamlet.release("b", "a")
    hamlet.settle()
    assert alice.heard() == []


def test_a_full_link_refuses_a_publish() -> None:
    hamlet = Hamlet("a", "b", **narrow(waiting_bytes_max=5_000))
    topic = hamlet.placed("topic", "b")
    alice = hamlet["a"].user("alice")
    hamlet.settle()
    hamlet.pause("a", "b")
    for n in range(10):
        alice.say(publish(topic, "x" * 1000, id=n))
        hamlet.settle()
    assert {reply.error for reply in alice.heard()} == {"overload"}
    hamlet.resume("a", "b")
    hamlet.settle()
    assert [reply.ok for reply in alice.heard()] == [True] * 5


def test_what_a_full_link_leaves_out_is_counted_and_told() -> None:
    hamlet = Hamlet("a", "b", "c", **narrow(waiting_bytes_max=2_000))
    topic = hamlet.placed("topic", "a")
    alice = hamlet["a"].user("alice")
    there, also = hamlet["b"].user("there"), hamlet["c"].user("also")
    for one in (there, also):
        one.say(Subscribe(id=1, to=topic))
    hamlet.settle()
    there.heard()
    hamlet.pause("a", "b")
    for n in range(10):
        alice.say(publish(topic, "x" * 500, id=n))
        hamlet.settle()
    nodes = [reply.nodes for reply in alice.heard()]
    left_out = nodes.count(1)
    assert nodes == [2] * (10 - left_out) + [1] * left_out
    assert 0 < left_out < 10
    assert hamlet["a"].recorder.drops == {"slow_link": left_out}
    hamlet.resume("a", "b")
    hamlet.settle()
    # Behind what came before it, and once.
    *came, notice = there.heard()
    assert len(came) == 10 - left_out
    assert (type(notice), notice.n) == (PACKED[Dropped], left_out)
    assert hamlet["b"].recorder.drops == {"missed": left_out}
    assert hamlet["c"].recorder.drops == {}
    assert hamlet.ask(alice, publish(topic, "x", id=11)).nodes == 2
    assert there.got() == ["x"]


def test_a_publish_that_meets_an_old_home_is_forwarded_once() -> None:
    hamlet = Hamlet(*"abc", joined=False)
    # To a, which has not met c, it lives on b; b knows better.
    topic = moving("topic", ("ab", "b"), ("abc", "c"))
    hamlet.link("a", "b")
    hamlet.link("b", "c")
    hamlet.settle()
    assert home_among("bc", topic) == "c"
    alice, reader = hamlet["a"].user("alice"), hamlet["c"].user("reader")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    alice.say(publish(topic, 1, id=1), publish(topic, 2, id=2), publish(topic, 3))
    hamlet.settle()
    assert {reply.id: reply.nodes for reply in alice.heard()} == {1: 1, 2: 1}
    assert reader.got() == [1, 2, 3]
    # What was forwarded is published where it arrives, though that is not home either.
    message = Message(1, "user:x", topic, 1, b"1")
    hamlet.hold("b", "a")
    hamlet.forge("a", "b", ToHome(APP, 50, [message], True))
    hamlet.tick()
    assert of_kind(hamlet.said("b", "c"), ToHome) == []
    assert of_kind(hamlet.said("b", "a"), Taken) == [Taken(50, 1, 0)]


def test_the_verdict_of_a_forwarded_publish_tells_of_a_refusal_and_of_silence() -> None:
    hamlet = Hamlet(*"abc", joined=False)
    topic = moving("topic", ("ab", "b"), ("bc", "c"))
    hamlet.link("a", "b")
    hamlet.link("b", "c")
    alice = hamlet["a"].user("alice")
    hamlet.settle()
    hamlet.hold("c", "b")
    alice.say(publish(topic, 1, id=1))
    hamlet.settle()
    hamlet.cut("b", "c")
    hamlet.settle()
    reply = alice.reply()
    assert (reply.ok, reply.error, reply.outcome) == (False, "overload", "unknown")


def test_a_wrong_topic_from_a_node_is_returned_by_number() -> None:
    hamlet = Hamlet("a", "b")
    wrong = next(name for name in (f"user:{n}" for n in range(99)) if home_among("ab", name) == "b")
    right = hamlet.placed("topic", "b")
    messages = [Message(n, "user:x", to, 1, b"1") for n, to in enumerate((right, wrong, right))]
    hamlet.hold("b", "a")
    hamlet.forge("a", "b", ToHome(APP, 7, messages))
    hamlet.tick()
    ops = hamlet.said("b", "a")
    assert [(op.first, op.count) for op in of_kind(ops, Taken)] == [(7, 1), (9, 1)]
    assert [(op.number, op.error) for op in of_kind(ops, Returned)] == [(8, "protocol")]
    assert APP not in hamlet["b"].hub.apps


def test_an_app_beyond_the_bound_is_refused_by_its_topics_home() -> None:
    hamlet = Hamlet("a", "b", hub=HubOptions(apps_max=1))
    hamlet["b"].user("bob")
    hamlet.hold("b", "a")
    message = Message(1, "user:x", "topic:t", 1, b"1")
    hamlet.forge("a", "b", ToHome("other", 7, [message], True), Watch("other", ["topic:t"]))
    hamlet.tick()
    assert [(op.number, op.error) for op in of_kind(hamlet.said("b", "a"), Returned)] == [
        (7, "overload")
    ]
    assert set(hamlet["b"].hub.apps) == {APP}
