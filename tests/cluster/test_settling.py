"""Settling: when nodes come and go, homes wait until all see the same ones (H16 to H18)."""

from __future__ import annotations

import pytest

from chappe.cluster import settling as module
from chappe.errors import Unreachable
from chappe.queues.options import QueueOptions
from chappe.wire.ops import Create, Fetch, Provide, Request, Subscribe
from tests.cluster.hamlet import APP, Hamlet, moving, narrow
from tests.hub.rig import publish, send
from tests.loop import on_loop


def joined(hamlet: Hamlet, *pairs: str) -> None:
    for one, other in pairs:
        hamlet.link(one, other)


def test_a_message_to_a_topic_that_moved_waits_until_every_node_has_said_who_subscribes() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    hamlet.add("c")
    topic = moving("topic", ("ab", "b"), ("abc", "c"), ("bc", "c"))
    reader, writer = a.user("r"), b.user("w")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    hamlet.hold("a", "c")  # a is slow to say that it watches
    joined(hamlet, "ac", "bc")
    hamlet.settle(patient=False)
    writer.say(publish(topic, "early", id=7))
    hamlet.settle(patient=False)
    assert writer.heard() == []
    hamlet.release("a", "c")
    hamlet.settle(patient=False)
    reply = writer.reply()
    assert (reply.ok, reply.nodes) == (True, 1)
    assert reader.got() == ["early"]


def test_a_request_to_a_service_that_moved_waits_for_its_providers() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    hamlet.add("c")
    service = moving("service", ("ab", "b"), ("abc", "c"), ("bc", "c"))
    provider, asker = a.user("p"), b.user("q")
    hamlet.ask(provider, Provide(id=1, to=service))
    hamlet.hold("a", "c")
    joined(hamlet, "ac", "bc")
    hamlet.settle(patient=False)
    asker.say(Request(id=7, to=service, data=publish(service, 1).data))
    hamlet.settle(patient=False)
    assert asker.heard() == []
    hamlet.release("a", "c")
    hamlet.settle(patient=False)
    assert [type(op).__name__ for op in provider.heard()] == ["PackedRequest"]


def test_nodes_that_never_see_the_same_hold_nothing_for_longer_than_the_limit() -> None:
    hamlet = Hamlet(*"abc")
    a, c = hamlet["a"], hamlet["c"]
    hamlet.cut("a", "b")  # c sees both, neither sees the other
    hamlet.settle(patient=False)
    topic = hamlet.placed("topic", "c")
    reader, writer = a.user("r"), c.user("w")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    hamlet.cut("b", "c")
    hamlet.link("b", "c")
    hamlet.settle(patient=False)
    writer.say(publish(topic, "late", id=7))
    hamlet.settle(patient=False)
    assert writer.heard() == []
    hamlet.later(c.cluster.settle_s)
    assert writer.reply().ok
    assert reader.got() == ["late"]


def test_what_is_held_comes_out_in_the_order_it_came_in() -> None:
    hamlet = Hamlet("a", "b")
    a = hamlet["a"]
    topic = hamlet.placed("topic", "a")
    reader, writer = a.user("r"), a.user("w")
    hamlet.ask(reader, Subscribe(id=1, to=topic))
    hamlet.cut("a", "b")
    hamlet.hold("b", "a")
    hamlet.link("a", "b")
    hamlet.settle(patient=False)
    writer.say(*(publish(topic, n) for n in range(5)))
    hamlet.settle(patient=False)
    assert reader.got() == []
    writer.say(publish(topic, 5))
    hamlet.release("b", "a")
    hamlet.settle(patient=False)
    assert reader.got() == [0, 1, 2, 3, 4, 5]


def test_nodes_that_come_and_go_all_the_time_hold_nothing_for_longer_than_the_limit() -> None:
    hamlet = Hamlet(*"abc")
    a = hamlet["a"]
    topic = moving("topic", ("abc", "a"), ("ac", "a"))
    writer = a.user("w")
    hamlet.hold("c", "a")  # whose word that it sees the same never comes
    hamlet.cut("a", "b")
    writer.say(publish(topic, 1, id=7))
    held_s, step_s = 0.0, a.cluster.settle_s / 4
    while not (heard := writer.heard()):
        hamlet.settle(patient=False)
        hamlet.loop.move(step_s)
        held_s += step_s
        assert held_s <= a.cluster.settle_s + step_s
        hamlet.link("a", "b")
        hamlet.tick()
        hamlet.cut("a", "b")
    assert heard[0].ok


def test_more_than_may_wait_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HELD_MAX", 2)
    hamlet = Hamlet("a", "b")
    a = hamlet["a"]
    topic = hamlet.placed("topic", "a")
    writer = a.user("w")
    hamlet.cut("a", "b")
    hamlet.hold("b", "a")
    hamlet.link("a", "b")
    hamlet.settle(patient=False)
    writer.say(*(publish(topic, n, id=n) for n in range(3)))
    hamlet.settle(patient=False)
    refusal = writer.reply()
    assert (refusal.id, refusal.error) == (2, "overload")
    hamlet.later(a.cluster.settle_s)
    assert [reply.ok for reply in writer.heard()] == [True, True]


