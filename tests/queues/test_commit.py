"""Commits: nothing is visible before it is durable (Q5)."""

from __future__ import annotations

from chappe.queues.record import Done, Registered, Stored, Tried
from tests.queues.rig import held_bench, people


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
