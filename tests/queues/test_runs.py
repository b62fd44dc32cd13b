"""Runs: what one read brings for a queue is taken together, and comes out as if it were not."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.errors import Overload
from chappe.events.counting import CountingRecorder
from chappe.hub.options import HubOptions, Rate
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from chappe.wire.ops import Ack, Consume, Fetch, Nack, Publish, Send
from tests.hub.rig import Endpoint, Rig, payload_of
from tests.loop import on_loop
from tests.queues.test_ops import Narrow
from tests.queues.test_ops_durable import JOBS, DurableRig, put


class RunRig(DurableRig):
    """A hub that takes what it can of a queue's ops together, and counts how much that is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.taken: list[int] = []
        self.hub.serve_runs({Send: self._send, Ack: self._ack})

    def _send(self, session: Any, ops: list[Any], at: int) -> int:
        self.taken.append(self.queues.send_run(session, self.queue, ops, at))
        return self.taken[-1]

    def _ack(self, session: Any, ops: list[Any], at: int) -> int:
        self.taken.append(self.queues.ack_run(session, ops, at))
        return self.taken[-1]

    async def consumer(self, credit: int = 100, encoding: Encoding = STREAM) -> Endpoint:
        worker = self.endpoint("worker", encoding)
        worker.say(Consume(id=1, to=JOBS, credit=credit))
        assert (await self.heard(worker))[0].ok
        return worker


def payloads(ops: list[Any]) -> list[Any]:
    return [payload_of(op) for op in ops]


@pytest.mark.parametrize("encoding", [STREAM, JSON_ITEMS])
@on_loop
async def test_a_run_is_answered_delivered_and_acknowledged_message_by_message(
    encoding: Encoding,
) -> None:
    rig = RunRig()
    alice = rig.endpoint("alice", encoding)
    worker = await rig.consumer(encoding=encoding)
    alice.say(*(put(n, 10 + n) for n in range(5)))
    rig.held = True
    assert await rig.heard(alice) == []
    rig.held = False
    replies = await rig.heard(alice)
    assert [(op.id, op.ok) for op in replies] == [(10 + n, True) for n in range(5)]
    got = worker.heard()
    assert payloads(got) == [0, 1, 2, 3, 4]
    assert [op.message for op in got] == [op.message for op in replies]
    worker.say(*(Ack(id=20 + n, message=op.message) for n, op in enumerate(got)))
    assert [(op.id, op.ok) for op in await rig.heard(worker)] == [(20 + n, True) for n in range(5)]
    assert rig.taken == [5, 5]
    assert (await rig.figures(alice))["depth"] == 0


@on_loop
async def test_a_run_counts_as_so_many_messages() -> None:
    recorder = CountingRecorder()
    rig = RunRig()
    rig.hub.recorder = recorder
    alice = rig.endpoint("alice")
    alice.say(*(put(n) for n in range(4)))
    await rig.tick()
    assert recorder.sends == 4


@on_loop
async def test_what_is_not_plain_keeps_its_place_among_the_others() -> None:
    rig = RunRig()
    alice, worker = rig.endpoint("alice"), await rig.consumer()
    alice.say(
        put(0, 1),
        put(1, 2, key="k", tags=["red"], headers={"a": "b"}),
        put(2, 3, num=7),
        put(3, 4, type=0),
        put(4, 5),
        put(5, 6, delay_ms=60_000),
        put(6, 7),
    )
    replies = await rig.heard(alice)
    assert [(op.id, op.ok, op.num) for op in replies] == [
        (n, True, 7 if n == 3 else None) for n in range(1, 8)
    ]
    got = worker.heard()
    assert payloads(got) == [0, 1, 2, 3, 4, 6]
    assert (got[1].key, got[1].tags, got[1].headers) == ("k", ["red"], {"a": "b"})
    assert max(rig.taken) > 1


@on_loop
async def test_of_a_run_that_has_no_room_comes_what_has() -> None:
    rig = RunRig(depth_max=3)
    alice = rig.endpoint("alice")
    alice.say(*(put(n, n + 1) for n in range(5)))
    replies = await rig.heard(alice)
    assert sorted((op.id, op.error) for op in replies) == [
        (1, None),
        (2, None),
        (3, None),
        (4, "overload"),
        (5, "overload"),
    ]
    assert (await rig.figures(alice))["depth"] == 3


@on_loop
async def test_a_run_whose_commit_fails_is_refused_message_by_message() -> None:
    recorder = CountingRecorder()
    rig = RunRig()
    rig.hub.recorder = recorder
    alice = rig.endpoint("alice")
    await rig.tick()
    rig.held = True
    alice.say(put(0, 1), put(1), put(2, 2))
    await rig.tick()
    rig.storage.fail(Overload("the disk failed", outcome_unknown=True))
    replies = await rig.heard(alice)
    assert [(op.id, op.error, op.outcome) for op in replies] == [
        (1, "overload", "unknown"),
        (2, "overload", "unknown"),
    ]
    assert recorder.refusals["overload"] == 3


