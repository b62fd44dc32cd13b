"""Lanes: the least loaded are given to a queue, and to a message (Q3, Q4)."""

from __future__ import annotations

import pytest

from chappe.errors import BadRequest
from chappe.queues.options import QueueLimits, QueueOptions
from tests.queues.rig import APP, Bench, held_bench, people


def lanes(bench: Bench, address: str) -> list[int]:
    return bench.broker.queues[APP, address].state.lanes


def test_a_queue_is_given_the_least_loaded_lanes() -> None:
    bench = Bench(None, QueueLimits(lanes=4))
    assert lanes(bench, "queue:jobs") == [1]
    bench.make("queue:b", lanes=2)
    assert lanes(bench, "queue:b") == [2, 3]
    bench.make("queue:c", lanes=2)
    assert lanes(bench, "queue:c")[0] == 4
    bench.send(3)  # in lane 1
    bench.make("queue:d", lanes=3)
    assert sorted(lanes(bench, "queue:d")) == [2, 3, 4]


def test_more_are_made_on_demand_and_all_are_distinct() -> None:
    bench = Bench(None, QueueLimits(lanes=3))
    bench.make("queue:wide", lanes=8)
    wide = lanes(bench, "queue:wide")
    assert sorted(wide) == list(range(1, 9))
    assert len(set(wide)) == 8


def test_a_queue_that_is_made_again_keeps_its_lanes_and_gets_more_but_never_fewer() -> None:
    bench = Bench(lanes=2)
    first = list(bench.queue.state.lanes)
    bench.make(lanes=4)
    assert bench.queue.state.lanes[:2] == first
    assert len(set(bench.queue.state.lanes)) == 4
    bench.make(lanes=1)
    assert len(bench.queue.state.lanes) == 4


def test_ten_exist_by_default() -> None:
    assert QueueLimits().lanes == 10
    bench = Bench(lanes=10)
    assert sorted(bench.queue.state.lanes) == list(range(1, 11))


def test_a_message_without_a_key_goes_to_the_lane_with_the_least_to_do() -> None:
    bench = Bench(lanes=3)
    bench.send(7)
    loads = [bench.queue.state.load(lane) for lane in bench.queue.state.lanes]
    assert sorted(loads) == [2, 2, 3]
    assert sum(loads) == 7


def test_a_key_stays_in_its_lane_also_when_lanes_are_added_while_messages_wait() -> None:
    bench = Bench(lanes=2)
    keys = [f"k{n}" for n in range(20)]
    (a,) = people("a")
    for key in keys:
        bench.send(key=key)
    bench.make(lanes=5)
    for key in keys:
        bench.send(key=key)
    bench.consume(a, 100)
    for message in range(1, 21):
        lane = bench.item(a, message).record.lane
        bench.ack(a, message)
        assert bench.item(a, message + 20).record.lane == lane


def test_keys_are_spread_over_all_lanes() -> None:
    bench = Bench(lanes=4)
    for n in range(200):
        bench.send(key=f"k{n}")
    assert all(bench.queue.state.load(lane) > 20 for lane in bench.queue.state.lanes)


def test_groups_read_lanes_that_are_added_later() -> None:
    bench, _ = held_bench()
    (a,) = people("a")
    bench.consume(a, 100)
    bench.make(lanes=3)
    bench.send(6)
    assert sorted(a.got) == [1, 2, 3, 4, 5, 6]
    bench.restart()
    assert len(bench.queue.state.lanes) == 3


def test_a_fetch_takes_from_the_lanes_in_turn() -> None:
    bench = Bench(lanes=2)
    (a,) = people("a")
    bench.send(6)
    bench.fetch(a, n=4)
    taken = [bench.item(a, message).record.lane for message in a.got]
    assert sorted(taken) == [1, 1, 2, 2]


@pytest.mark.parametrize("count", [0, -1, 1_025])
def test_how_many_lanes_a_queue_may_have_is_bounded(count: int) -> None:
    with pytest.raises(BadRequest, match="lanes"):
        QueueOptions(lanes=count)
