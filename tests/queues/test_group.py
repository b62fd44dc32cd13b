"""A group by itself: who gets what, in which order, and how much is kept (H17)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.errors import BadRequest, Overload, Unreachable
from chappe.queues.options import QueueLimits
from tests.queues.rig import KEY, Bench, Someone, people


def test_each_message_goes_to_the_next_who_waits() -> None:
    bench = Bench()
    a, b, c = people("abc")
    for who in (a, b, c):
        bench.fetch(who, wait_s=10)
    assert a.fetched == []
    bench.send(4)
    assert (a.got, b.got, c.got) == ([1], [2], [3])
    assert a.fetched == b.fetched == c.fetched == [(7, 1)]
    bench.fetch(a)
    assert a.got == [1, 4]


def test_with_nobody_waiting_messages_are_kept_in_order() -> None:
    bench = Bench()
    (a,) = people("a")
    bench.send(5)
    bench.fetch(a, n=3)
    bench.fetch(a, n=3, request=8)
    assert a.got == [1, 2, 3, 4, 5]
    assert a.fetched == [(7, 3), (8, 2)]


def test_a_fetch_that_does_not_wait_is_answered_at_once() -> None:
    bench = Bench()
    (a,) = people("a")
    bench.fetch(a)
    assert a.fetched == [(7, 0)]
    bench.send()
    assert a.got == []
    assert len(bench.loans.deadlines) == 0


def test_a_wait_ends_with_nothing_when_its_time_is_over() -> None:  # Q7
    bench = Bench()
    (a,) = people("a")
    bench.fetch(a, wait_s=5)
    bench.later(4.9)
    assert a.fetched == []
    bench.later(0.2)
    assert a.fetched == [(7, 0)]
    bench.send()
    assert a.got == []


def test_what_is_acknowledged_is_gone_and_its_room_free() -> None:
    bench = Bench(depth_max=1)
    (a,) = people("a")
    bench.send()
    bench.fetch(a)
    with pytest.raises(Overload):
        bench.send()
    bench.ack(a, 1)
    assert (bench.queue.state.depth(), bench.queue.state.waiting_bytes()) == (0, 0)
    assert len(bench.loans.deadlines) == bench.loans.bytes_held == 0
    bench.send()


@pytest.mark.parametrize(
    ("options", "limits", "payload", "fit"),
    [
        ({"depth_max": 3}, QueueLimits(), b"12", 3),
        ({"bytes_max": 10}, QueueLimits(), b"123", 3),
        ({}, QueueLimits(bytes_max=10), b"1234", 2),
    ],
)
def test_past_the_bound_a_message_is_refused_and_the_kept_ones_stay(
    options: dict[str, Any], limits: QueueLimits, payload: bytes, fit: int
) -> None:
    bench = Bench(None, limits, **options)
    (a,) = people("a")
    bench.send(fit, payload)
    with pytest.raises(Overload):
        bench.send(1, payload)
    bench.fetch(a, n=10)
    assert a.got == list(range(1, fit + 1))


def test_a_message_larger_than_the_queue_is_wrong_not_early() -> None:
    with pytest.raises(BadRequest, match="data"):
        Bench(bytes_max=2).send(1, b"123")


def test_who_dies_hands_on_what_it_had_in_order_and_at_the_front() -> None:
    bench = Bench()
    a, b, c = people("abc")
    bench.send(6)
    bench.fetch(a, n=2)
    bench.fetch(b, n=1)
    bench.fetch(a, n=1)
    bench.nack(b, 3)  # younger than two of a's
    bench.leave(a)
    bench.fetch(c, n=10)
    assert c.got == [1, 2, 3, 4, 5, 6]


def test_what_is_handed_back_goes_to_those_who_wait_one_each() -> None:
    bench = Bench()
    a, b, c = people("abc")
    bench.send(5)
    bench.fetch(a, n=5)
    bench.fetch(b, n=5, wait_s=10)
    bench.fetch(c, n=5, wait_s=10)
    bench.leave(a)
    assert (b.got, c.got) == ([1, 3, 5], [2, 4])
    assert (b.fetched, c.fetched) == ([(7, 3)], [(7, 2)])


def test_those_who_leave_together_use_up_no_attempts_of_each_others_messages() -> None:
    bench = Bench(attempts_max=2)
    crowd, last = people("abcdef"), Someone("z")
    bench.send()
    for who in crowd:
        bench.consume(who, 1)
    bench.consume(last, 1)
    bench.leave(*crowd)
    assert last.got == [1]
    assert [who.got for who in crowd[1:]] == [[]] * 5


def test_who_dies_waits_no_longer() -> None:
    bench = Bench()
    a, b = people("ab")
    bench.fetch(a, wait_s=10)
    bench.consume(a, 5)
    bench.fetch(b, wait_s=10)
    bench.leave(a)
    bench.leave(a)
    bench.send()
    assert (a.got, b.got) == ([], [1])
    bench.later(20)
    assert a.fetched == []


def test_a_message_not_acknowledged_in_time_goes_to_the_next() -> None:
    bench = Bench(ack_timeout_s=60)
    a, b = people("ab")
    bench.send()
    bench.fetch(a)
    bench.fetch(b, wait_s=200)
    bench.later(59)
    assert b.got == []
    bench.later(2)
    assert b.got == [1]
    assert list(bench.loans.lent) == [(b, 1)]


def test_a_consumer_without_room_uses_up_no_attempt() -> None:
    bench = Bench(attempts_max=1)
    a, b = people("ab")
    a.room = False
    bench.consume(a, 1)
    bench.send()
    bench.fetch(b)
    assert b.got == [1]
    assert b.attempts == [1]


def test_credit_is_how_many_are_unacknowledged_and_each_ack_brings_one() -> None:
    bench = Bench()
    (a,) = people("a")
    bench.consume(a, 2)
    bench.send(5)
    assert a.got == [1, 2]
    bench.ack(a, 2)
    assert a.got == [1, 2, 3]
    bench.consume(a, 0)
    bench.ack(a, 1, 3)
    assert a.got == [1, 2, 3]
    bench.consume(a, 1)
    assert a.got == [1, 2, 3, 4]


def test_those_who_consume_take_turns() -> None:
    bench = Bench()
    a, b = people("ab")
    bench.consume(a, 10)
    bench.consume(b, 10)
    bench.send(6)
    assert (a.got, b.got) == ([1, 3, 5], [2, 4, 6])


def test_what_one_consumer_has_is_bounded() -> None:
    bench = Bench(None, QueueLimits(unacked_max=3))
    (a,) = people("a")
    bench.send(9)
    bench.fetch(a, n=2)
    bench.fetch(a, n=3, request=8)
    assert a.fetched == [(7, 2), (8, 1)]
    with pytest.raises(Overload, match="acknowledge"):
        bench.fetch(a)
    bench.consume(a, 3)
    assert a.got == [1, 2, 3]
    bench.ack(a, 1)
    assert a.got == [1, 2, 3, 4]


def test_waiting_fetches_count_for_the_consumer_and_for_the_queue() -> None:
    bench = Bench(None, QueueLimits(unacked_max=4, waiting_max=3))
    a, b = people("ab")
    bench.fetch(a, n=3, wait_s=10)
    bench.fetch(a, n=3, wait_s=10)
    with pytest.raises(Overload, match="acknowledge"):
        bench.fetch(a, wait_s=10)
    bench.fetch(b, wait_s=10)
    with pytest.raises(Overload, match="wait"):
        bench.fetch(b, wait_s=10)
    bench.later(10)
    bench.fetch(b, wait_s=10)


def test_a_consumer_without_room_is_passed_over_and_tried_again() -> None:
    bench = Bench(None, QueueLimits(stall_s=1.0))
    a, b = people("ab")
    a.room = False
    bench.consume(a, 5)
    bench.consume(b, 1)
    bench.send(2)
    assert (a.got, b.got) == ([], [1])
    a.room = True
    bench.send()
    assert a.got == []  # nobody asks it for a second
    bench.later(1.0)
    assert a.got == [2, 3]


def test_a_fetch_without_room_is_told_so_and_the_message_goes_on() -> None:
    bench = Bench()
    a, b = people("ab")
    a.room = False
    bench.fetch(a, wait_s=10)
    bench.fetch(b, wait_s=10)
    bench.send()
    ((request, error),) = a.refused
    assert (request, error.code) == (7, "overload")
    assert b.got == [1]


def test_to_remove_a_queue_answers_who_waits_and_counts_what_is_lost() -> None:
    bench = Bench()
    a, b = people("ab")
    bench.send(3)
    bench.fetch(a, n=1)
    bench.fetch(b, n=2)
    bench.fetch(b, wait_s=10, request=8)
    bench.consume(a, 5)
    gone: list[Any] = []
    bench.broker.on_gone = lambda queue, sessions: gone.extend(sessions)
    bench.broker.remove(KEY, Unreachable("removed"))
    assert gone == [a, b]
    ((request, error),) = b.refused
    assert (request, error.code) == (8, "unreachable")
    assert bench.outlet.drops == [("queue_removed", 3)]
    assert bench.loans.lent == {}
    assert len(bench.loans.deadlines) == bench.loans.bytes_held == 0


def test_what_a_group_has_in_hand_of_a_lane_is_bounded() -> None:
    bench = Bench(None, QueueLimits(open_max=3))
    a, b = people("ab")
    bench.send(5)
    bench.consume(a, 3)
    bench.consume(b, 3)
    assert sorted(a.got + b.got) == [1, 2, 3]
    bench.ack(a, 1)
    assert sorted(a.got + b.got) == [1, 2, 3, 4]


def test_a_reader_that_fell_behind_reads_a_few_at_a_time() -> None:
    bench = Bench(None, QueueLimits(ahead_messages=3, ahead_bytes=4))
    (a,) = people("a")
    bench.send(20)
    for _ in range(4):
        bench.fetch(a, n=5)
    assert a.got == list(range(1, 21))


def test_groups_that_are_given_up_keep_no_deadline() -> None:
    bench = Bench(retry_s=3_600.0, retry_max_s=3_600.0)
    (a,) = people("a")
    bench.send(2)
    bench.consume(a, 1)
    bench.nack(a, 1)
    assert len(bench.loans.deadlines) == 2
    bench.broker.remove(KEY, Unreachable("removed"))
    assert len(bench.loans.deadlines) == 0
