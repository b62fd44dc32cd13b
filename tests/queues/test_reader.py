"""Readers: what is read late, or not at all, holds up nobody and comes once."""

from __future__ import annotations

from chappe.errors import StorageError
from chappe.queues.options import QueueLimits
from tests.queues.rig import held_bench, people


def test_a_read_that_fails_is_tried_again_by_itself() -> None:
    bench, storage = held_bench()
    bench.send(3)
    storage.read_error = StorageError("segment 3: damaged")
    (a,) = people("a")
    bench.consume(a)
    assert a.got == []
    storage.read_error = None
    bench.later(5)
    assert a.got == [1, 2, 3]


def test_a_slow_read_holds_up_nobody_and_brings_each_message_once() -> None:
    bench, storage = held_bench(limits=QueueLimits(ahead_messages=2))
    storage.hold_reads = True
    (a,) = people("a")
    bench.send(4)
    bench.consume(a, 100)
    bench.send(3)
    assert a.got == []
    for _ in range(10):
        storage.finish_reads()
        bench.settle()
    assert a.got == [1, 2, 3, 4, 5, 6, 7]


def test_a_fetch_that_does_not_wait_still_gets_what_is_being_read() -> None:  # Q7
    bench, storage = held_bench()
    bench.send(2)
    storage.hold_reads = True
    (a,) = people("a")
    bench.fetch(a, n=5)
    assert a.fetched == []
    storage.finish_reads()
    bench.settle()
    assert (a.got, a.fetched) == ([1, 2], [(7, 2)])
    bench.fetch(a, n=5, request=8)
    assert a.fetched[-1] == (8, 0)


def test_a_read_of_a_group_that_was_given_up_meanwhile_changes_nothing() -> None:
    bench, storage = held_bench()
    bench.send(2)
    storage.hold_reads = True
    (a,) = people("a")
    bench.consume(a, group="g")
    bench.queue.members.unregister("g", "")
    storage.finish_reads()
    bench.settle()
    assert a.got == []
