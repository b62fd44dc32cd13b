"""Corners of runs: lanes that give none, twins, what is in hand, what was open at a start."""

from __future__ import annotations

from itertools import pairwise
from zlib import crc32

import pytest

from chappe.errors import Overload
from chappe.hub.deadline import LAPSES_MAX
from chappe.queues.options import QueueLimits
from chappe.queues.record import Tried, extra_bytes
from tests.queues.rig import Bench, HeldStorage, people


def test_a_lane_whose_messages_have_keys_is_not_passed_over_for_runs_of_others() -> None:  # Q6
    bench = Bench(lanes=2)
    (a,) = people("a")
    keys = [key for key in map(str, range(100)) if crc32(key.encode()) % 2][:6]
    keyed = [bench.send(key=key) for key in keys]
    bench.send(10)
    bench.consume(a, 4)
    for _ in range(30):
        bench.send(4)  # to the other lane, which has the least to do
        bench.ack_all(a, [message for who, message in bench.loans.lent if who is a])
    # They came while others went on coming, in turn with those.
    assert max(a.got.index(message) for message in keyed) < 40


def test_two_of_one_id_in_a_run_are_lent_one_after_the_other() -> None:
    bench = Bench(attempts_max=1, ack_timeout_s=5)
    dying, worker = people("dw")
    bench.consume(dying, 1, group="g1")
    bench.queue.members.group("g2")
    bench.send()
    bench.nack(dying, 1)
    bench.queue.members.unregister("g1", "")
    bench.settle()
    replayed: list[int] = []
    bench.queue.letters.replay(None, replayed.append, bench.refusals.append)
    bench.settle()
    assert replayed == [1]
    bench.send(3)
    bench.consume(worker, 10, group="g2")
    assert worker.got.count(1) == 1
    bench.ack(worker, 1)
    bench.later(2)
    assert worker.got.count(1) == 2
    bench.later(60)
    assert bench.loans.lent == {}
    assert bench.group("g2").in_hand == 0


def test_what_is_acknowledged_together_is_in_hand_no_more() -> None:
    bench = Bench(limits=QueueLimits(open_max=10))
    (a,) = people("a")
    bench.consume(a, 8)
    for _ in range(10):
        bench.send(8)
        bench.ack_all(a, [message for _, message in bench.loans.lent])
        assert bench.group().in_hand == 0
    assert len(a.got) == 80


def test_what_was_open_at_a_start_is_not_handed_out_as_fresh() -> None:  # Q6
    bench = Bench(HeldStorage(QueueLimits()), retry_s=0.0)
    a, b = people("ab")
    bench.consume(a)
    bench.send(3)
    bench.restart()
    bench.consume(b)
    assert (b.got, b.attempts) == ([1, 2, 3], [2, 2, 2])
    bench.nack(b, 2)
    assert (b.got[3:], b.attempts[3:]) == ([2], [3])
    tried = [
        (one.seq, one.attempts)
        for one in bench.storage.records()
        if isinstance(one, Tried) and one.attempts
    ]
    assert (2, 3) in tried


def test_of_messages_lent_together_no_more_lapse_in_a_turn_than_may() -> None:
    count = LAPSES_MAX + 200
    limits = QueueLimits(unacked_max=2 * count, ahead_messages=2 * count)
    bench = Bench(None, limits, ack_timeout_s=5, retry_s=60.0, depth_max=10_000)
    (a,) = people("a")
    bench.consume(a, count)
    bench.send(count)
    assert len(bench.loans.lent) == count
    bench.loop.now += 6
    bench.loans.deadlines.lapse(bench.loop.now)
    assert len(bench.loans.lent) == 200
    bench.loans.deadlines.lapse(bench.loop.now)
    assert bench.loans.lent == {}


def test_headers_keys_and_tags_count_among_the_bytes() -> None:  # H17
    bench = Bench(bytes_max=10_000)
    (a,) = people("a")

    def send() -> None:
        message = bench.message(headers={"h": "x" * 900}, tags=["t"], key="k")
        message.extra = extra_bytes(message.key, message.headers, message.tags)
        bench.queue.send(message, bench.acks.append, bench.refusals.append)
        bench.settle()

    for _ in range(8):
        send()
    with pytest.raises(Overload, match="bytes already"):
        send()
    held = bench.loans.bytes_held
    assert 8_000 < held <= 10_000
    bench.settle()
    bench.consume(a, 100)
    while a.got and bench.loans.lent:
        bench.ack_all(a, [message for _, message in bench.loans.lent])
    assert bench.loans.bytes_held == 0
    assert bench.queue.state.waiting_bytes() == 0


def test_a_group_that_is_far_behind_is_given_up_a_slice_at_a_time() -> None:
    bench = Bench(limits=QueueLimits(bytes_max=1 << 30), depth_max=100_000)
    (a,) = people("a")
    bench.queue.members.group("idle")
    bench.consume(a, 1_000, group="busy")
    for _ in range(5):
        bench.send(1_000)
        bench.ack_all(a, [message for _, message in bench.loans.lent])
    assert bench.loans.bytes_held == 5_000
    bench.queue.members.unregister("idle", "")
    bench.broker.settle()
    held = [bench.loans.bytes_held]
    while bench.loop.soon:
        bench.loop.soon.popleft()()
        held.append(bench.loans.bytes_held)
    assert max(one - other for one, other in pairwise(held)) <= 1_000
    assert held[-1] == 0


def test_replayed_letters_need_room_like_all_others() -> None:  # Q9
    bench = Bench(attempts_max=1, depth_max=3)
    (a,) = people("a")
    bench.consume(a, 3)
    bench.send(3)
    for message in (1, 2, 3):
        bench.nack(a, message)
    bench.consume(a, 0)
    bench.send(2)
    counts: list[int] = []
    bench.queue.letters.replay(None, counts.append, bench.refusals.append)
    bench.settle()
    assert counts == []
    assert "holds 3 messages already" in bench.refusals[-1].reason
    assert bench.queue.state.depth() == 3
    assert bench.queue.letters.count == 2
