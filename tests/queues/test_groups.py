"""Groups of one queue: each gets each message once, inside it they compete (Q8)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.errors import BadRequest, Overload
from chappe.queues.filter import describe, wants
from chappe.queues.options import QueueLimits
from chappe.queues.progress import GroupState
from chappe.queues.record import Stored
from tests.queues.rig import Bench, held_bench, people


def test_each_group_gets_each_message_once_and_inside_it_they_compete() -> None:
    bench = Bench()
    a, b, c, d = people("abcd")
    for who, group in ((a, "one"), (b, "one"), (c, "two"), (d, "")):
        bench.consume(who, group=group)
    bench.send(4)
    assert sorted(a.got + b.got) == [1, 2, 3, 4]
    assert (len(a.got), len(b.got)) == (2, 2)
    assert c.got == d.got == [1, 2, 3, 4]


def test_a_group_that_comes_later_gets_what_is_still_there() -> None:
    bench = Bench()
    a, b, c = people("abc")
    bench.send(3)
    bench.consume(a, 1, group="a")
    bench.ack(a, 1)
    bench.consume(b, group="b")
    bench.queue.members.register("c", "c", None, None, new=True)
    bench.consume(c, group="c")
    bench.send()
    assert b.got == [2, 3, 4]
    assert c.got == [4]


def test_a_message_stays_until_every_group_is_done_with_it() -> None:
    bench = Bench(depth_max=2)
    a, b = people("ab")
    bench.consume(a, group="a")
    bench.consume(b, group="b")
    bench.send(2)
    bench.ack(a, 1, 2)
    assert bench.loans.bytes_held == 2
    with pytest.raises(Overload):
        bench.send()
    bench.ack(b, 1)
    assert bench.loans.bytes_held == 1
    bench.send()
    bench.ack(b, 2)
    assert bench.loans.bytes_held == 1


def test_a_group_that_is_given_up_holds_nothing_back() -> None:
    bench = Bench(depth_max=2)
    a, b = people("ab")
    bench.consume(a, group="a")
    bench.consume(b, group="b")
    bench.fetch(b, wait_s=10, request=9, group="b")
    bench.send(2)
    bench.ack(a, 1, 2)
    assert bench.queue.members.unregister("b", "") == [b]
    bench.settle()
    assert bench.loans.bytes_held == bench.queue.state.depth() == 0
    assert list(bench.queue.groups) == ["a"]
    assert bench.loans.lent == {}
    bench.send()
    assert (a.got, b.got) == ([1, 2, 3], [1, 2])


def test_a_fetch_that_waits_in_a_group_that_is_given_up_is_refused() -> None:
    bench = Bench()
    (a,) = people("a")
    bench.fetch(a, wait_s=10, group="g")
    bench.queue.members.unregister("g", "")
    ((request, error),) = a.refused
    assert (request, "given up" in error.reason) == (7, True)
    assert len(bench.loans.deadlines) == 0


def test_a_consumer_leaves_its_group_and_the_group_stays() -> None:
    bench = Bench()
    queue = bench.queue
    queue.members.register("g", "a", None, None)
    queue.members.register("g", "b", None, None)
    assert list(queue.state.groups["g"].consumers) == ["a", "b"]
    queue.members.unregister("g", "a")
    assert list(queue.state.groups["g"].consumers) == ["b"]
    with pytest.raises(BadRequest, match="name"):
        queue.members.unregister("g", "a")
    with pytest.raises(BadRequest, match="group"):
        queue.members.unregister("other", "")
    with pytest.raises(BadRequest, match="group"):
        queue.members.unregister("!dead", "")


def test_a_group_of_one_goes_with_its_consumer() -> None:
    bench = Bench()
    bench.queue.members.register("a", "a", None, None)
    bench.queue.members.unregister("a", "a")
    assert "a" not in bench.queue.state.groups


def test_another_filter_than_the_groups_is_refused() -> None:
    bench = Bench()
    queue = bench.queue
    queue.members.register("g", "a", ["red"], {"h": "1"})
    for tags, headers in ((["blue"], None), (["red"], None), (None, {"h": "1"})):
        with pytest.raises(BadRequest, match=r"tags.*'g'.*red"):
            queue.members.register("g", "b", tags, headers)
    queue.members.register("g", "b", ["red"], {"h": "1"})
    queue.members.register("g", "c", None, None)
    assert list(queue.state.groups["g"].consumers) == ["a", "b", "c"]
    assert queue.state.groups["g"].tags == ["red"]


def test_a_group_passes_over_what_it_does_not_want_and_keeps_none_of_it() -> None:
    bench = Bench()
    (a,) = people("a")
    unwanted: list[tuple[object, ...]] = []
    bench.queue.recorder.unwanted = lambda *said: unwanted.append(said)  # type: ignore[method-assign]
    bench.queue.members.register("g", "a", ["red", "blue"], None)
    bench.consume(a, group="g")
    for tags in (["red"], ["green"], None, ["green", "blue"]):
        bench.send(tags=tags)
    assert a.got == [1, 4]
    bench.ack(a, 1, 4)
    assert bench.queue.state.depth() == bench.loans.bytes_held == 0
    assert bench.queue.state.waiting_bytes() == 0
    assert [said[-2:] for said in unwanted] == [("g", 2), ("g", 3)]


@pytest.mark.parametrize(
    ("group", "message", "expected"),
    [
        ({}, {}, True),
        ({"tags": ["a"]}, {}, False),
        ({"tags": ["a"]}, {"tags": []}, False),
        ({"tags": ["a", "b"]}, {"tags": ["b", "c"]}, True),
        ({"tags": []}, {"tags": ["a"]}, False),
        ({"headers": {"x": "1"}}, {}, False),
        ({"headers": {"x": "1"}}, {"headers": {"x": "1", "y": "2"}}, True),
        ({"headers": {"x": "1", "y": "3"}}, {"headers": {"x": "1", "y": "2"}}, False),
        ({"tags": ["a"], "headers": {"x": "1"}}, {"tags": ["a"]}, False),
        ({}, {"consumers": ["g"]}, True),
        ({}, {"consumers": ["other"]}, False),
        ({"consumers": {"me": None}}, {"consumers": ["other", "me"]}, True),
        ({"tags": ["a"]}, {"consumers": ["g"]}, False),
    ],
)
def test_a_group_wants_what_names_it_and_fits(
    group: dict[str, Any], message: dict[str, Any], expected: bool
) -> None:
    state = GroupState("g")
    for name, value in group.items():
        setattr(state, name, value)
    assert wants(state, Stored(1, 1, 1, 1, 1, "user:a", b"", **message)) is expected


def test_a_filter_is_told_in_words() -> None:
    assert describe(None, None) == "no filter"
    assert describe(["a", "b"], {"x": "1"}) == "tags a, b and headers x=1"


def test_groups_and_their_consumers_are_bounded() -> None:
    bench = Bench(None, QueueLimits(groups_max=2, consumers_max=2))
    queue = bench.queue
    queue.members.register("a", "1", None, None)
    queue.members.register("b", "", None, None)
    with pytest.raises(Overload, match="groups"):
        queue.members.register("c", "", None, None)
    queue.members.register("a", "2", None, None)
    queue.members.register("a", "2", None, None)
    with pytest.raises(Overload, match="consumers"):
        queue.members.register("a", "3", None, None)


def test_groups_come_back_as_they_were() -> None:  # Q11
    bench, _ = held_bench()
    a, b = people("ab")
    bench.queue.members.register("g", "a", ["red"], {"h": "1"})
    bench.queue.members.register("n", "", None, None, new=True)
    bench.consume(a, group="g")
    bench.send(3, tags=["red"], headers={"h": "1"})
    bench.ack(a, 1, 3)
    bench.restart()
    group = bench.queue.state.groups["g"]
    assert (group.tags, group.headers, list(group.consumers)) == (["red"], {"h": "1"}, ["a"])
    bench.consume(b, group="g")
    assert (b.got, b.attempts) == ([2], [2])


def test_progress_of_a_group_that_acknowledges_out_of_order_survives() -> None:  # Q11
    bench, _ = held_bench()
    (a,) = people("a")
    bench.consume(a, 20)
    bench.send(10)
    bench.ack(a, 2, 3, 7, 10)
    bench.restart()
    (b,) = people("b")
    bench.consume(b, 20)
    assert b.got == [1, 4, 5, 6, 8, 9]
    bench.ack(b, 1, 4, 5, 6, 8, 9)
    bench.restart()
    (c,) = people("c")
    bench.consume(c, 20)
    bench.send()
    assert (c.got, c.attempts) == ([11], [1])
