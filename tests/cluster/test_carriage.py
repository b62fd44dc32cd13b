"""Carriage: ops about queues and services that live on another node are carried out there."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.cluster import carriage as module
from chappe.errors import CloseCode, Overload
from chappe.hub.grant import Grant, scope_of
from chappe.hub.options import HubOptions, Quota
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from chappe.wire.limits import Limits
from chappe.wire.node import Brought, Carry, Departed, Introduce
from chappe.wire.ops import (
    Ack,
    Consume,
    Create,
    Delivery,
    Fetch,
    Hello,
    Nack,
    Presence,
    Provide,
    Reply,
    Request,
    Respond,
    Unprovide,
)
from tests.cluster.hamlet import APP, Hamlet, Node, moving
from tests.hub.rig import payload_of, send
from tests.loop import on_loop

JOBS = "queue:jobs"


def working(names: str = "ab", owner: str = "b", **options: Any) -> Hamlet:
    """Nodes with a queue that lives on one of them."""
    hamlet = Hamlet(*names, **options)
    admin = hamlet[owner].user("admin")
    assert hamlet.ask(admin, Create(id=1, to=JOBS, volatile=True)).ok
    return hamlet


def deliveries(ops: list[Any]) -> list[Any]:
    return [op for op in ops if isinstance(op, Delivery)]


def of_kind(ops: list[Any], kind: type) -> list[Any]:
    return [op for op in ops if isinstance(op, kind)]


def requests(ops: list[Any]) -> list[Any]:
    return [op for op in ops if isinstance(op, Request)]


def stand_ins(node: Node) -> int:
    """How many sessions of an app are not this node's own."""
    app = node.hub.apps.get(APP)
    own = [s for s in node.hub.sessions.values() if s.address and s.app is app]
    return app.sessions - len(own) if app is not None else 0


@on_loop
async def test_sessions_of_other_nodes_are_no_connections_of_the_quota() -> None:  # H17
    hamlet = working(hub=HubOptions(quota=Quota(connections=3)))
    for name in ("x", "y", "z"):
        assert hamlet.ask(hamlet["a"].user(name), send(JOBS, 1, id=1)).ok
    b = hamlet["b"]
    assert stand_ins(b) == 3
    stand_in = next(iter(b.cluster.carriage._stand_ins.values()))
    b.hub.close(stand_in, CloseCode.SLOW_CONSUMER, "to see that it does not count either")
    b.user("first")
    b.user("second")
    with pytest.raises(Overload, match="3 connections"):
        b.user("third")


def request(to: str, data: str, id: int, **more: Any) -> Request:
    return Request(id=id, to=to, data=send("x", data).data, **more)


def answer(to: Any, data: Any) -> Respond:
    return Respond(request=to.request, data=send("x", data).data)


@pytest.mark.parametrize("encoding", [STREAM, JSON_ITEMS])
@on_loop
async def test_a_queue_elsewhere_is_used_as_if_it_were_here(encoding: Encoding) -> None:  # H17
    hamlet = working()
    a, b = hamlet["a"], hamlet["b"]
    alice, worker = a.user("alice", encoding), a.user("worker", encoding)
    sent = [hamlet.ask(alice, send(JOBS, n, id=n)) for n in range(3)]
    assert all(reply.ok for reply in sent)
    worker.say(Fetch(id=7, to=JOBS, n=2))
    hamlet.settle()
    *jobs, last = worker.heard()
    assert [payload_of(job) for job in jobs] == [0, 1]
    # Ids are in the form that each session reads.
    assert [job.message for job in jobs] == [reply.message for reply in sent[:2]]
    assert isinstance(jobs[0].message, str if encoding is JSON_ITEMS else int)
    assert (last.id, last.ok, last.n) == (7, True, 2)
    assert hamlet.ask(worker, Ack(id=8, message=jobs[0].message)).ok
    assert hamlet.ask(worker, Nack(id=9, message=jobs[1].message)).ok
    # Done with: it is not with this session any more, and not elsewhere.
    assert hamlet.ask(worker, Ack(id=10, message=jobs[0].message)).error == "protocol"
    at_home = b.user("home")
    at_home.say(Consume(id=1, to=JOBS, credit=5))
    hamlet.settle()
    assert at_home.got() == [1, 2]
    assert hamlet.ask(alice, Presence(id=11, to=JOBS)).online is True


