"""Work queues on a hub: each op, each answer, each error (H17)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.ops import Queues
from chappe.errors import BadRequest, CloseCode, ConfigError, Overload
from chappe.events.recorder import CountingRecorder
from chappe.hub.grant import Grant, scope_of
from chappe.hub.options import HubOptions
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from chappe.wire.ops import (
    Ack,
    Consume,
    Create,
    Delivery,
    Fetch,
    Hello,
    Nack,
    Op,
    Reply,
    Send,
)
from tests.endpoints.timer import ManualTimer
from tests.hub.rig import Endpoint, Rig, payload_of, send
from tests.loop import on_loop

JOBS = "queue:jobs"


class Narrow:
    """Grants each user one thing only."""

    def authenticate(self, hello: Hello) -> Grant:
        scopes = {hello.as_.partition(":")[2]: scope_of([JOBS])}
        return Grant(app="default", address=hello.as_, **scopes)


class QueueRig(Rig):
    """A hub that serves work queues, and a timer that tests move."""

    def __init__(self, *, queue_limits: QueueLimits | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.timer = ManualTimer()
        self.queues = Queues(self.hub, self.timer, queue_limits)
        self.hub.serve({**self.queues.handlers(), Send: self.queues.send})

    def jobs(self, **options: Any) -> None:
        self.queues.volatile.make(("default", JOBS), QueueOptions.of({"volatile": True, **options}), lambda error: None)
        self.queues.volatile.settle()

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
    rig.jobs()
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
    rig.jobs()
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
    rig.jobs()
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
    rig.jobs(ack_timeout_s=60.0)
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
    rig.jobs()
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
    rig.jobs(depth_max=2)
    alice = rig.endpoint("alice")
    assert (await rig.ask(alice, send(JOBS, 1, 1))).ok
    assert (await rig.ask(alice, send(JOBS, 2, 2))).ok
    assert error(await rig.ask(alice, send(JOBS, 3, 3)))[0] == "overload"


@on_loop
async def test_a_consumer_whose_outbox_is_full_is_passed_over() -> None:
    rig = QueueRig(options=HubOptions(outbox_bytes_max=200))
    rig.jobs()
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
async def test_drops_after_the_last_attempt_are_told_to_the_recorder() -> None:
    recorder = CountingRecorder()
    rig = QueueRig(recorder=recorder)
    rig.jobs(attempts_max=2)
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker")
    alice.say(send(JOBS, 1))
    for _ in range(2):
        worker.say(Fetch(to=JOBS))
        (message,) = await rig.heard(worker)
        worker.say(Nack(message=message.message))
    assert recorder.drops == {"attempts": 1}
    assert recorder.sends == 1


@on_loop
async def test_nobody_acknowledges_what_another_has() -> None:
    rig = QueueRig()
    rig.jobs()
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
    rig.jobs()
    worker = rig.endpoint("worker")
    code, reason = error(await rig.ask(worker, Ack(id=1, message=message)))
    assert (code, reason.partition(":")[0]) == ("protocol", "message")


@on_loop
async def test_queues_of_two_apps_share_nothing() -> None:
    rig = QueueRig()
    rig.jobs()
    alice, stranger = rig.endpoint("alice"), rig.endpoint("alice", app="other")
    alice.say(send(JOBS, "secret"))
    code, _ = error(await rig.ask(stranger, Fetch(id=1, to=JOBS)))
    assert code == "unreachable"
    rig.queues.create("other", JOBS, QueueOptions())
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
    rig.jobs(depth_max=1)
    assert (await rig.ask(alice, send(JOBS, 1, 3))).ok
    assert error(await rig.ask(alice, send(JOBS, 2, 4)))[0] == "overload"
    rig.jobs(depth_max=2)
    assert (await rig.ask(alice, send(JOBS, 2, 6))).ok
    alice.say(Fetch(to=JOBS, n=2))
    await rig.tick()
    assert alice.got() == [1, 2]
    assert rig.queues.delete("default", JOBS)
    assert not rig.queues.delete("default", JOBS)
    assert error(await rig.ask(alice, send(JOBS, 3, 8)))[0] == "unreachable"
    with pytest.raises(BadRequest, match="to"):
        rig.queues.create("default", "topic:news", QueueOptions())


def test_a_create_says_how_a_queue_is_made() -> None:
    op = Create(to=JOBS, volatile=True, depth_max=5, bytes_max=6, ack_timeout_s=7.0, attempts_max=8)
    assert QueueOptions.of(op) == QueueOptions(
        depth_max=5, bytes_max=6, ack_timeout_s=7.0, attempts_max=8
    )
    assert QueueOptions.of(Create(to=JOBS, volatile=True)) == QueueOptions()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"volatile": None}, "volatile"),
        ({"volatile": False}, "volatile"),
        ({"depth_max": 0}, "depth_max"),
        ({"bytes_max": -1}, "bytes_max"),
        ({"ack_timeout_s": 0.0}, "ack_timeout_s"),
        ({"ack_timeout_s": float("nan")}, "ack_timeout_s"),
        ({"attempts_max": 0}, "attempts_max"),
        ({"history": 5}, "history"),
        ({"history_s": 5.0}, "history_s"),
        ({"anonymous": False}, "anonymous"),
    ],
    ids=str,
)
def test_a_create_that_no_queue_can_be_made_of_names_its_field(
    fields: dict[str, Any], field: str
) -> None:
    op = Create(to=JOBS, **{"volatile": True, **fields})
    with pytest.raises(BadRequest) as caught:
        QueueOptions.of(op)
    assert caught.value.reason.partition(":")[0] == field


@on_loop
async def test_to_remove_a_queue_answers_who_waits_there() -> None:
    recorder = CountingRecorder()
    rig = QueueRig(recorder=recorder)
    rig.jobs()
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker")
    alice.say(send(JOBS, 1))
    worker.say(Fetch(id=1, to=JOBS))
    got = await rig.heard(worker)
    worker.say(Fetch(id=2, to=JOBS, wait_ms=1000))
    rig.queues.delete("default", JOBS)
    await rig.tick()
    code, reason = error(worker.reply())
    assert code == "unreachable"
    assert "removed" in reason
    assert recorder.drops == {"queue_removed": 1}
    assert error(await rig.ask(worker, Ack(id=3, message=got[0].message)))[0] == "protocol"
    assert rig.queues._visited == {}
    rig.hub.close(worker.session, CloseCode.NORMAL, "")


@pytest.mark.parametrize(
    ("op", "field"),
    [
        (Fetch(id=1, to=JOBS, n=0), "n"),
        (Fetch(id=1, to=JOBS, n=1001), "n"),
        (Fetch(id=1, to=JOBS, wait_ms=-1), "wait_ms"),
        (Fetch(id=1, to=JOBS, wait_ms=2**62), "wait_ms"),
        (Fetch(id=1, to=JOBS, group="g"), "group"),
        (Fetch(id=1, to=JOBS, tags=[]), "tags"),
        (Fetch(id=1, to="topic:jobs"), "to"),
        (Fetch(id=1, to="jobs"), "to"),
        (Consume(id=1, to=JOBS, credit=-1), "credit"),
        (Consume(id=1, to=JOBS, credit=1001), "credit"),
        (Consume(id=1, to=JOBS, group="g"), "group"),
        (Consume(id=1, to=JOBS, tags=["a"]), "tags"),
        (Send(id=1, to=JOBS), "data"),
    ],
    ids=str,
)
@on_loop
async def test_a_wrong_op_is_refused_by_the_name_of_its_field(op: Op, field: str) -> None:
    rig = QueueRig()
    rig.jobs()
    code, reason = error(await rig.ask(rig.endpoint("alice"), op))
    assert (code, reason.partition(":")[0]) == ("protocol", field)


@pytest.mark.parametrize(
    "extra",
    [
        {"key": "k"},
        {"headers": {}},
        {"tags": []},
        {"delay_ms": 0},
        {"producer": "p"},
        {"seq": 0},
        {"num": 0},
    ],
    ids=str,
)
@on_loop
async def test_what_only_a_durable_queue_does_is_not_ignored(extra: dict[str, Any]) -> None:
    rig = QueueRig()
    rig.jobs()
    op = send(JOBS, 1, 1)
    for name, value in extra.items():
        setattr(op, name, value)
        code, reason = error(await rig.ask(rig.endpoint("alice"), op))
        assert (code, reason.partition(":")[0]) == ("protocol", name)


@pytest.mark.parametrize(
    ("right", "op"),
    [
        ("send", send(JOBS, 1, 1)),
        ("subscribe", Fetch(id=1, to=JOBS)),
        ("subscribe", Consume(id=1, to=JOBS)),
    ],
    ids=str,
)
@on_loop
async def test_each_op_needs_its_own_right(right: str, op: Op) -> None:
    rig = QueueRig(authenticator=Narrow())
    rig.jobs()
    for other in {"send", "publish", "subscribe", "administer", "provide"} - {right}:
        assert error(await rig.ask(rig.endpoint(other), op))[0] == "forbidden"
    assert (await rig.ask(rig.endpoint(right), op)).ok


@on_loop
async def test_a_node_bounds_its_queues_and_what_they_hold_together() -> None:
    rig = QueueRig(queue_limits=QueueLimits(queues_max=2, bytes_max=10))
    rig.queues.create("default", "queue:a", QueueOptions())
    rig.queues.create("default", "queue:b", QueueOptions())
    with pytest.raises(Overload):
        rig.queues.create("default", "queue:c", QueueOptions())
    rig.queues.create("default", "queue:a", QueueOptions(depth_max=3))
    alice = rig.endpoint("alice")
    assert (await rig.ask(alice, send("queue:a", 123456, 1))).ok
    assert error(await rig.ask(alice, send("queue:b", 123456, 2)))[0] == "overload"
    rig.queues.delete("default", "queue:a")
    assert (await rig.ask(alice, send("queue:b", 123456, 3))).ok


@on_loop
async def test_the_alarm_rests_when_nothing_is_due_and_when_it_is_stopped() -> None:
    rig = QueueRig()
    rig.jobs()
    worker = rig.endpoint("worker")
    assert rig.timer.pending == []
    worker.say(Fetch(id=1, to=JOBS, wait_ms=1000))
    assert rig.timer.pending == [1.0]
    rig.queues.stop()
    assert rig.timer.pending == []
    await rig.tick()


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"queues\.queues_max"):
        QueueLimits(queues_max=0)
    with pytest.raises(BadRequest, match="depth_max"):
        QueueOptions(depth_max=0)