@on_loop
async def test_an_op_that_reached_a_queues_new_node_before_its_record_waits_for_it() -> None:
    hamlet = Hamlet(*"abc")
    a, b = hamlet["a"], hamlet["b"]
    admin, worker = b.user("admin"), a.user("worker")
    hamlet.ask(admin, Create(id=1, to="queue:q", volatile=True))
    hamlet.ask(admin, send("queue:q", "job", id=2))
    # The node that holds it goes; c hears of it later than a, who asks it at once.
    hamlet.hold("b", "c")
    b.application.definitions.move(APP, "queue:q", "c")
    hamlet.settle(patient=False)
    worker.say(Fetch(id=3, to="queue:q", n=1, wait_ms=1000))
    hamlet.settle(patient=False)
    assert worker.heard() == []
    hamlet.release("b", "c")
    hamlet.settle(patient=False)
    assert worker.got() == ["job"]


@on_loop
async def test_an_op_about_what_lives_elsewhere_is_refused_in_the_end() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    admin, worker = b.user("admin"), a.user("worker")
    hamlet.ask(admin, Create(id=1, to="queue:q", volatile=True))
    # a believes that it is b's, and b that it is a's.
    b.application.definitions._owners[APP, "queue:q"] = type(
        b.application.definitions._owners[APP, "queue:q"]
    )("a", QueueOptions(volatile=True))
    b.application.queues.volatile.give_up((APP, "queue:q"), Unreachable("it moved"))
    worker.say(Fetch(id=3, to="queue:q", n=1))
    hamlet.settle(patient=False)
    assert worker.heard() == []
    hamlet.later(2 * a.cluster.settle_s)
    refusal = worker.reply()
    assert (refusal.error, refusal.outcome) == ("overload", None)


@on_loop
async def test_a_node_that_leaves_takes_no_queue_over() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    worker = a.user("worker")
    hamlet.ask(b.user("admin"), Create(id=1, to="queue:q", volatile=True))
    hamlet.cut("a", "b")
    hamlet.settle()
    a.cluster.leaving = True
    refusal = hamlet.ask(worker, Fetch(id=3, to="queue:q", n=1))
    assert refusal.error == "overload"
    assert a.application.definitions.owner_of(APP, "queue:q") == "b"


def test_a_subscribe_whose_home_is_silent_is_answered_in_time() -> None:
    hamlet = Hamlet("a", "b", **narrow(answer_timeout_s=5.0))
    a = hamlet["a"]
    reader = a.user("r")
    hamlet.hold("b", "a")
    reader.say(Subscribe(id=1, to=hamlet.placed("topic", "b")))
    hamlet.settle()
    assert reader.heard() == []
    hamlet.later(6.0)
    refusal = reader.reply()
    assert (refusal.error, refusal.outcome) == ("overload", "unknown")
    assert a.cluster.joining(reader.session) == 0
    hamlet.release("b", "a")
    hamlet.settle()
    assert reader.heard() == []


def test_a_request_whose_home_is_silent_is_answered_in_its_own_time() -> None:
    hamlet = Hamlet("a", "b")
    a, b = hamlet["a"], hamlet["b"]
    service = hamlet.placed("service", "b")
    hamlet.ask(b.user("p"), Provide(id=1, to=service))
    asker = a.user("q")
    hamlet.hold("b", "a")
    asker.say(Request(id=7, to=service, timeout_ms=1000, data=publish(service, 1).data))
    hamlet.settle()
    assert asker.heard() == []
    hamlet.later(2.0)
    refusal = asker.reply()
    assert (refusal.error, refusal.outcome) == ("overload", "unknown")
    hamlet.release("b", "a")
    hamlet.later(60.0)
    assert asker.heard() == []  # a late answer is nobody's


def test_what_may_have_been_taken_is_not_sent_again_nor_called_unreachable() -> None:
    for relink in (False, True):
        hamlet = Hamlet(*"abc")
        a, b, c = hamlet["a"], hamlet["b"], hamlet["c"]
        phone, tablet, alice = b.user("bob"), c.user("bob"), a.user("alice")
        hamlet.settle()
        hamlet.hold("b", "a")
        c.leave(tablet)
        hamlet.hold("c", "a")
        alice.say(send("user:bob", "hi", id=7))
        hamlet.settle()
        hamlet.cut("a", "b")
        if relink:
            hamlet.release("b", "a")
            hamlet.link("a", "b")
        hamlet.release("c", "a")
        hamlet.settle()
        refusal = alice.reply()
        assert (refusal.error, refusal.outcome) == ("overload", "unknown")
        assert phone.got() == ["hi"]
