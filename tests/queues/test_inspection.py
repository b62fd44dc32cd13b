"""Looking into a queue without taking anything (Q9)."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from chappe.errors import BadRequest, Overload, RequestError, StorageError
from chappe.queues.inspection import browse, figures
from chappe.wire.ops import Inspect
from tests.queues.rig import JOBS, Bench, held_bench, people


def _raise(error: RequestError) -> None:
    raise error


def look(bench: Bench, n: int = 100, **fields: Any) -> Any:
    pages: list[Any] = []
    browse(bench.queue, Inspect(to=JOBS, n=n, **fields), pages.append, _raise)
    (page,) = pages
    return page


def pages(bench: Bench, n: int, **fields: Any) -> list[list[int]]:
    """All pages there are, by the places they tell."""
    found: list[list[int]] = []
    after: int | None = None
    for _ in range(100):
        page = look(bench, n, after=after, **fields)
        found.append([int(one["message"]) for one in page["messages"]])
        after = page["next"]
        if after is None:
            return found
    raise AssertionError("pages without end")


def test_figures_say_all_there_is_to_know_in_numbers() -> None:
    bench = Bench(lanes=2, attempts_max=1)
    a, b = people("ab")
    bench.queue.members.register("g", "a", ["red"], {"h": "1"})
    bench.consume(a, 1, group="g")
    bench.fetch(b, wait_s=60, group="g")
    bench.queue.members.register("n", "b", None, None)
    bench.send(payload=b"123", tags=["red"], headers={"h": "1"})
    bench.send(due_ms=bench.clock.wall_ms() + 5_000)
    bench.send(consumers=["x"])
    shown = figures(bench.queue)
    assert (shown["queue"], shown["volatile"], shown["stored"]) == (JOBS, True, "memory")
    assert (shown["depth"], shown["bytes"], shown["dead"], shown["delayed"]) == (2, 4, 0, 1)
    assert [(lane["lane"], lane["head"], lane["depth"]) for lane in shown["lanes"]] == [
        (1, 1, 1),
        (2, 1, 1),
    ]
    assert shown["options"]["lanes"] == 2
    g, n, x = shown["groups"]
    assert (g["group"], g["lag"], g["in_hand"], g["waiting"]) == ("g", 1, 1, 1)
    assert (g["consumers"], g["tags"], g["headers"], g["expected"]) == (
        ["a"],
        ["red"],
        {"h": "1"},
        False,
    )
    assert (n["lag"], n["tags"], n["headers"]) == (2, None, None)
    assert (x["group"], x["lag"], x["expected"]) == ("x", 1, True)


def test_messages_are_shown_both_ways_a_page_at_a_time_and_none_is_taken() -> None:
    bench = Bench()
    bench.send(5)
    assert pages(bench, 2) == [[1, 2], [3, 4], [5]]
    assert pages(bench, 2, reverse=True) == [[5, 4], [3, 2], [1]]
    (a,) = people("a")
    bench.consume(a)
    assert a.got == [1, 2, 3, 4, 5]


def test_what_everybody_is_done_with_is_not_shown() -> None:
    bench = Bench()
    a, b = people("ab")
    bench.consume(a, group="a")
    bench.consume(b, group="b")
    bench.send(5)
    bench.ack(a, 1, 2, 3, 4, 5)
    bench.ack(b, 1, 3)
    assert list(chain(*pages(bench, 2))) == [2, 4, 5]
    assert list(chain(*pages(bench, 2, reverse=True))) == [5, 4, 2]


def test_only_what_is_durable_is_shown() -> None:
    bench, storage = held_bench()
    bench.send(2)
    bench.send(held=True)
    bench.loop.settle()
    assert pages(bench, 10) == [[1, 2]]
    storage.flush()
    assert pages(bench, 10) == [[1, 2, 3]]


def test_the_delayed_ones_are_shown_apart() -> None:
    bench = Bench()
    due_ms = bench.clock.wall_ms() + 5_000
    bench.send(due_ms=due_ms)
    bench.send()
    (shown,) = look(bench, delayed=True)["messages"]
    assert (shown["message"], shown["due_ms"]) == ("1", due_ms)
    assert pages(bench, 10) == [[2]]


def test_a_lane_is_shown_by_its_number_and_no_other_queues() -> None:
    bench = Bench(lanes=2)
    bench.send(4)
    one, two = bench.queue.state.lanes
    both = pages(bench, 10, lane=one)[0] + pages(bench, 10, lane=two)[0]
    assert sorted(both) == [1, 2, 3, 4]
    with pytest.raises(BadRequest, match="lane"):
        look(bench, lane=9)
    for n in (-1, 1_001):
        with pytest.raises(BadRequest, match="n:"):
            look(bench, n)


def test_a_message_is_shown_as_a_person_reads_it() -> None:
    bench = Bench()
    bench.send(payload=b'{"a":1}', num=5, key="k", producer="p", producer_seq=3, type=0)
    bench.send(payload=b"\x00\xff", binary=True)
    text, binary = look(bench)["messages"]
    assert bytes(text["data"]) == b'{"a":1}'
    assert (text["num"], text["key"], text["type"], text["seq"]) == (5, "k", 0, 1)
    assert (text["producer"], text["producer_seq"], text["from"]) == ("p", 3, "user:a")
    assert "data" not in binary
    assert binary["data64"] == "AP8="


def test_an_empty_queue_shows_nothing_and_one_that_cannot_be_read_says_so() -> None:
    bench, storage = held_bench()
    assert look(bench) == {"messages": [], "next": None}
    bench.send()
    storage.read_error = StorageError("segment 3: damaged")
    with pytest.raises(Overload, match="segment 3"):
        look(bench)
