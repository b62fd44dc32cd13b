"""Delayed messages: held until due, taken back until then, whatever the clock does (Q2)."""

from __future__ import annotations

import pytest

from chappe.errors import Overload, StorageError, Unreachable
from chappe.queues.options import QueueLimits
from tests.queues.rig import KEY, Bench, held_bench, people


def delayed(bench: Bench, delay_s: float, **fields: object) -> int:
    return bench.send(due_ms=bench.clock.wall_ms() + round(delay_s * 1000), **fields)


def cancel(bench: Bench, message: int) -> list[str]:
    told: list[str] = []
    bench.queue.delays.cancel(message, lambda: told.append("ok"), bench.refusals.append)
    bench.settle()
    return told


def test_a_delayed_message_comes_when_it_is_due_and_not_before() -> None:
    bench = Bench()
    (a,) = people("a")
    bench.consume(a)
    delayed(bench, 2.0)
    assert bench.acks == [1]
    bench.later(1.9)
    assert a.got == []
    bench.later(0.2)
    assert (a.got, a.attempts) == ([1], [1])
    assert bench.queue.state.delayed == {}


def test_they_come_in_the_order_of_their_times() -> None:
    bench = Bench()
    (a,) = people("a")
    bench.consume(a)
    for delay_s in (3.0, 1.0, 2.0, 1.0):
        delayed(bench, delay_s)
    bench.later(5)
    assert a.got == [2, 4, 3, 1]


def test_one_that_is_due_at_once_goes_at_once() -> None:
    bench = Bench()
    (a,) = people("a")
    bench.consume(a)
    delayed(bench, 0.0)
    bench.later(0)
    assert a.got == [1]


def test_it_can_be_taken_back_until_it_is_due_and_once_only() -> None:
    bench = Bench()
    (a,) = people("a")
    bench.consume(a)
    one, two = delayed(bench, 2.0), delayed(bench, 2.0)
    assert cancel(bench, one) == ["ok"]
    with pytest.raises(Unreachable, match="message"):
        cancel(bench, one)
    bench.later(3)
    assert a.got == [two]
    with pytest.raises(Unreachable, match="message"):
        cancel(bench, two)
    assert bench.loans.bytes_held == 1


def test_what_was_taken_back_stays_so_after_a_restart() -> None:
    bench, _ = held_bench()
    one, two = delayed(bench, 2.0), delayed(bench, 2.0)
    cancel(bench, one)
    bench.restart()
    (a,) = people("a")
    bench.consume(a)
    bench.later(3)
    assert a.got == [two]


def test_one_that_is_about_to_be_delivered_cannot_be_taken_back() -> None:
    bench, storage = held_bench()
    message = delayed(bench, 2.0)
    storage.hold_reads = True
    bench.later(3)
    with pytest.raises(Unreachable, match="message"):
        cancel(bench, message)
    storage.hold_reads = False
    storage.finish_reads()
    bench.settle()
    (a,) = people("a")
    bench.consume(a)
    assert a.got == [message]


@pytest.mark.parametrize("step_s", [3_600, -3_600])
def test_when_the_wall_clock_steps_they_follow_it_within_a_minute(step_s: int) -> None:
    bench = Bench(ack_timeout_s=86_400)
    (a,) = people("a")
    bench.consume(a)
    delayed(bench, 1_800)
    bench.clock.stepped_ms = step_s * 1000
    bench.later(61)
    assert a.got == ([1] if step_s > 0 else [])
    bench.later(1_800)
    assert a.got == ([1] if step_s > 0 else [])
    bench.later(3_600)
    assert a.got == [1]


def test_how_many_are_held_is_bounded() -> None:
    bench = Bench(None, QueueLimits(delayed_max=2))
    delayed(bench, 5)
    message = delayed(bench, 5)
    with pytest.raises(Overload, match="delayed"):
        delayed(bench, 5)
    cancel(bench, message)
    delayed(bench, 5)


def test_they_count_for_the_depth_of_the_queue() -> None:
    bench = Bench(depth_max=2)
    delayed(bench, 5)
    bench.send()
    with pytest.raises(Overload):
        bench.send()


def test_what_is_taken_back_leaves_nothing_behind() -> None:
    bench = Bench()
    for _ in range(500):
        cancel(bench, delayed(bench, 86_400))
    assert len(bench.queue.delays._heap) < 200
    assert len(bench.loans.deadlines) <= 1
    assert bench.loans.bytes_held == 0


def test_one_that_cannot_be_read_when_it_is_due_is_tried_again() -> None:
    bench, storage = held_bench()
    (a,) = people("a")
    bench.consume(a)
    delayed(bench, 1)
    storage.read_error = StorageError("segment 3: damaged")
    bench.later(2)
    assert bench.queue.state.delayed
    storage.read_error = None
    bench.later(3)
    assert a.got == [1]


def test_one_that_there_is_no_room_for_when_it_is_due_is_kept() -> None:
    bench = Bench(None, QueueLimits(awaited_max=1), await_s=100.0)
    delayed(bench, 5, consumers=["x"])
    bench.send(consumers=["y"])
    bench.later(6)
    assert bench.queue.state.delayed
    bench.queue.members.register("y", "y", None, None)
    (y, x) = people("yx")
    bench.consume(y, group="y")
    bench.later(5)
    bench.queue.members.register("x", "x", None, None)
    bench.consume(x, group="x")
    assert x.got == [1]


def test_one_that_was_delayed_for_longer_than_others_live_still_has_its_time() -> None:
    bench = Bench(expire_s=10.0)
    (a,) = people("a")
    bench.consume(a)
    delayed(bench, 60)
    bench.later(61)
    assert a.got == [1]


def test_the_consumers_of_a_delayed_message_are_waited_for_from_when_it_is_due() -> None:
    bench = Bench(await_s=10.0)
    delayed(bench, 60, consumers=["x"])
    bench.later(69)
    assert bench.outlet.letters == []
    bench.later(2)
    assert len(bench.outlet.letters) == 1


def test_a_volatile_queue_that_moves_takes_what_is_delayed_along() -> None:
    bench = Bench()
    bench.send()
    delayed(bench, 60)
    held = bench.broker.give_up(KEY, Unreachable("it lives elsewhere"))
    assert [(one.id, one.due_ms is not None) for one in held] == [(1, False), (2, True)]