@on_loop
async def test_a_session_is_introduced_once_and_its_stand_in_goes_with_it() -> None:
    hamlet = working()
    a, b = hamlet["a"], hamlet["b"]
    alice = a.user("alice")
    hamlet.settle()
    alice.say(send(JOBS, 1, id=1), send(JOBS, 2, id=2))
    hamlet.tick()
    assert [type(op) for op in hamlet.said("a", "b")] == [Introduce, Carry, Carry]
    hamlet.settle()
    assert [reply.ok for reply in alice.heard()] == [True, True]
    assert stand_ins(b) == 1
    alice.say(Fetch(id=3, to=JOBS, n=2))
    hamlet.settle()
    assert alice.got() == [1, 2]
    a.leave(alice)
    hamlet.settle()
    assert stand_ins(b) == 0
    # What it had not acknowledged goes to the next, as soon as all who leave with it have left.
    hamlet.loop.move(0.001)
    worker = b.user("worker")
    worker.say(Fetch(id=1, to=JOBS, n=5))
    hamlet.settle()
    assert worker.got() == [1, 2]


@on_loop
async def test_a_consumer_is_pushed_messages_over_the_link() -> None:
    hamlet = working("abc")
    worker, alice = hamlet["a"].user("worker"), hamlet["c"].user("alice")
    assert hamlet.ask(worker, Consume(id=1, to=JOBS, credit=2)).ok
    for n in range(4):
        alice.say(send(JOBS, n))
    hamlet.settle()
    jobs = deliveries(worker.heard())
    assert [payload_of(job) for job in jobs] == [0, 1]
    worker.say(Ack(message=jobs[1].message))
    hamlet.settle()
    assert worker.got() == [2]


@on_loop
async def test_when_its_node_goes_what_is_under_way_is_unknown_and_an_ack_is_answered() -> None:
    hamlet = working()
    a, b = hamlet["a"], hamlet["b"]
    worker = a.user("worker")
    hamlet.ask(worker, send(JOBS, 1, id=1))
    worker.say(Fetch(id=2, to=JOBS))
    hamlet.settle()
    (job,) = deliveries(worker.heard())
    worker.say(Fetch(id=4, to=JOBS, wait_ms=1000), Fetch(id=3, to=JOBS, wait_ms=1000))
    hamlet.settle()
    assert stand_ins(b) == 1
    hamlet.cut("a", "b")
    hamlet.settle()
    replies = worker.heard()
    assert [(reply.id, reply.error, reply.outcome) for reply in replies] == [
        (3, "overload", "unknown"),
        (4, "overload", "unknown"),
    ]
    assert stand_ins(b) == 0
    reply = hamlet.ask(worker, Ack(id=5, message=job.message))
    assert not reply.ok
    # At home it is free for the next.
    hamlet.loop.move(0.001)
    other = b.user("other")
    other.say(Fetch(id=1, to=JOBS))
    hamlet.settle()
    assert other.got() == [1]


@on_loop
async def test_what_is_under_way_is_bounded_and_what_is_answered_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_REQUESTS_MAX", 3)
    hamlet = working()
    worker, other = hamlet["a"].user("worker"), hamlet["a"].user("other")
    for n in range(10):
        assert hamlet.ask(worker, send(JOBS, n, id=n)).ok
        worker.say(send(JOBS, n))
    hamlet.settle()
    hamlet.ask(other, Presence(id=1, to=JOBS))
    hamlet.hold("b", "a")
    # The same id twice is one.
    worker.say(Fetch(id=20, to=JOBS), Fetch(id=20, to=JOBS), Fetch(id=21, to=JOBS))
    other.say(Fetch(id=22, to=JOBS), Fetch(id=23, to=JOBS))
    hamlet.settle()
    assert [(reply.id, reply.error) for reply in other.heard()] == [(23, "overload")]
    # One that leaves takes its requests along.
    hamlet["a"].leave(worker)
    other.say(Fetch(id=24, to=JOBS), Fetch(id=25, to=JOBS), Fetch(id=26, to=JOBS))
    hamlet.settle()
    assert [(reply.id, reply.error) for reply in other.heard()] == [(26, "overload")]
    hamlet.release("b", "a")
    hamlet.settle()
    assert [reply.id for reply in of_kind(other.heard(), Reply)] == [22, 24, 25]
    # So does a node that goes.
    hamlet.hold("b", "a")
    other.say(*(Fetch(id=n, to=JOBS, wait_ms=9) for n in (30, 31, 32)))
    hamlet.settle()
    hamlet.cut("a", "b")
    hamlet.link("a", "b")
    hamlet.release("b", "a")
    hamlet.settle()
    other.heard()
    assert hamlet.ask(other, Presence(id=40, to=JOBS)).ok


@on_loop
async def test_so_many_messages_of_a_session_may_still_be_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_DELIVERIES_MAX", 3)
    hamlet = working()
    worker = hamlet["a"].user("worker")
    for n in range(4):
        hamlet.ask(worker, send(JOBS, n, id=n))
    worker.say(Fetch(id=9, to=JOBS, n=4))
    hamlet.settle()
    jobs = deliveries(worker.heard())
    errors = [hamlet.ask(worker, Ack(id=10, message=job.message)).error for job in jobs]
    assert errors == ["protocol", None, None, None]


