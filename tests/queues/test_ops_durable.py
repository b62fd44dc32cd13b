"""Durable queues on a hub: named consumers, dead letters, looks inside, and answers only for what
is stored (Q5 to Q9, Q13)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chappe.errors import CloseCode, Overload
from chappe.hub.grant import Grant, scope_of
from chappe.message import Message
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.queue import Queue
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from chappe.wire.ops import (
    Ack,
    Cancel,
    Consume,
    Fetch,
    Hello,
    Inspect,
    Letters,
    Nack,
    Register,
    Reply,
    Send,
    Unregister,
)
from tests.hub.rig import Endpoint, payload_of
from tests.loop import on_loop
from tests.queues.rig import HeldStorage
from tests.queues.test_ops import QueueRig, error

JOBS = "queue:jobs"


class DurableRig(QueueRig):
    """Queues whose commits a test does; all of them at each tick, unless they are held."""

    def __init__(self, *, authenticator: Any = None, **options: Any) -> None:
        super().__init__(authenticator=authenticator)
        self.storage = HeldStorage(QueueLimits())
        self.held = False
        broker = self.queues.broker(self.storage, "here")
        self.queues.durable["here"] = broker
        broker.make(("default", JOBS), QueueOptions.of(options), lambda error: None)
        self.told: list[Message] = []
        self.queues.tell = lambda app, message: self.told.append(message)

    async def tick(self) -> None:
        await super().tick()
        for _ in range(100):
            if self.held or not self.storage.flush():
                return
            await super().tick()

    @property
    def queue(self) -> Queue:
        return self.queues.durable["here"].queues["default", JOBS]

    async def figures(self, who: Endpoint) -> Any:
        reply = await self.ask(who, Inspect(id=1, to=JOBS))
        return msgspec.json.decode(reply.data or b"")  # type: ignore[arg-type]


def put(data: Any, id: int | None = None, **fields: Any) -> Send:
    return Send(id=id, to=JOBS, data=msgspec.Raw(msgspec.json.encode(data)), **fields)


@on_loop
async def test_a_send_is_answered_with_its_number_once_it_is_stored() -> None:  # Q5, Q13
    rig = DurableRig()
    alice = rig.endpoint("alice")
    await rig.tick()
    rig.held = True
    alice.say(put("job", 5, num=42))
    assert await rig.heard(alice) == []
    rig.held = False
    (reply,) = await rig.heard(alice)
    assert (reply.id, reply.ok, reply.num) == (5, True, 42)
    assert reply.message is not None


@on_loop
async def test_a_send_whose_commit_fails_is_refused_and_says_if_nobody_knows() -> None:  # Q5
    rig = DurableRig()
    alice = rig.endpoint("alice")
    await rig.tick()
    for unknown in (False, True):
        rig.held = True
        alice.say(put("job", 5))
        await rig.tick()
        rig.storage.fail(Overload("the disk failed", outcome_unknown=unknown))
        reply = (await rig.heard(alice))[0]
        assert (reply.error, reply.outcome) == ("overload", "unknown" if unknown else None)
        rig.held = False
        code, reason = error(await rig.ask(alice, put("job", 6)))
        assert (code, "the disk failed" in reason) == ("overload", True)
        rig.timer.move_to(rig.timer.now + 2)
        assert (await rig.ask(alice, put("job", 7))).ok


@on_loop
async def test_acks_and_registrations_are_answered_once_they_are_stored() -> None:
    rig = DurableRig()
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker")
    alice.say(put("job"))
    await rig.tick()
    worker.say(Fetch(id=1, to=JOBS))
    (message, _) = await rig.heard(worker)
    rig.held = True
    ops: list[Any] = [
        Ack(id=2, message=message.message),
        Register(id=3, to=JOBS, name="w"),
        Consume(id=4, to="queue:jobs", credit=1),
    ]
    worker.say(*ops)
    # It takes as a group already, so there is nothing to be stored for the last.
    assert [op.id for op in await rig.heard(worker)] == [4]
    rig.held = False
    assert [(op.id, op.ok) for op in await rig.heard(worker)] == [(2, True), (3, True)]


@on_loop
async def test_a_consumer_of_a_new_group_is_answered_before_its_first_message() -> None:
    rig = DurableRig()
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker")
    alice.say(put(1), put(2))
    await rig.tick()
    rig.held = True
    worker.say(Consume(id=1, to=JOBS, credit=5, group="g"))
    assert await rig.heard(worker) == []
    rig.held = False
    reply, *messages = await rig.heard(worker)
    assert (reply.id, reply.ok) == (1, True)
    assert [payload_of(one) for one in messages] == [1, 2]


@pytest.mark.parametrize("encoding", [STREAM, JSON_ITEMS])
@on_loop
async def test_a_delivery_says_what_was_sent_and_which_attempt_it_is(encoding: Encoding) -> None:
    rig = DurableRig(retry_s=0.0)
    alice, worker = rig.endpoint("alice", encoding), rig.endpoint("worker", encoding)
    worker.say(Consume(to=JOBS, credit=5, group="g"))
    alice.say(put({"n": 1}, num=7, key="k", headers={"h": "v"}, tags=["t"], type=0))
    (first,) = await rig.heard(worker)
    assert (first.key, first.headers, first.tags, first.num) == ("k", {"h": "v"}, ["t"], 7)
    assert (first.group, first.attempt, first.type) == ("g", 1, 0)
    assert (first.from_, first.to, payload_of(first)) == ("user:alice", JOBS, {"n": 1})
    worker.say(Nack(message=first.message))
    (again,) = await rig.heard(worker)
    assert (again.message, again.attempt) == (first.message, 2)


@pytest.mark.parametrize(("given", "kept"), [(0, 0), (1, 1), (4, 4), (9, 1), (None, 1)])
@on_loop
async def test_an_unknown_type_becomes_one(given: int | None, kept: int) -> None:  # Q13
    rig = DurableRig()
    alice = rig.endpoint("alice")
    assert (await rig.ask(alice, put(1, 1, type=given))).ok
    reply = await rig.ask(alice, Inspect(id=2, to=JOBS, n=1))
    (shown,) = msgspec.json.decode(reply.data or b"")["messages"]  # type: ignore[arg-type]
    assert (shown["type"], shown["data"]) == (kept, 1)


@on_loop
async def test_a_send_that_asks_for_no_answer_is_one_way() -> None:  # Q2, Q13
    rig = DurableRig()
    alice = rig.endpoint("alice")
    alice.say(put(1))
    assert await rig.heard(alice) == []
    reply = await rig.ask(alice, Inspect(id=2, to=JOBS, n=1))
    (shown,) = msgspec.json.decode(reply.data or b"")["messages"]  # type: ignore[arg-type]
    assert shown["type"] == 0


@on_loop
async def test_a_name_whose_holder_still_answers_is_refused() -> None:  # Q8
    rig = DurableRig()
    one, two = rig.endpoint("one"), rig.endpoint("two")
    assert (await rig.ask(one, Register(id=1, to=JOBS, name="w"))).ok
    assert (await rig.ask(one, Register(id=2, to=JOBS, name="w"))).ok
    for op in (
        Register(id=1, to=JOBS, name="w"),
        Consume(id=1, to=JOBS, name="w"),
        Fetch(id=1, to=JOBS, name="w"),
    ):
        code, reason = error(await rig.ask(two, op))
        assert (code, reason.partition(":")[0]) == ("protocol", "name")
    rig.hub.close(one.session, CloseCode.NORMAL, "")
    assert (await rig.ask(two, Register(id=1, to=JOBS, name="w"))).ok


@on_loop
async def test_a_name_is_still_held_after_its_queue_was_opened_anew() -> None:  # Q8
    rig = DurableRig()
    one, two = rig.endpoint("one"), rig.endpoint("two")
    await rig.ask(one, Register(id=1, to=JOBS, name="w"))
    rig.held = True
    one.say(put(1))
    await rig.tick()
    rig.storage.fail(Overload("the disk failed"))
    rig.held = False
    rig.timer.move_to(2.0)
    await rig.tick()
    assert error(await rig.ask(two, Register(id=1, to=JOBS, name="w")))[0] == "protocol"


@on_loop
async def test_consumers_go_on_after_a_failure_and_leave_like_all_others() -> None:
    rig = DurableRig(retry_s=0.0)
    alice, one, two = rig.endpoint("alice"), rig.endpoint("one"), rig.endpoint("two")
    one.say(Consume(to=JOBS, credit=1))
    await rig.tick()
    rig.held = True
    alice.say(put("lost", 1))
    await rig.tick()
    rig.storage.fail(Overload("the disk failed"))
    rig.held = False
    rig.timer.move_to(2.0)
    await rig.tick()
    alice.say(put("job"))
    await rig.tick()
    assert one.got() == ["job"]
    two.say(Consume(to=JOBS, credit=1))
    await rig.tick()
    rig.hub.close(one.session, CloseCode.NORMAL, "")
    rig.timer.move_to(2.0)
    await rig.tick()
    assert two.got() == ["job"]


@on_loop
async def test_another_filter_is_refused_and_changes_nothing() -> None:  # Q8
    rig = DurableRig()
    one, two = rig.endpoint("one"), rig.endpoint("two")
    assert (await rig.ask(one, Consume(id=1, to=JOBS, group="g", tags=["red"]))).ok
    code, reason = error(await rig.ask(two, Consume(id=1, to=JOBS, group="g", tags=["blue"])))
    assert (code, reason.partition(":")[0]) == ("protocol", "tags")
    assert "red" in reason
    assert (await rig.ask(two, Consume(id=1, to=JOBS, group="g"))).ok


@on_loop
async def test_a_session_takes_from_a_queue_as_one_group_and_a_refusal_leaves_no_other() -> None:
    rig = DurableRig()
    one = rig.endpoint("one")
    assert (await rig.ask(one, Consume(id=1, to=JOBS, group="g"))).ok
    code, reason = error(await rig.ask(one, Consume(id=2, to=JOBS, group="h", name="n")))
    assert (code, reason.partition(":")[0]) == ("protocol", "group")
    assert [group["group"] for group in (await rig.figures(one))["groups"]] == ["g"]


@on_loop
async def test_who_unregisters_gets_nothing_more_and_may_come_as_another() -> None:  # Q8
    rig = DurableRig()
    alice, one = rig.endpoint("alice"), rig.endpoint("one")
    one.say(Register(to=JOBS, name="w"), Consume(to=JOBS, name="w", credit=5))
    alice.say(put(1))
    await rig.tick()
    assert one.got() == [1]
    assert (await rig.ask(one, Unregister(id=1, to=JOBS, name="w"))).ok
    alice.say(put(2))
    assert await rig.heard(one) == []
    assert (await rig.figures(one))["groups"] == []
    assert (await rig.ask(one, Consume(id=2, to=JOBS, group="other"))).ok


class Plain:
    """Lets everybody send and take, and one administer."""

    def authenticate(self, hello: Hello) -> Grant:
        all_ = scope_of(["queue:*"])
        none = scope_of([])
        administer = all_ if hello.as_ == "user:admin" else none
        return Grant(
            app="default", address=hello.as_, send=all_, subscribe=all_, administer=administer
        )


@on_loop
async def test_only_an_administrator_unregisters_others_who_answer() -> None:
    rig = DurableRig(authenticator=Plain())
    one, two, admin = (rig.endpoint(name) for name in ("one", "two", "admin"))
    await rig.ask(one, Register(id=1, to=JOBS, name="w"))
    for op in (Unregister(id=1, to=JOBS, name="w"), Unregister(id=1, to=JOBS, group="w")):
        assert error(await rig.ask(two, op))[0] == "forbidden"
    assert (await rig.ask(admin, Unregister(id=1, to=JOBS, group="w"))).ok


@on_loop
async def test_a_delayed_message_is_taken_back_by_its_id() -> None:  # Q2
    rig = DurableRig()
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker")
    worker.say(Consume(to=JOBS, credit=5))
    first = await rig.ask(alice, put(1, 1, delay_ms=2_000))
    second = await rig.ask(alice, put(2, 2, delay_ms=2_000))
    assert (await rig.ask(alice, Cancel(id=3, message=first.message or ""))).ok
    assert (
        error(await rig.ask(alice, Cancel(id=4, message=first.message or "")))[0] == "unreachable"
    )
    again = Cancel(id=5, to=JOBS, message=first.message or "")
    assert error(await rig.ask(alice, again))[0] == "unreachable"
    rig.clock.now_s += 2
    rig.timer.move_to(2.0)
    await rig.tick()
    (message,) = worker.heard()
    assert (payload_of(message), message.message) == (2, second.message)
    stranger = rig.endpoint("alice", app="other")
    assert error(await rig.ask(stranger, Cancel(id=1, message=1)))[0] == "unreachable"


@on_loop
async def test_a_sender_is_told_of_its_dead_letter_and_it_can_be_replayed() -> None:  # Q6, Q9
    rig = DurableRig(attempts_max=1)
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker")
    worker.say(Consume(to=JOBS, credit=5, group="g"))
    sent = await rig.ask(alice, put("job", 1, num=9))
    (message,) = await rig.heard(worker)
    worker.say(Nack(message=message.message))
    await rig.tick()
    (told,) = rig.told
    assert (told.sender, told.to) == (JOBS, "user:alice")
    assert msgspec.json.decode(told.payload) == {
        "dead_letter": {
            "message": str(sent.message),
            "num": 9,
            "reason": "handed back",
            "group": "g",
            "attempts": 1,
        }
    }
    assert (await rig.figures(alice))["dead"] == 1
    messages: list[Any] = [sent.message]
    replayed = await rig.ask(alice, Letters(id=2, to=JOBS, do="replay", messages=messages))
    assert (replayed.ok, replayed.n) == (True, 1)
    (again,) = worker.heard()
    assert again.message == sent.message
    worker.say(Nack(message=again.message))
    await rig.tick()
    assert (await rig.ask(alice, Letters(id=3, to=JOBS, do="purge"))).n == 1
    assert (await rig.figures(alice))["dead"] == 0


@on_loop
async def test_messages_of_a_queue_are_shown_over_the_wire() -> None:  # Q9
    rig = DurableRig()
    alice = rig.endpoint("alice", JSON_ITEMS)
    alice.say(*(put(n) for n in range(3)))
    await rig.tick()
    reply = await rig.ask(alice, Inspect(id=1, to=JOBS, n=2))
    page: Any = msgspec.json.decode(bytes(reply.data))  # type: ignore[arg-type]
    assert ([one["data"] for one in page["messages"]], page["next"]) == ([0, 1], 2)
    reply = await rig.ask(alice, Inspect(id=2, to=JOBS, n=2, after=page["next"]))
    page = msgspec.json.decode(bytes(reply.data))  # type: ignore[arg-type]
    assert ([one["data"] for one in page["messages"]], page["next"]) == ([2], None)


@on_loop
async def test_the_same_send_twice_is_answered_alike_and_delivered_once() -> None:  # Q5
    rig = DurableRig()
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker")
    worker.say(Consume(to=JOBS, credit=5))
    replies: list[Reply] = [
        await rig.ask(alice, put("job", n, producer="p", seq=1)) for n in (1, 2)
    ]
    assert replies[0].message == replies[1].message
    assert worker.got() == ["job"]
    assert rig.queue.state.depth() == 1


@on_loop
async def test_many_who_leave_in_one_turn_use_up_one_attempt_of_a_message() -> None:
    rig = DurableRig(retry_s=0.0, attempts_max=3)
    alice, last = rig.endpoint("alice"), rig.endpoint("last")
    crowd = [rig.endpoint(f"w{n}") for n in range(5)]
    for who in (*crowd, last):
        who.say(Consume(to=JOBS, credit=1))
        await rig.tick()
    alice.say(put("job"))
    await rig.tick()
    assert crowd[0].got() == ["job"]
    for who in crowd:
        rig.hub.close(who.session, CloseCode.NORMAL, "")
    rig.timer.move_to(rig.timer.now)
    (message,) = await rig.heard(last)
    assert message.attempt == 2


@on_loop
async def test_when_the_disk_is_full_sends_are_refused_and_acks_and_reads_go_on() -> None:  # Q11
    rig = DurableRig()
    alice, worker = rig.endpoint("alice"), rig.endpoint("worker")
    alice.say(put(1), put(2))
    await rig.tick()
    rig.storage.short = True
    assert error(await rig.ask(alice, put(3, 3)))[0] == "overload"
    worker.say(Fetch(id=1, to=JOBS, n=5))
    one, two, reply = await rig.heard(worker)
    assert reply.n == 2
    assert (await rig.ask(worker, Ack(id=2, message=one.message))).ok
    assert (await rig.ask(worker, Ack(id=3, message=two.message))).ok
