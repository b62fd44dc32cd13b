"""Messages for consumers that never came: they wait, blocking nobody, and die in time (Q6)."""

from __future__ import annotations

import pytest

from chappe.errors import Overload, StorageError
from chappe.queues.options import QueueLimits
from tests.queues.rig import Bench, held_bench, people

DAY_S = 86_400


def test_a_message_for_a_consumer_that_never_registers_waits_a_day_and_dies() -> None:
    bench = Bench()
    bench.send(num=42, consumers=["x"])
    bench.later(DAY_S - 1)
    assert bench.outlet.letters == []
    assert bench.queue.state.depth() == 1
    bench.later(2)
    (letter,) = bench.outlet.letters
    assert letter.death is not None
    assert (letter.id, letter.num, letter.death.group, letter.death.attempts) == (1, 42, "x", 0)
    assert "'x' never registered" in letter.death.reason
    assert bench.queue.letters.count == 1
    assert "x" not in bench.queue.state.groups
    assert bench.queue.state.depth() == 0


def test_the_queue_says_how_long_it_waits() -> None:
    bench = Bench(await_s=5.0)
    bench.send(consumers=["x"])
    bench.later(4.9)
    assert bench.outlet.letters == []
    bench.later(0.2)
    assert len(bench.outlet.letters) == 1


def test_one_that_registers_in_time_gets_it_and_what_follows() -> None:
    bench = Bench()
    (x,) = people("x")
    bench.send(2, consumers=["x"])
    bench.later(DAY_S / 2)
    bench.queue.members.register("x", "x", None, None)
    bench.consume(x, group="x")
    bench.send(consumers=["x"])
    assert (x.got, x.attempts) == ([1, 2, 3], [1, 1, 1])
    bench.ack(x, 1, 2, 3)
    bench.later(DAY_S)
    assert bench.outlet.letters == []
    assert bench.queue.letters.count == 0


def test_it_blocks_nobody() -> None:
    bench = Bench(ordered=True)
    (a,) = people("a")
    bench.consume(a)
    bench.send(consumers=["x"])
    bench.send(2)
    bench.ack(a, 2)
    assert a.got == [2, 3]


def test_each_of_several_is_waited_for_on_its_own() -> None:
    bench = Bench(await_s=10.0)
    (x,) = people("x")
    bench.send(consumers=["x", "y"])
    bench.queue.members.register("x", "x", None, None)
    bench.consume(x, group="x")
    assert x.got == [1]
    bench.later(11)
    (letter,) = bench.outlet.letters
    assert letter.death is not None
    assert letter.death.group == "y"


def test_a_queue_may_name_its_consumers_itself() -> None:  # Q8
    bench = Bench(consumers=["x"])
    a, x = people("ax")
    bench.consume(a)
    bench.send()
    bench.queue.members.register("x", "x", None, None)
    bench.consume(x, group="x")
    assert (a.got, x.got) == ([], [1])


def test_a_consumer_in_a_group_is_known_by_its_name() -> None:
    bench = Bench(await_s=10.0)
    (a,) = people("a")
    bench.queue.members.register("g", "x", None, None)
    bench.consume(a, group="g")
    bench.send(consumers=["x"])
    assert a.got == [1]
    bench.later(11)
    assert bench.outlet.letters == []


def test_one_that_comes_as_member_of_a_new_group_is_waited_for_no_longer() -> None:
    bench = Bench(await_s=10.0, ack_timeout_s=60)
    (a,) = people("a")
    bench.send(consumers=["x"])
    bench.queue.members.register("g", "x", None, None)
    bench.consume(a, group="g")
    assert a.got == [1]
    bench.ack(a, 1)
    bench.later(11)
    assert bench.outlet.letters == []
    assert bench.queue.state.depth() == bench.loans.bytes_held == 0


def test_what_died_leaves_nothing_in_memory_but_the_letter() -> None:
    bench = Bench(await_s=10.0)
    (a,) = people("a")
    bench.consume(a)
    bench.send(payload=b"12345", consumers=["x"])
    bench.later(11)
    assert bench.loans.bytes_held == 5
    bench.queue.letters.purge(None, lambda n: None, bench.refusals.append)
    bench.settle()
    assert bench.loans.bytes_held == 0
    assert bench.queue.state.depth() == 0


def test_how_many_may_wait_is_bounded_and_those_who_came_do_not_count() -> None:
    bench = Bench(None, QueueLimits(awaited_max=2))
    (x,) = people("x")
    bench.send(2, consumers=["x"])
    groups = set(bench.queue.state.groups)
    with pytest.raises(Overload, match="consumers"):
        bench.send(consumers=["y"])
    assert set(bench.queue.state.groups) == groups
    bench.queue.members.register("x", "x", None, None)
    bench.consume(x, group="x")
    bench.send(consumers=["x"])
    assert x.got == [1, 2, 4]
    bench.send(consumers=["y"])


def test_groups_that_are_waited_for_are_bounded_and_none_is_left_behind() -> None:
    bench = Bench(None, QueueLimits(groups_max=2))
    bench.send(consumers=["x"])
    with pytest.raises(Overload, match="groups"):
        bench.send(consumers=["y", "z"])
    assert [group.name for group in bench.queue.state.readers()] == ["x"]
    bench.send(consumers=["x", "y"])


def test_the_wall_clock_may_step_while_they_wait() -> None:
    bench = Bench(await_s=3_600.0)
    bench.send(consumers=["x"])
    bench.clock.stepped_ms = -3_600_000
    bench.later(3_700)
    assert bench.outlet.letters == []
    bench.clock.stepped_ms = 0
    bench.later(61)
    assert len(bench.outlet.letters) == 1


def test_they_wait_on_after_a_restart() -> None:
    bench, _ = held_bench(await_s=100.0)
    bench.send(consumers=["x"])
    bench.later(60)
    bench.restart()
    bench.later(39)
    assert bench.outlet.letters == []
    bench.later(2)
    assert len(bench.outlet.letters) == 1


def test_one_that_cannot_be_read_when_its_time_is_over_is_not_lost() -> None:
    bench, storage = held_bench(await_s=10.0)
    bench.send(consumers=["x"])
    storage.read_error = StorageError("segment 3: damaged")
    bench.later(11)
    assert bench.outlet.letters == []
    assert bench.queue.state.depth() == 1
    storage.read_error = None
    bench.later(61)
    assert len(bench.outlet.letters) == 1


def test_one_whose_time_is_over_before_it_is_durable_is_not_lost() -> None:
    bench, storage = held_bench(await_s=0.001)
    bench.send(consumers=["x"], held=True)
    bench.loop.turn()
    bench.loop.move_to(1.0)
    bench.loop.settle()
    assert bench.acks == []
    bench.settle()
    bench.later(2)
    assert len(bench.outlet.letters) == 1
    assert storage.pending == []