class Narrow:
    """Grants each user one thing only, the one it is called after."""

    def authenticate(self, hello: Hello) -> Grant:
        right = hello.as_.partition(":")[2]
        if right == "admin":
            return Grant(app=APP, address=hello.as_, administer=scope_of(["*"]))
        patterns = [JOBS, "service:s*"]
        return Grant(app=APP, address=hello.as_, **{right: scope_of(patterns)})


@on_loop
async def test_what_a_session_may_do_goes_with_it() -> None:
    hamlet = Hamlet("a", "b")
    for name in "ab":
        hamlet[name].hub._authenticator = Narrow()
    hamlet.ask(hamlet["b"].user("admin"), Create(id=1, to=JOBS, volatile=True))
    service = moving("service", ("ab", "b"))
    a = hamlet["a"]
    ops = {
        "send": send(JOBS, 1, id=1),
        "subscribe": Fetch(id=1, to=JOBS),
        "provide": Provide(id=1, to="service:s" + service),
    }
    users = {right: a.user(right) for right in ops}
    for right, who in users.items():
        for other, op in ops.items():
            if other == "provide" and hamlet["a"].cluster.home(APP, op.to) is None:
                continue
            who.say(op)
            hamlet.settle()
            (reply,) = of_kind(who.heard(), Reply)
            assert reply.ok is (right == other), (right, other)
            assert reply.ok or reply.error == "forbidden"


@on_loop
async def test_what_is_too_large_is_refused_before_it_travels() -> None:
    hamlet = working(limits=Limits(message_bytes_max=2000))
    alice = hamlet["a"].user("alice")
    hamlet.settle()
    hamlet.hold("a", "b")
    alice.say(send(JOBS, "x" * 3000, id=1))
    hamlet.settle()
    assert alice.reply().error == "protocol"
    assert hamlet.said("a", "b") == []


def test_a_service_elsewhere_is_asked_and_its_answer_or_error_comes_back() -> None:  # H18
    hamlet = Hamlet(*"abc")
    service = hamlet.placed("service", "b")
    provider, alice = hamlet["a"].user("provider"), hamlet["c"].user("alice")
    assert hamlet.ask(provider, Provide(id=1, to=service)).ok
    assert hamlet.ask(alice, Presence(id=1, to=service)).online is True
    alice.say(request(service, "one", 2), request(service, "two", 3))
    hamlet.settle()
    first, second = requests(provider.heard())
    provider.say(answer(first, "yes"))
    provider.say(Respond(request=second.request, error="forbidden", reason="no"))
    hamlet.settle()
    replies = {reply.id: reply for reply in alice.heard()}
    assert payload_of(replies[2]) == "yes"
    assert (replies[3].error, replies[3].reason) == ("forbidden", "no")
    hamlet.ask(provider, Unprovide(id=4, to=service))
    assert hamlet.ask(alice, Presence(id=5, to=service)).online is False


@pytest.mark.parametrize("ending", ["leave", "cut"])
def test_a_provider_that_goes_is_asked_no_more(ending: str) -> None:
    hamlet = Hamlet(*"abc")
    service = hamlet.placed("service", "b")
    provider, alice = hamlet["a"].user("provider"), hamlet["b"].user("alice")
    hamlet.ask(provider, Provide(id=1, to=service))
    alice.say(request(service, "x", 1))
    hamlet.settle()
    if ending == "leave":
        hamlet["a"].leave(provider)
    else:
        hamlet.cut("a", "b")
    hamlet.settle()
    assert alice.reply().error == "unreachable"
    assert hamlet.ask(alice, request(service, "x", 2)).error == "unreachable"


def test_what_is_provided_is_provided_again_where_its_home_moves() -> None:
    hamlet = Hamlet("a", "b")
    a, b, c = hamlet["a"], hamlet["b"], hamlet.add("c")
    moves = [
        (moving("service", ("ab", "b"), ("abc", "c")), a),
        (moving("service", ("ab", "a"), ("abc", "c")), a),
        (moving("service", ("ab", "b"), ("abc", "c")), b),
        # This one stays, and nobody is to withdraw from it.
        (moving("service", ("ab", "b"), ("abc", "b")), a),
    ]
    providers = []
    for n, (service, node) in enumerate(moves):
        provider = node.user(f"p{n}")
        hamlet.ask(provider, Provide(id=1, to=service))
        providers.append(provider)
    hamlet.link("a", "c")
    hamlet.link("b", "c")
    hamlet.settle()
    # Nobody is told of what was said for them.
    assert [p.heard() for p in providers] == [[]] * 4
    for n, (service, _) in enumerate(moves):
        online = [node.application.services.online(APP, service) for node in (a, b, c)]
        assert online == [False, n == 3, n != 3]
        asker = c.user(f"asker{n}")
        asker.say(request(service, "x", 1))
        hamlet.settle()
        (asked,) = [one for p in providers for one in requests(p.heard())][:1]
        assert asked.to == service