@on_loop
async def test_a_retry_within_a_run_or_behind_one_is_stored_once() -> None:  # Q5
    rig = RunRig()
    alice, worker = rig.endpoint("alice"), await rig.consumer()
    first = [put(n, n, producer="p", seq=n) for n in (1, 2, 2, 3)]
    alice.say(*first, put(9, 9, producer="q", seq=1))
    replies = await rig.heard(alice)
    assert [op.ok for op in replies] == [True] * 5
    ids = {op.id: op.message for op in replies}
    assert payloads(worker.heard()) == [1, 2, 3, 9]
    alice.say(*(put(n, n, producer="p", seq=n) for n in (3, 4, 5)))
    again = {op.id: op.message for op in await rig.heard(alice)}
    assert again[3] == ids[3]
    assert payloads(worker.heard()) == [4, 5]


@on_loop
async def test_a_wrong_op_within_a_run_is_refused_alone() -> None:
    rig = RunRig()
    alice, worker = rig.endpoint("alice"), await rig.consumer()
    alice.say(
        put(0, 1),
        Send(id=2, to=JOBS),
        put(2, 3, key=""),
        put(3, 4, producer="p"),
        put(4, 5),
    )
    replies = {op.id: op for op in await rig.heard(alice)}
    assert [replies[n].ok for n in range(1, 6)] == [True, False, False, False, True]
    assert "key" in replies[3].reason
    assert "producer" in replies[4].reason
    got = worker.heard()
    assert payloads(got) == [0, 4]
    worker.say(
        Ack(id=6, message=got[0].message),
        Ack(id=7, message=got[0].message),
        Ack(id=8, message="no number"),
        Ack(id=9, message=got[1].message),
    )
    answers = {op.id: op.ok for op in await rig.heard(worker)}
    assert answers == {6: True, 7: False, 8: False, 9: True}


@on_loop
async def test_a_run_needs_the_right_to_send() -> None:
    rig = RunRig(authenticator=Narrow())
    nobody = rig.endpoint("subscribe")
    nobody.say(put(0, 1), put(1, 2))
    assert [op.error for op in await rig.heard(nobody)] == ["forbidden", "forbidden"]


@on_loop
async def test_who_may_send_only_so_fast_sends_one_by_one() -> None:
    rig = RunRig()
    alice = rig.endpoint("alice")
    limited = Rig(options=HubOptions(rate=Rate(messages_per_s=2)))
    alice.session.allowances = limited.endpoint("alice").session.allowances
    assert alice.session.allowances is not None
    alice.say(*(put(n, n) for n in range(1, 5)))
    replies = {op.id: op.error for op in await rig.heard(alice)}
    assert replies == {1: None, 2: None, 3: "overload", 4: "overload"}


@on_loop
async def test_keys_hold_back_each_other_in_a_run_too() -> None:  # Q4
    rig = RunRig()
    alice, worker = rig.endpoint("alice"), await rig.consumer()
    alice.say(*(put(n, n, key="k" if n % 2 else None) for n in range(6)))
    await rig.tick()
    got = worker.heard()
    assert payloads(got) == [0, 1, 2, 4]
    worker.say(*(Ack(message=op.message) for op in got))
    await rig.tick()
    (third,) = worker.heard()
    assert payload_of(third) == 3
    worker.say(Ack(message=third.message))
    await rig.tick()
    assert payloads(worker.heard()) == [5]


@on_loop
async def test_of_messages_lent_together_each_is_handed_back_by_itself() -> None:
    rig = RunRig(ack_timeout_s=5, retry_s=0)
    alice, worker = rig.endpoint("alice"), await rig.consumer(credit=3)
    alice.say(*(put(n, n) for n in range(3)))
    await rig.tick()
    got = worker.heard()
    worker.say(Ack(message=got[0].message), Nack(message=got[1].message))
    await rig.tick()
    (again,) = worker.heard()
    assert (payload_of(again), again.attempt) == (1, 2)
    rig.timer.move_to(5.5)
    await rig.tick()
    # Both, as neither was acknowledged in its time.
    assert {(payload_of(op), op.attempt) for op in worker.heard()} == {(2, 2), (1, 3)}


@on_loop
async def test_a_run_is_handed_out_as_the_outbox_has_room() -> None:
    rig = RunRig(retry_s=0)
    alice, worker = rig.endpoint("alice"), await rig.consumer()
    rig.hub.pause(worker.session)
    alice.say(*(put("x" * 400_000, n) for n in range(8)))
    await rig.tick()
    lent = [message for session, message in rig.queues._loans.lent if session is worker.session]
    assert 0 < len(lent) < 8
    rig.hub.resume(worker.session)
    await rig.tick()
    assert len(worker.heard()) == len(lent)


