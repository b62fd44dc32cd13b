"""Commits: nothing is visible before it is durable, and what failed to be leaves no trace (Q5)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.errors import Overload, StorageError
from chappe.queues.inspection import figures
from chappe.queues.options import QueueLimits
from chappe.queues.record import Done, Registered, Stored, Tried
from tests.queues.rig import JOBS, KEY, held_bench, people


def test_a_send_is_answered_only_once_it_is_durable() -> None:  # Q5
    bench, storage = held_bench()
    bench.send(3, held=True)
    bench.loop.settle()
    assert bench.acks == []
    assert len(storage.pending) == 1, "one commit for one turn"
    storage.flush()
    assert bench.acks == [1, 2, 3]


def test_a_message_is_delivered_only_once_it_and_its_mark_are_durable() -> None:  # Q6
    bench, storage = held_bench()
    (a,) = people("a")
    bench.consume(a)
    bench.send(held=True)
    bench.loop.settle()
    storage.flush()  # the message
    assert a.got == []
    bench.loop.settle()
    (records, _), *_ = storage.pending
    assert a.got == []
    assert records, "the mark"
    storage.flush()
    assert a.got == [1]
    assert any(isinstance(one, Tried) and one.attempts == 0 for one in storage.records())


def test_a_mark_reaches_ahead_so_that_most_deliveries_wait_for_one_commit_only() -> None:
    bench, storage = held_bench()
    (a,) = people("a")
    bench.consume(a, 100)
    bench.send()
    bench.send(20, held=True)
    bench.loop.settle()
    assert len(storage.pending) == 1
    storage.flush()
    assert a.got == list(range(1, 22))


def test_where_marks_cannot_reach_ahead_each_is_up_to_what_was_read() -> None:
    bench, storage = held_bench()
    storage.marks_ahead = False
    (a,) = people("a")
    bench.consume(a, 100)
    bench.send(3)
    bench.send(2)
    assert a.got == [1, 2, 3, 4, 5]
    marks = [one.seq for one in storage.records() if isinstance(one, Tried)]
    assert max(marks) == 5


def test_an_ack_is_told_once_it_is_durable_and_survives_a_restart() -> None:
    bench, storage = held_bench()
    a, b = people("ab")
    bench.consume(a)
    bench.send(2)
    told: list[str] = []
    bench.ack(a, 1, held=True)
    bench.queue.after(lambda: told.append("acked"))
    bench.loop.settle()
    assert told == []
    storage.flush()
    assert told == ["acked"]
    bench.restart()
    bench.consume(b)
    assert (b.got, b.attempts) == ([2], [2])


def test_an_ack_that_was_not_durable_when_the_process_ended_did_not_happen() -> None:
    bench, _ = held_bench()
    a, b = people("ab")
    bench.consume(a)
    bench.send(2)
    bench.ack(a, 1, held=True)
    bench.loop.settle()
    bench.restart()
    bench.consume(b)
    assert (b.got, b.attempts) == ([1, 2], [2, 2])


def test_another_attempt_is_written_down_before_it_is_made() -> None:  # Q6
    bench, storage = held_bench(retry_s=0.0)
    (a,) = people("a")
    bench.consume(a)
    bench.send()
    bench.nack(a, 1, held=True)
    bench.loop.settle()
    assert a.attempts == [1]
    storage.flush()
    bench.loop.settle()
    assert a.attempts == [1, 2]
    tried = [one.attempts for one in storage.records() if isinstance(one, Tried) and one.attempts]
    assert tried == [2]


def test_attempts_are_counted_across_restarts() -> None:  # Q6
    bench, _ = held_bench(attempts_max=4, retry_s=0.0)
    (a,) = people("a")
    bench.consume(a)
    bench.send()
    seen = list(a.attempts)
    for _ in range(10):
        bench.restart()
        (a,) = people("a")
        bench.consume(a)
        seen += a.attempts
    assert seen == [1, 2, 3, 4]
    assert bench.queue.letters.count == 1


def test_a_dead_letter_is_told_to_its_sender_only_once_it_is_durable() -> None:
    bench, storage = held_bench(attempts_max=1)
    (a,) = people("a")
    bench.consume(a)
    bench.send()
    bench.nack(a, 1, held=True)
    bench.loop.settle()
    assert bench.outlet.letters == []
    storage.flush()
    assert [letter.id for letter in bench.outlet.letters] == [1]


def test_a_dead_letter_and_the_end_of_its_message_are_one_commit() -> None:  # Q9
    bench, storage = held_bench(attempts_max=1)
    (a,) = people("a")
    bench.consume(a)
    bench.send()
    before = len(storage.journal)
    bench.nack(a, 1, held=True)
    bench.loop.settle()
    storage.flush(1)
    added = storage.records()[before:]
    assert [type(one) for one in added] == [Stored, Done]
    bench.restart()
    assert bench.queue.letters.count == 1
    (a,) = people("a")
    bench.consume(a)
    assert a.got == []


def test_a_delayed_message_moves_to_its_lane_in_one_commit() -> None:  # Q2
    bench, storage = held_bench()
    bench.send(due_ms=bench.clock.wall_ms() + 1_000)
    before = len(storage.journal)
    bench.loop.move_to(1.0)
    bench.loop.settle()
    assert storage.flush(1) == 1
    assert {type(one) for one in storage.records()[before:]} == {Stored, Done}
    bench.restart()
    (a,) = people("a")
    bench.consume(a)
    assert a.got == [1]
    assert bench.queue.state.delayed == {}


def test_a_delayed_message_survives_a_restart_and_comes_in_time() -> None:  # Q2
    bench, _ = held_bench()
    bench.send(due_ms=bench.clock.wall_ms() + 10_000)
    bench.restart()
    (a,) = people("a")
    bench.consume(a)
    bench.later(9.9)
    assert a.got == []
    bench.later(0.2)
    assert a.got == [1]


def test_what_a_commit_made_possible_has_a_deadline_that_rings() -> None:
    bench, _ = held_bench(ack_timeout_s=30, retry_s=0.0)
    (a,) = people("a")
    bench.consume(a)
    bench.send()
    assert a.attempts == [1]
    bench.later(31)
    assert a.attempts == [1, 2]


def test_a_failed_commit_refuses_who_waited_and_the_queue_goes_on_with_what_is_stored() -> None:
    bench, storage = held_bench()
    bench.send()
    bench.send(2, held=True)
    bench.loop.settle()
    bench.send(1, held=True)
    bench.loop.settle()
    before = bench.queue
    storage.fail(Overload("the disk failed"))
    assert [error.reason for error in bench.refusals] == ["the disk failed"] * 3
    assert bench.acks == [1]
    assert bench.broker.queues == {}
    assert "the disk failed" in (bench.broker.why_not(KEY) or "")
    bench.later(1)
    assert bench.queue is not before
    (a,) = people("a")
    bench.send()
    bench.consume(a)
    assert a.got == [1, 5]


def test_what_was_stored_although_its_commit_failed_is_delivered() -> None:
    bench, storage = held_bench()
    bench.send(held=True)
    bench.loop.settle()
    storage.fail(Overload("no answer in time", outcome_unknown=True), stored=True)
    (error,) = bench.refusals
    assert error.outcome_unknown
    bench.later(1)
    (a,) = people("a")
    bench.consume(a)
    assert a.got == [1]


def test_what_was_said_but_not_yet_committed_when_another_commit_failed_is_refused() -> None:
    bench, storage = held_bench()
    bench.send(held=True)
    bench.loop.settle()
    bench.send(held=True)  # its turn is not over
    storage.fail(Overload("the disk failed"))
    assert len(bench.refusals) == 2
    bench.settle()
    assert bench.acks == []


def test_consumers_of_a_queue_that_failed_are_named_so_that_they_can_go_on() -> None:
    bench, storage = held_bench()
    a, b = people("ab")
    bench.consume(a, 5)
    bench.consume(b, 6, group="g")
    back: list[Any] = []
    bench.broker.on_back = lambda queue, standing: back.append((queue, standing))
    bench.send(held=True)
    bench.loop.settle()
    storage.fail(Overload("the disk failed"))
    assert bench.loans.lent == {}
    assert back == []
    bench.later(1)
    assert back == [(bench.queue, [(a, "", 5), (b, "g", 6)])]


@pytest.mark.parametrize("way", ["asked for", "storage is back", "made again", "slowly"])
def test_consumers_go_on_whichever_way_a_queue_that_failed_is_opened_again(way: str) -> None:
    bench, storage = held_bench()
    (a,) = people("a")
    bench.consume(a, 5)
    back: list[Any] = []
    bench.broker.on_back = lambda queue, standing: back.append((queue, standing))
    bench.send(held=True)
    bench.loop.settle()
    storage.fail(Overload("the disk failed"))
    if way == "asked for":
        bench.loop.now += 1.5  # before the alarm could ring
        bench.broker.why_not(KEY)
    elif way == "storage is back":
        bench.broker.try_again()
    elif way == "made again":
        bench.make()
    else:
        storage.open_error = Overload("the disk is away")
        bench.later(5)
        storage.open_error = None
    bench.later(10)
    assert back == [(bench.queue, [(a, "", 5)])]


def test_a_queue_that_failed_is_not_opened_again_once_it_lives_elsewhere() -> None:
    bench, storage = held_bench()
    bench.send(held=True)
    bench.loop.settle()
    storage.fail(Overload("the disk failed"))
    bench.broker.close(Overload("another node is the master now"))
    bench.later(10)
    assert bench.broker.queues == {}
    assert bench.broker.why_not(KEY) is None


def test_a_fetch_that_waits_at_a_queue_that_fails_is_refused() -> None:
    bench, storage = held_bench()
    (a,) = people("a")
    bench.fetch(a, wait_s=10)
    bench.send(held=True)
    bench.loop.settle()
    storage.fail(Overload("the disk failed"))
    ((request, error),) = a.refused
    assert (request, error.reason) == (7, "the disk failed")
    assert len(bench.loans.deadlines) == 0


def test_a_queue_whose_making_failed_is_not_there() -> None:  # Q3
    bench, storage = held_bench()
    bench.made.clear()
    more = ("default", "queue:more")
    options = bench.queue.state.options
    bench.broker.make(more, options, bench.made.append)
    bench.loop.settle()
    storage.fail(Overload("the disk failed"))
    bench.later(5)
    assert [error and error.reason for error in bench.made] == ["the disk failed"]
    assert more not in bench.broker.queues
    bench.make("queue:more")
    assert bench.made[-1] is None
    assert bench.broker.queues[more].state.lanes


def test_a_queue_that_there_is_no_room_for_is_not_there() -> None:
    bench, storage = held_bench()
    bench.made.clear()
    storage.full = True
    bench.make("queue:more")
    assert [error and error.code for error in bench.made] == ["overload"]
    assert list(bench.broker.queues) == [KEY]


def test_when_nothing_can_be_stored_nothing_changes() -> None:
    bench, storage = held_bench()
    (a,) = people("a")
    bench.send(2)
    bench.send(due_ms=bench.clock.wall_ms() + 9_000)
    bench.consume(a, 1)
    storage.full = True
    before = figures(bench.queue)
    queue = bench.queue
    ignore: Any = lambda *told: None  # noqa: E731
    tries: list[Any] = [
        bench.send,
        lambda: bench.send(due_ms=bench.clock.wall_ms() + 5_000),
        lambda: bench.send(consumers=["x"]),
        lambda: queue.members.register("new", "n", None, None),
        lambda: queue.members.unregister("", ""),
        lambda: queue.delays.cancel(3, ignore, ignore),
        lambda: queue.letters.purge(None, ignore, ignore),
        lambda: queue.letters.replay(None, ignore, ignore),
    ]
    for one in tries:
        with pytest.raises(Overload, match="full"):
            one()
    assert bench.queue is queue
    assert figures(queue) == before


def test_a_turn_in_which_nothing_can_be_stored_any_more_refuses_who_waits() -> None:
    bench, storage = held_bench()
    bench.send(held=True)
    storage.full = True
    bench.loop.settle()
    assert [error.reason for error in bench.refusals] == ["the disk is full"]
    storage.full = False
    bench.later(1)
    bench.send()
    assert bench.acks == [2]


def test_a_queue_that_cannot_be_opened_is_tried_again_when_asked_for() -> None:
    bench, storage = held_bench()
    bench.send(held=True)
    bench.loop.settle()
    storage.open_error = Overload("the disk is away")
    storage.fail(Overload("the disk failed"))
    bench.later(1)
    assert bench.broker.queues == {}
    assert "the disk is away" in (bench.broker.why_not(KEY) or "")
    storage.open_error = None
    bench.later(5)
    bench.broker.why_not(KEY)
    assert bench.broker.why_not(KEY) is None
    assert bench.queue.address == JOBS


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


def test_a_group_begins_with_what_is_durable_not_with_what_is_about_to_be() -> None:
    bench, storage = held_bench()
    (a,) = people("a")
    bench.send(2)
    bench.send(2, held=True)
    bench.consume(a, held=True)
    bench.loop.settle()
    assert a.got == []
    bench.settle()
    assert a.got == [1, 2, 3, 4]
    assert all(not (isinstance(one, Done)) for one in storage.records())


def test_a_named_consumer_that_comes_in_the_same_turn_loses_nothing() -> None:  # Q6
    bench, storage = held_bench()
    (a,) = people("a")
    bench.send(consumers=["x"], held=True)
    bench.queue.members.register("x", "x", None, None)
    bench.consume(a, group="x", held=True)
    bench.loop.turn()
    assert a.got == []
    bench.settle()
    assert a.got == [1]
    assert [one.expected for one in storage.records() if isinstance(one, Registered)] == [
        True,
        False,
    ]


def test_attempts_of_what_waited_for_its_consumer_are_counted_across_restarts() -> None:  # Q6
    bench, _ = held_bench(attempts_max=3, retry_s=0.0)
    bench.send(consumers=["x"])
    seen: list[int] = []
    for _ in range(6):
        (a,) = people("a")
        bench.queue.members.register("x", "x", None, None)
        bench.consume(a, group="x")
        seen += a.attempts
        bench.restart()
    assert seen == [1, 2, 3]


def test_nothing_is_delivered_to_a_consumer_before_its_registration_is_durable() -> None:  # Q8
    bench, _ = held_bench()
    bench.send(consumers=["x"])
    (a,) = people("a")
    bench.queue.members.register("x", "x", None, None)
    bench.consume(a, group="x", held=True)
    bench.loop.settle()
    assert a.got == []
    bench.settle()
    assert a.got == [1]


def test_what_every_group_is_done_with_may_be_forgotten_and_nothing_else() -> None:
    bench, storage = held_bench()
    a, b = people("ab")
    bench.consume(a, group="a")
    bench.consume(b, group="b")
    bench.send(3)
    bench.ack(a, 1, 2, 3)
    assert storage.discarded == []
    bench.ack(b, 2)
    assert storage.discarded == [(1, 2)]
    bench.queue.members.unregister("b", "")
    bench.settle()
    assert sorted(storage.discarded) == [(1, 1), (1, 2), (1, 3)]
