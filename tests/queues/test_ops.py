"""Queues on a hub: each op, each answer, each error (H17, Q5 to Q9)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chappe.errors import BadRequest, CloseCode, ConfigError, Unreachable
from chappe.events.counting import CountingRecorder
from chappe.hub.grant import Grant, scope_of
from chappe.hub.options import HubOptions
from chappe.queues.ops import Queues
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from chappe.wire.ops import (
    Ack,
    Cancel,
    Consume,
    Delivery,
    Fetch,
    Hello,
    Inspect,
    Letters,
    Nack,
    Op,
    Register,
    Reply,
    Send,
    Unregister,
)
from tests.endpoints.timer import ManualTimer
from tests.hub.rig import Endpoint, Rig, payload_of, send
from tests.loop import on_loop
from tests.parameters import named

JOBS = "queue:jobs"


class Narrow:
    """Grants each user one thing only."""

    def authenticate(self, hello: Hello) -> Grant:
        scopes = {hello.as_.partition(":")[2]: scope_of([JOBS])}
        return Grant(app="default", address=hello.as_, **scopes)


class QueueRig(Rig):
    """A hub that serves queues, and a timer that tests move."""

    def __init__(self, *, queue_limits: QueueLimits | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.timer = ManualTimer()
        self.queues = Queues(self.hub, self.timer, queue_limits)
        self.hub.serve({**self.queues.handlers(), Send: self.queues.sending.send})

    def make(self, to: str = JOBS, app: str = "default", **options: Any) -> None:
        made = QueueOptions.of({"volatile": True, **options})
        told: list[Any] = []
        self.queues.volatile.make((app, to), made, told.append)
        self.queues.volatile.settle()
        assert told == [None]

    def remove(self, to: str = JOBS) -> None:
        self.queues.volatile.remove(("default", to), Unreachable(f"{to} was removed"))

    async def tick(self) -> None:
        """Let queues have their turn, too."""
        for _ in range(3):
            await asyncio.sleep(0)
        await super().tick()

    async def ask(self, who: Endpoint, op: Op) -> Reply:
        who.say(op)
        await self.tick()
        return who.reply()

    async def heard(self, who: Endpoint) -> list[Any]:
        await self.tick()
        return who.heard()


def summary(ops: list[Any]) -> list[Any]:
    """Payloads of messages, and what the replies to fetches say."""
    return [payload_of(op) if isinstance(op, Delivery) else (op.id, op.ok, op.n) for op in ops]


def error(reply: Reply) -> tuple[str | None, str]:
    assert not reply.ok
    return reply.error, reply.reason or ""


@pytest.mark.parametrize("encoding", [STREAM, JSON_ITEMS])
@on_loop
async def test_a_fetch_brings_messages_and_then_says_how_many(encoding: Encoding) -> None:
    rig = QueueRig()
    rig.make()
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker", encoding)
    sent = await rig.ask(alice, send(JOBS, {"job": 1}, 1))
    assert sent.ok
    alice.say(send(JOBS, 2, 2))
    worker.say(Fetch(id=9, to=JOBS, n=5))
    heard = await rig.heard(worker)
    assert summary(heard) == [{"job": 1}, 2, (9, True, 2)]
    assert (heard[0].from_, heard[0].to) == ("user:alice", JOBS)
    assert int(heard[0].message) == int(sent.message or 0)
    assert (await rig.ask(worker, Ack(id=10, message=heard[0].message))).ok
    assert (await rig.ask(worker, Nack(id=11, message=heard[1].message))).ok
    worker.say(Fetch(id=12, to=JOBS, n=5))
    assert summary(await rig.heard(worker)) == [2, (12, True, 1)]


@on_loop
async def test_a_fetch_that_waits_is_answered_by_what_comes_or_when_its_time_is_over() -> None:
    rig = QueueRig()
    rig.make()
    alice, one, two = rig.endpoint("alice"), rig.endpoint("one"), rig.endpoint("two")
    one.say(Fetch(id=1, to=JOBS, n=3, wait_ms=1000))
    two.say(Fetch(id=2, to=JOBS, wait_ms=500))
    assert await rig.heard(one) == await rig.heard(two) == []
    alice.say(send(JOBS, "first"))
    assert summary(await rig.heard(one)) == ["first", (1, True, 1)]
    rig.timer.move_to(0.6)
    assert summary(await rig.heard(two)) == [(2, True, 0)]


@on_loop
async def test_a_worker_that_dies_hands_on_what_it_had_in_order() -> None:
    rig = QueueRig()
    rig.make()
    alice, dying, next_ = rig.endpoint("alice"), rig.endpoint("dying"), rig.endpoint("next")
    alice.say(*(send(JOBS, n) for n in range(5)))
    dying.say(Fetch(id=1, to=JOBS, n=3))
    got = await rig.heard(dying)
    dying.say(Ack(message=got[1].message))
    next_.say(Consume(id=2, to=JOBS, credit=10))
    await rig.heard(next_)
    dying.say(Fetch(id=3, to=JOBS, wait_ms=1000))
    rig.hub.close(dying.session, CloseCode.GOING_AWAY, "dies")
    rig.timer.move_to(rig.timer.now)
    await rig.tick()
    assert next_.got() == [0, 2]
    alice.say(send(JOBS, 5))
    await rig.tick()
    assert next_.got() == [5]


@on_loop
async def test_what_is_not_acknowledged_in_time_goes_to_the_next() -> None:
    rig = QueueRig()
    rig.make(ack_timeout_s=60.0)
    alice, slow, next_ = rig.endpoint("alice"), rig.endpoint("slow"), rig.endpoint("next")
    alice.say(send(JOBS, "job"))
    slow.say(Fetch(id=1, to=JOBS))
    message = (await rig.heard(slow))[0].message
    next_.say(Consume(to=JOBS, credit=1))
    rig.timer.move_to(59.0)
    assert await rig.heard(next_) == []
    rig.timer.move_to(60.5)
    await rig.tick()
    assert next_.got() == ["job"]
    code, reason = error(await rig.ask(slow, Ack(id=2, message=message)))
    assert code == "protocol"
    assert "its time ran out" in reason


@on_loop
async def test_consuming_pushes_up_to_the_credit_and_each_ack_brings_one() -> None:
    rig = QueueRig()
    rig.make()
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker")
    assert (await rig.ask(worker, Consume(id=1, to=JOBS, credit=2))).ok
    alice.say(*(send(JOBS, n) for n in range(4)))
    heard = await rig.heard(worker)
    assert [payload_of(op) for op in heard] == [0, 1]
    worker.say(Ack(message=heard[0].message))
    await rig.tick()
    assert worker.got() == [2]


@on_loop
async def test_past_the_bound_a_send_is_answered_overload() -> None:
    rig = QueueRig()
    rig.make(depth_max=2)
    alice = rig.endpoint("alice")
    assert (await rig.ask(alice, send(JOBS, 1, 1))).ok
    assert (await rig.ask(alice, send(JOBS, 2, 2))).ok
    assert error(await rig.ask(alice, send(JOBS, 3, 3)))[0] == "overload"


@on_loop
async def test_a_consumer_whose_outbox_is_full_is_passed_over() -> None:
    rig = QueueRig(options=HubOptions(outbox_bytes_max=200))
    rig.make()
    alice, stuck, free = rig.endpoint("alice"), rig.endpoint("stuck"), rig.endpoint("free")
    rig.hub.pause(stuck.session)
    stuck.say(Consume(to=JOBS, credit=9))
    free.say(Consume(to=JOBS, credit=9))
    for n in range(4):
        alice.say(send(JOBS, f"{n}" + "x" * 60))
        await rig.tick()
    assert [data[:1] for data in free.got()] == ["1", "2", "3"]
    rig.hub.resume(stuck.session)
    await rig.tick()
    assert [data[:1] for data in stuck.got()] == ["0"]
    rig.timer.move_to(1.5)
    alice.say(send(JOBS, 4), send(JOBS, 5))
    await rig.tick()
    assert (free.got(), stuck.got()) == ([4], [5])


@on_loop
async def test_dead_letters_are_told_to_the_recorder() -> None:
    recorder = CountingRecorder()
    rig = QueueRig(recorder=recorder)
    rig.make(attempts_max=2)
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker")
    alice.say(send(JOBS, 1))
    for _ in range(2):
        worker.say(Fetch(to=JOBS))
        (message,) = await rig.heard(worker)
        worker.say(Nack(message=message.message))
    await rig.tick()
    assert recorder.drops == {"dead_letter": 1}
    assert recorder.sends == 1


@on_loop
async def test_nobody_acknowledges_what_another_has() -> None:
    rig = QueueRig()
    rig.make()
    alice, worker, thief = rig.endpoint("alice"), rig.endpoint("worker"), rig.endpoint("thief")
    other = rig.endpoint("worker", app="other")
    alice.say(send(JOBS, 1))
    worker.say(Fetch(to=JOBS))
    (message,) = await rig.heard(worker)
    for who in (thief, other):
        for op in (Ack, Nack):
            assert error(await rig.ask(who, op(id=1, message=message.message)))[0] == "protocol"
    assert (await rig.ask(worker, Ack(id=1, message=message.message))).ok
    assert error(await rig.ask(worker, Ack(id=2, message=message.message)))[0] == "protocol"


@pytest.mark.parametrize("message", ["", "m0a", "-1", "1" * 40, "٣", "1_0", 0, -7, 2**63 - 1])
@on_loop
async def test_an_ack_of_what_is_no_message_is_refused(message: str | int) -> None:
    rig = QueueRig()
    rig.make()
    worker = rig.endpoint("worker")
    code, reason = error(await rig.ask(worker, Ack(id=1, message=message)))
    assert (code, reason.partition(":")[0]) == ("protocol", "message")


@on_loop
async def test_queues_of_two_apps_share_nothing() -> None:
    rig = QueueRig()
    rig.make()
    alice, stranger = rig.endpoint("alice"), rig.endpoint("alice", app="other")
    alice.say(send(JOBS, "secret"))
    code, _ = error(await rig.ask(stranger, Fetch(id=1, to=JOBS)))
    assert code == "unreachable"
    rig.make(app="other")
    assert (await rig.ask(stranger, Fetch(id=1, to=JOBS))).n == 0


@on_loop
async def test_a_queue_that_nobody_made_says_how_to_make_it() -> None:
    rig = QueueRig()
    alice = rig.endpoint("alice")
    for op in (send(JOBS, 1, 1), Fetch(id=1, to=JOBS), Consume(id=1, to=JOBS)):
        code, reason = error(await rig.ask(alice, op))
        assert code == "unreachable"
        assert "create" in reason


@on_loop
async def test_a_queue_is_made_made_otherwise_and_removed() -> None:
    rig = QueueRig()
    alice = rig.endpoint("alice")
    rig.make(depth_max=1)
    assert (await rig.ask(alice, send(JOBS, 1, 3))).ok
    assert error(await rig.ask(alice, send(JOBS, 2, 4)))[0] == "overload"
    rig.make(depth_max=2)
    assert (await rig.ask(alice, send(JOBS, 2, 6))).ok
    alice.say(Fetch(to=JOBS, n=2))
    await rig.tick()
    assert alice.got() == [1, 2]
    rig.remove()
    rig.remove()
    assert error(await rig.ask(alice, send(JOBS, 3, 8)))[0] == "unreachable"


@on_loop
async def test_to_remove_a_queue_answers_who_waits_there() -> None:
    recorder = CountingRecorder()
    rig = QueueRig(recorder=recorder)
    rig.make()
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker")
    alice.say(send(JOBS, 1))
    worker.say(Fetch(id=1, to=JOBS))
    got = await rig.heard(worker)
    worker.say(Fetch(id=2, to=JOBS, wait_ms=1000))
    rig.remove()
    await rig.tick()
    code, reason = error(worker.reply())
    assert code == "unreachable"
    assert "removed" in reason
    assert recorder.drops == {"queue_removed": 1}
    assert error(await rig.ask(worker, Ack(id=3, message=got[0].message)))[0] == "protocol"
    rig.hub.close(worker.session, CloseCode.NORMAL, "")
    assert rig.queues.consuming._visited == {}


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (Fetch(id=1, to=JOBS, n=0), "n"),
        (Fetch(id=1, to=JOBS, n=1001), "n"),
        (Fetch(id=1, to=JOBS, wait_ms=-1), "wait_ms"),
        (Fetch(id=1, to=JOBS, wait_ms=2**62), "wait_ms"),
        (Fetch(id=1, to="topic:jobs"), "to"),
        (Fetch(id=1, to="jobs"), "to"),
        (Consume(id=1, to=JOBS, credit=-1), "credit"),
        (Consume(id=1, to=JOBS, credit=1001), "credit"),
        (Fetch(id=1, to=JOBS, group="g*"), "group"),
        (Fetch(id=1, to=JOBS, group="!dead"), "group"),
        (Fetch(id=1, to=JOBS, name="a b"), "group"),
        (Fetch(id=1, to=JOBS, group="g", name="!x"), "name"),
        (Fetch(id=1, to=JOBS, tags=["t"] * 33), "tags"),
        (Consume(id=1, to=JOBS, tags=["two words"]), "tags"),
        (Consume(id=1, to=JOBS, headers={"h": "x" * 20_000}), "headers"),
        (Register(id=1, to=JOBS), "name"),
        (Register(id=1, to=JOBS, name="a", headers={str(n): "" for n in range(65)}), "headers"),
        (Unregister(id=1, to=JOBS, name="nobody"), "group"),
        (Nack(id=1, message=1, delay_ms=-1), "message"),
        (Inspect(id=1, to=JOBS, n=-1), "n"),
        (Inspect(id=1, to=JOBS, n=1, lane=77), "lane"),
        (Letters(id=1, to=JOBS, do="burn"), "do"),
        (Letters(id=1, to=JOBS, do="replay", messages=["x"]), "message"),
        (Cancel(id=1, to=JOBS, message="x"), "message"),
        (Send(id=1, to=JOBS), "data"),
    ],
    ids=named,
)
@on_loop
async def test_a_wrong_op_is_refused_by_the_name_of_its_field(op: Op, field: str) -> None:
    rig = QueueRig()
    rig.make()
    code, reason = error(await rig.ask(rig.endpoint("alice"), op))
    assert (code, reason.partition(":")[0]) == ("protocol", field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", ""),
        ("key", "k" * 1_025),
        ("headers", {str(n): "" for n in range(65)}),
        ("headers", {"h": "x" * 20_000}),
        ("tags", ["t"] * 33),
        ("tags", ["two words"]),
        ("delay_ms", -1),
        ("delay_ms", 367 * 86_400_000),
        ("producer", "p"),
        ("consumers", []),
        ("consumers", ["c"] * 33),
        ("consumers", ["!x"]),
    ],
    ids=lambda value: str(value)[:20],
)
@on_loop
async def test_what_a_message_must_not_say_of_itself_is_refused_by_name(
    field: str, value: Any
) -> None:
    rig = QueueRig()
    rig.make()
    op = send(JOBS, 1, 1)
    setattr(op, field, value)
    code, reason = error(await rig.ask(rig.endpoint("alice"), op))
    assert (code, reason.partition(":")[0]) == ("protocol", field)
    assert rig.queues.get("default", JOBS).state.depth() == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("producer", [("p", None), (None, 1), ("p", -1), ("", 1), ("p" * 129, 1)])
@on_loop
async def test_a_producer_and_its_number_go_together(producer: tuple[Any, Any]) -> None:  # Q5
    rig = QueueRig()
    rig.make()
    op = send(JOBS, 1, 1)
    op.producer, op.seq = producer
    code, reason = error(await rig.ask(rig.endpoint("alice"), op))
    assert (code, reason.partition(":")[0] in ("producer", "seq")) == ("protocol", True)


@pytest.mark.parametrize(
    ("right", "op"),
    [
        ("send", send(JOBS, 1, 1)),
        ("subscribe", Fetch(id=1, to=JOBS)),
        ("subscribe", Consume(id=1, to=JOBS)),
        ("subscribe", Register(id=1, to=JOBS, name="a")),
        ("administer", Inspect(id=1, to=JOBS)),
        ("administer", Inspect(id=1, to=JOBS, n=1)),
        ("administer", Letters(id=1, to=JOBS, do="purge")),
    ],
    ids=named,
)
@on_loop
async def test_each_op_needs_its_own_right(right: str, op: Op) -> None:
    rig = QueueRig(authenticator=Narrow())
    rig.make()
    for other in {"send", "publish", "subscribe", "administer", "provide"} - {right}:
        assert error(await rig.ask(rig.endpoint(other), op))[0] == "forbidden"
    assert (await rig.ask(rig.endpoint(right), op)).ok


@on_loop
async def test_the_volatile_queues_of_a_node_are_bounded_together() -> None:
    rig = QueueRig(queue_limits=QueueLimits(bytes_max=10))
    rig.make("queue:a")
    rig.make("queue:b")
    alice = rig.endpoint("alice")
    assert (await rig.ask(alice, send("queue:a", 123456, 1))).ok
    assert error(await rig.ask(alice, send("queue:b", 123456, 2)))[0] == "overload"
    rig.remove("queue:a")
    assert (await rig.ask(alice, send("queue:b", 123456, 3))).ok


@on_loop
async def test_the_alarm_rests_when_nothing_is_due_and_when_it_is_stopped() -> None:
    rig = QueueRig()
    rig.make()
    worker = rig.endpoint("worker")
    assert rig.timer.pending == []
    worker.say(Fetch(id=1, to=JOBS, wait_ms=1000))
    assert rig.timer.pending == [1.0]
    rig.queues.stop()
    assert rig.timer.pending == []
    await rig.tick()


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="queues_max"):
        QueueLimits(queues_max=0)
    with pytest.raises(BadRequest, match="depth_max"):
        QueueOptions(depth_max=0)
