"""The same message sent again is stored once (Q5)."""

from __future__ import annotations

import pytest

from chappe.errors import BadRequest, Overload
from chappe.queues.options import QueueLimits
from tests.queues.rig import Bench, held_bench, people


def test_the_same_pair_gives_the_same_id_and_is_stored_once() -> None:
    bench = Bench()
    (a,) = people("a")
    bench.consume(a)
    for _ in range(3):
        bench.send(producer="p", producer_seq=1)
    bench.send(producer="p", producer_seq=2)
    bench.send(producer="q", producer_seq=1)
    assert bench.acks == [1, 1, 1, 4, 5]
    assert a.got == [1, 4, 5]


def test_a_repetition_is_answered_only_once_the_first_is_durable() -> None:
    bench, storage = held_bench()
    bench.send(producer="p", producer_seq=1, held=True)
    bench.loop.settle()
    bench.send(producer="p", producer_seq=1, held=True)
    bench.loop.settle()
    assert bench.acks == []
    storage.flush()
    assert bench.acks == [1, 1]


def test_a_repetition_of_what_failed_is_stored() -> None:
    bench, storage = held_bench()
    bench.send(producer="p", producer_seq=1, held=True)
    bench.send(producer="p", producer_seq=1, held=True)
    bench.loop.settle()
    storage.fail(Overload("the disk failed"))
    assert len(bench.refusals) == 2
    bench.later(1)
    bench.send(producer="p", producer_seq=1)
    assert bench.acks == [3]
    assert bench.queue.state.depth() == 1


def test_it_is_known_after_a_restart() -> None:
    bench, _ = held_bench()
    bench.send(producer="p", producer_seq=1)
    bench.restart()
    bench.send(producer="p", producer_seq=1)
    assert bench.acks == [1, 1]
    assert bench.queue.state.depth() == 1


def test_it_is_known_also_when_it_was_delivered_or_delayed() -> None:
    bench = Bench()
    (a,) = people("a")
    bench.consume(a)
    bench.send(producer="p", producer_seq=1)
    bench.ack(a, 1)
    due_ms = bench.clock.wall_ms() + 1_000
    bench.send(producer="p", producer_seq=2, due_ms=due_ms)
    for seq in (1, 2):
        bench.send(producer="p", producer_seq=seq, due_ms=due_ms)
    bench.later(2)
    for seq in (1, 2):
        bench.send(producer="p", producer_seq=seq)
    assert bench.acks == [1, 2, 1, 2, 1, 2]
    assert a.got == [1, 2]


def test_a_full_queue_still_knows_what_it_has() -> None:
    bench = Bench(depth_max=1)
    bench.send(producer="p", producer_seq=1)
    with pytest.raises(Overload):
        bench.send(producer="p", producer_seq=2)
    bench.send(producer="p", producer_seq=1)
    assert bench.acks == [1, 1]


def test_a_number_older_than_the_window_is_refused_not_stored_again() -> None:
    bench = Bench(None, QueueLimits(producer_window=3))
    for seq in range(1, 6):
        bench.send(producer="p", producer_seq=seq)
    with pytest.raises(BadRequest, match=r"seq.*2"):
        bench.send(producer="p", producer_seq=2)
    bench.send(producer="p", producer_seq=3)
    assert bench.acks[-1] == 3


def test_numbers_that_come_late_are_taken_and_no_older_one_twice() -> None:
    bench = Bench(None, QueueLimits(producer_window=4))
    for seq in (1, 2, 4, 5, 3, 6, 7):
        bench.send(producer="p", producer_seq=seq)
    depth = bench.queue.state.depth()
    for seq in (1, 2, 3):
        with pytest.raises(BadRequest, match="seq"):
            bench.send(producer="p", producer_seq=seq)
    for seq in (4, 5, 6, 7):
        bench.send(producer="p", producer_seq=seq)
    assert bench.queue.state.depth() == depth


def test_how_many_producers_are_known_is_bounded() -> None:
    bench = Bench(None, QueueLimits(producers_max=2))
    for producer in ("a", "b", "a", "c"):
        bench.send(producer=producer, producer_seq=1)
    assert bench.acks == [1, 2, 1, 4]
    assert set(bench.queue.state.producers) == {"b", "c"}
