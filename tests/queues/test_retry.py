"""Another try: after a growing delay, at most so often, however it failed (Q6)."""

from __future__ import annotations

import pytest

from tests.queues.rig import Bench, people


def test_the_delay_doubles_up_to_the_most() -> None:
    bench = Bench(retry_s=1.0, retry_max_s=5.0, attempts_max=6, ack_timeout_s=1_000)
    (a,) = people("a")
    bench.consume(a)
    bench.send()
    for delay_s in (1, 2, 4, 5, 5):
        before = list(a.attempts)
        bench.nack(a, 1)
        bench.later(delay_s - 0.1)
        assert a.attempts == before
        bench.later(0.2)
        assert len(a.attempts) == len(before) + 1
    bench.nack(a, 1)
    assert bench.queue.letters.count == 1


def test_a_consumer_may_ask_for_a_longer_delay() -> None:
    bench = Bench(retry_s=1.0)
    (a,) = people("a")
    bench.consume(a)
    bench.send()
    bench.nack(a, 1, delay_s=30.0)
    bench.later(29)
    assert a.attempts == [1]
    bench.later(2)
    assert a.attempts == [1, 2]


def test_what_failed_holds_up_nothing_behind_it() -> None:
    bench = Bench(retry_s=10.0)
    (a,) = people("a")
    bench.consume(a, 1)
    bench.send(3)
    bench.nack(a, 1)
    bench.ack(a, 2)
    assert a.got == [1, 2, 3]


@pytest.mark.parametrize("how", ["nack", "time", "leave"])
def test_every_way_to_fail_counts_and_says_why(how: str) -> None:
    bench = Bench(attempts_max=2, ack_timeout_s=5.0)
    bench.send()
    for _ in range(2):
        (a,) = people("a")
        bench.consume(a, 1)
        assert a.got == [1]
        if how == "nack":
            bench.consume(a, 0)
            bench.nack(a, 1)
        elif how == "time":
            bench.consume(a, 0)
            bench.later(6)
        else:
            bench.leave(a)
    (letter,) = bench.outlet.letters
    assert letter.death is not None
    reasons = {
        "nack": "handed back",
        "time": "not acknowledged in time",
        "leave": "its consumer went away",
    }
    assert (letter.death.reason, letter.death.attempts) == (reasons[how], 2)


def test_a_volatile_queue_tries_again_at_once() -> None:  # H17
    bench = Bench()
    (a,) = people("a")
    bench.consume(a)
    bench.send()
    bench.nack(a, 1)
    assert a.attempts == [1, 2]


def test_one_message_per_lane_each_round() -> None:
    bench = Bench(push_interval_s=2.0, lanes=2)
    (a,) = people("a")
    bench.consume(a, 100)
    bench.send(6)
    assert len(a.got) == 2
    assert {bench.item(a, one).record.lane for one in a.got} == {1, 2}
    bench.later(1.9)
    assert len(a.got) == 2
    bench.later(0.2)
    assert len(a.got) == 4
    bench.later(2)
    assert sorted(a.got) == [1, 2, 3, 4, 5, 6]


def test_rounds_are_for_those_who_are_pushed_to_not_for_those_who_fetch() -> None:
    bench = Bench(push_interval_s=10.0)
    a, b = people("ab")
    bench.consume(a, 100)
    bench.send(5)
    assert a.got == [1]
    bench.fetch(b, n=2)
    assert (b.got, b.fetched) == ([2, 3], [(7, 2)])
    bench.later(10)
    assert a.got == [1, 4]


def test_rounds_go_on_after_a_pause() -> None:
    bench = Bench(push_interval_s=2.0, ack_timeout_s=1_000)
    (a,) = people("a")
    bench.consume(a, 100)
    bench.send()
    bench.later(60)
    bench.send(2)
    assert a.got == [1, 2]
    bench.later(2)
    assert a.got == [1, 2, 3]