@on_loop
async def test_lanes_share_a_run_and_no_consumer_gets_more_than_its_credit() -> None:
    rig = RunRig(lanes=3)
    alice, worker = rig.endpoint("alice"), await rig.consumer(credit=4)
    alice.say(*(put(n, n) for n in range(9)))
    await rig.tick()
    seen: list[Any] = []
    while got := worker.heard():
        assert len(got) <= 4
        seen += payloads(got)
        worker.say(*(Ack(message=op.message) for op in got))
        await rig.tick()
    assert sorted(seen) == list(range(9))


@on_loop
async def test_several_consumers_still_take_turns() -> None:
    rig = RunRig()
    alice, one = rig.endpoint("alice"), await rig.consumer(credit=50)
    other = rig.endpoint("other")
    other.say(Consume(to=JOBS, credit=50))
    await rig.tick()
    alice.say(*(put(n, n) for n in range(10)))
    await rig.tick()
    assert payloads(one.heard()) == [0, 2, 4, 6, 8]
    assert payloads(other.heard()) == [1, 3, 5, 7, 9]


@on_loop
async def test_other_ops_between_runs_are_carried_out_in_order() -> None:
    rig = RunRig()
    alice = rig.endpoint("alice")
    alice.say(put(0, 1), put(1, 2), Fetch(id=3, to=JOBS, n=1), put(2, 4), put(3, 5))
    replies = await rig.heard(alice)
    assert {op.id for op in replies if not hasattr(op, "from_")} == {1, 2, 3, 4, 5}
    assert rig.taken[0] == 2


@on_loop
async def test_a_session_that_has_not_said_hello_sends_no_run() -> None:
    rig = RunRig()
    stranger = rig.stranger()
    stranger.say(put(0, 1), put(1, 2))
    await rig.tick()
    assert rig.taken == []
    assert not any(getattr(op, "ok", False) for op in stranger.heard())


@on_loop
async def test_a_publish_is_no_part_of_a_run() -> None:
    rig = RunRig()
    alice = rig.endpoint("alice")
    alice.say(put(0, 1), Publish(id=2, to="topic:t"), put(1, 3))
    assert {op.id for op in await rig.heard(alice)} == {1, 2, 3}


@on_loop
async def test_a_message_that_is_too_large_is_refused_within_a_run() -> None:
    rig = RunRig()
    alice = rig.endpoint("alice")
    alice.say(put(0, 1), put("x" * rig.hub.limits.message_bytes_max, 2), put(2, 3))
    replies = {op.id: op.ok for op in await rig.heard(alice)}
    assert replies == {1: True, 2: False, 3: True}


@on_loop
async def test_a_queue_that_names_its_consumers_names_them_in_runs_too() -> None:  # Q8
    rig = RunRig(consumers=["a"])
    alice = rig.endpoint("alice")
    alice.say(put(0, 1), put(1, 2))
    await rig.tick()
    assert {one.consumers and one.consumers[0] for one in rig.storage._stored(1, 1)} == {"a"}


@on_loop
async def test_the_next_of_a_key_waits_until_the_acknowledgement_is_durable() -> None:  # Q4
    rig = RunRig()
    alice, worker = rig.endpoint("alice"), await rig.consumer()
    alice.say(put(0, 1), put(1, 2, key="k"), put(2, 3, key="k"))
    await rig.tick()
    got = worker.heard()
    assert payloads(got) == [0, 1]
    rig.held = True
    worker.say(*(Ack(message=op.message) for op in got))
    await rig.tick()
    assert worker.heard() == []
    rig.held = False
    await rig.tick()
    assert payloads(worker.heard()) == [2]


@on_loop
async def test_a_full_storage_refuses_a_run_message_by_message() -> None:
    rig = RunRig()
    alice = rig.endpoint("alice")
    await rig.tick()
    rig.storage.short = True
    alice.say(put(0, 1), put(1, 2))
    assert [op.error for op in await rig.heard(alice)] == ["overload", "overload"]
    assert rig.queue.state.depth() == 0


@on_loop
async def test_a_run_is_handed_out_in_parts_of_bounded_size() -> None:
    rig = RunRig()
    alice, worker = rig.endpoint("alice"), await rig.consumer()
    alice.say(*(put("x" * 100_000, n) for n in range(1, 11)))
    await rig.tick()
    assert len(worker.heard()) == 10
    loans = {id(item.loan): len(item.loan.items) for item in rig.queues._loans.lent.values()}
    assert max(loans.values()) <= 3
