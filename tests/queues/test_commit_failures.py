"""Commits that fail: they leave no trace, and the queue goes on with what is stored (Q5)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.errors import Overload
from chappe.queues.inspection import figures
from tests.queues.rig import JOBS, KEY, held_bench, people


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