def test_what_was_provided_at_a_node_that_is_lost_is_provided_at_the_next_home() -> None:
    hamlet = Hamlet(*"abc")
    a = hamlet["a"]
    service = moving("service", ("abc", "b"), ("ac", "a"))
    stopped, lonely = (moving("service", ("abc", "b"), ("ac", "c"), skip=n) for n in (0, 1))
    provider, left = a.user("provider"), a.user("left")
    hamlet.ask(left, Provide(id=1, to=lonely))
    hamlet.ask(provider, Provide(id=1, to=service))
    hamlet.ask(provider, Provide(id=2, to=stopped))
    hamlet.ask(left, Provide(id=1, to=service))
    hamlet.ask(provider, Unprovide(id=3, to=stopped))
    a.leave(left)
    hamlet.settle()
    for name in "ac":
        hamlet.cut(name, "b")
    hamlet.settle()
    alice = hamlet["c"].user("alice")
    for name in (stopped, lonely):
        assert not hamlet["c"].application.services.online(APP, name)
    alice.say(request(service, "x", 1), request(service, "y", 2))
    hamlet.settle()
    assert len(requests(provider.heard())) == 2
    assert hamlet.ask(alice, request(stopped, "x", 3)).error == "unreachable"


def test_a_consumer_goes_on_where_its_queue_lives_now() -> None:
    """What stands is said again: here a consume, which its new home has to answer."""
    hamlet = Hamlet(*"abc")
    queue = moving("queue", ("abc", "b"), ("ac", "c"))
    worker = hamlet["a"].user("worker")
    hamlet.settle()
    hamlet["a"].cluster.stand(worker.session, Consume(id=1, to=queue))
    hamlet.cut("c", "b")
    hamlet.settle()
    hamlet.hold("a", "c")
    hamlet.cut("a", "b")
    hamlet.tick()
    assert [op for op in hamlet.said("a", "c") if isinstance(op, Carry)]


def test_for_a_session_that_is_not_known_both_sides_say_so() -> None:
    hamlet = Hamlet("a", "b")
    hamlet.hold("b", "a")
    hamlet.hold("a", "b")
    hamlet.forge("a", "b", Carry("ghost", b""), Departed("ghost"))
    hamlet.forge("b", "a", Brought("ghost", b""))
    hamlet.tick()
    assert of_kind(hamlet.said("b", "a"), Departed) == [Departed("ghost")]
    assert of_kind(hamlet.said("a", "b"), Departed) == [Departed("ghost")]


def test_a_stand_in_that_its_home_closed_is_introduced_again() -> None:
    hamlet = Hamlet("a", "b")
    b = hamlet["b"]
    service = hamlet.placed("service", "b")
    alice = hamlet["a"].user("alice")
    hamlet.ask(alice, Presence(id=1, to=service))
    hamlet.forge("a", "b", Departed(alice.session.id))
    assert stand_ins(b) == 0
    hamlet.forge("b", "a", Departed(alice.session.id))
    assert hamlet.ask(alice, Presence(id=2, to=service)).ok
    assert stand_ins(b) == 1


def test_an_introduction_that_comes_again_leaves_one_stand_in() -> None:
    hamlet = Hamlet("a", "b")
    b = hamlet["b"]
    service = hamlet.placed("service", "b")
    alice = hamlet["a"].user("alice")
    hamlet.ask(alice, Provide(id=1, to=service))
    hamlet.forge("b", "a", Departed(alice.session.id))  # late, about one before
    assert hamlet.ask(alice, Presence(id=2, to=service)).ok
    assert stand_ins(b) == 1
    hamlet["a"].leave(alice)
    hamlet.settle()
    assert stand_ins(b) == 0
    assert not b.application.services.online(APP, service)


def test_what_a_home_has_no_room_for_is_answered() -> None:
    hamlet = Hamlet("a", "b", hub=HubOptions(apps_max=1))
    a, b = hamlet["a"], hamlet["b"]
    b.user("bob")
    alice = a.user("alice", app="other")
    names = (f"service:s{n}" for n in range(100))
    service = next(name for name in names if not a.cluster.is_home("other", name))
    for n in range(3):
        reply = hamlet.ask(alice, request(service, "x", n))
        assert (reply.id, reply.error, reply.outcome) == (n, "overload", "unknown")
    assert hamlet.end("a", "b").up
