"""Queues made, looked into, and their dead letters dealt with (Q3, Q9)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from chappe.client import Letter
from chappe.client.letter import Death
from chappe.errors import BadRequest, Forbidden, RemoteProtocolError, StorageError
from chappe.wire.ops import PACKED, Create, Inspect, Letters, Promote, Reply

from .peer import Port
from .queues import QUEUE, asked, working


def show(port: Port, op: Any, data: Any) -> None:
    """Answer with data."""
    port.peer.say(PACKED[Reply](op.id, True, data=msgspec.json.encode(data)))


def letter(n: int, **fields: Any) -> dict[str, Any]:
    return {"message": str(n), "lane": 1, "seq": n, "ts": 3, "from": "user:b", "data": n, **fields}


async def looked(port: Port, letters: Any, *pages: Any) -> tuple[list[Any], list[Letter]]:
    """Browse, with a hub that shows these pages; what it was asked, and what was found."""

    async def look() -> list[Letter]:
        return [one async for one in letters]

    looking = asyncio.create_task(look())
    ops = []
    for page in pages:
        ops.append(await port.peer.next(Inspect))
        show(port, ops[-1], page)
    return ops, await looking


def test_a_queue_is_made_with_options_and_says_its_lanes(run):  # Q3
    async def test():
        async with working() as (port, client):
            making = client.create(QUEUE, lanes=2, retry_s=1, ordered=True, consumers=["a"])
            op, lanes = await asked(port, making, Create, lanes=[4, 9])
            assert (op.to, op.lanes, op.retry_s) == (QUEUE, 2, 1.0)
            assert (op.ordered, op.consumers, op.volatile) == (True, ["a"], None)
            assert lanes == (4, 9)
            for wrong in ({"lanes": "2"}, {"ordered": 1}, {"retry_s": "soon"}):
                with pytest.raises(BadRequest, match=next(iter(wrong))):
                    await client.create(QUEUE, **wrong)

    run(test())


def test_the_figures_of_a_queue(run):  # Q9
    async def test():
        async with working() as (port, client):
            asking = asyncio.create_task(client.inspect(QUEUE))
            op = await port.peer.next(Inspect)
            assert (op.to, op.n) == (QUEUE, 0)
            show(port, op, {"queue": QUEUE, "depth": 3})
            assert await asking == {"queue": QUEUE, "depth": 3}
            asking = asyncio.create_task(client.inspect(QUEUE))
            show(port, await port.peer.next(Inspect), [1])
            with pytest.raises(RemoteProtocolError):
                await asking
            with pytest.raises(Forbidden):
                await asked(port, client.inspect(QUEUE), Inspect, ok=False, error="forbidden")

    run(test())


def test_dead_letters_are_listed_page_by_page(run):  # Q9
    async def test():
        async with working() as (port, client):
            death = {"reason": "nacked", "group": "g", "attempts": 16, "at_ms": 9, "lane": 1}
            labels = {"key": "k", "headers": {"h": "v"}, "tags": ["t"], "num": 7, "type": 1}
            first = letter(1, death={**death, "seq": 4}, **labels)
            second = {**letter(2), "data64": "AP8="}
            asked_, found = await looked(
                port,
                client.dead_letters(QUEUE, page=1),
                {"messages": [first], "next": 1},
                {"messages": [], "next": 5},
                {"messages": [second], "next": None},
            )
            assert [(op.to, op.n, op.dead, op.after) for op in asked_] == [
                (QUEUE, 1, True, None),
                (QUEUE, 1, True, 1),
                (QUEUE, 1, True, 5),
            ]
            assert found[0] == Letter(
                message="1",
                lane=1,
                seq=1,
                ts_ms=3,
                sender="user:b",
                data=1,
                death=Death(reason="nacked", group="g", attempts=16, at_ms=9),
                **labels,
            )
            assert (found[1].data, found[1].death) == (b"\x00\xff", None)

    run(test())


def test_a_queue_is_browsed_lane_by_lane_and_both_ways(run):  # Q9
    async def test():
        async with working() as (port, client):
            asked_, found = await looked(
                port,
                client.browse(QUEUE, reverse=True),
                {"lanes": [{"lane": 3}, {"lane": 8}]},
                {"messages": [letter(5), letter(4)], "next": 4},
                {"messages": [letter(1)], "next": None},
                {"messages": [letter(9)], "next": None},
            )
            assert [(op.n, op.lane, op.after, op.reverse) for op in asked_[1:]] == [
                (100, 3, None, True),
                (100, 3, 4, True),
                (100, 8, None, True),
            ]
            assert [one.seq for one in found] == [5, 4, 1, 9]
            asked_, found = await looked(
                port,
                client.browse(QUEUE, lane=3, after=7),
                {"messages": [letter(8)], "next": None},
            )
            assert [(op.lane, op.after) for op in asked_] == [(3, 7)]
            asked_, found = await looked(
                port,
                client.browse(QUEUE, delayed=True),
                {"messages": [letter(8, due_ms=99)], "next": None},
            )
            assert (asked_[0].delayed, asked_[0].dead, found[0].due_ms) == (True, False, 99)

    run(test())


def test_a_hub_that_shows_the_same_page_for_ever_is_not_asked_for_ever(run):
    async def test():
        async with working() as (port, client):
            page = {"messages": [letter(1)], "next": 1}
            asked_, found = await looked(port, client.dead_letters(QUEUE), page, page)
            assert (len(asked_), len(found)) == (2, 2)

    run(test())


@pytest.mark.parametrize(
    ("page", "error"),
    [
        ([1], RemoteProtocolError),
        ({"messages": [{"message": "1"}]}, RemoteProtocolError),
        ({"messages": [{**letter(1), "data64": "?"}]}, RemoteProtocolError),
        ({"messages": [], "error": "segment 3 is damaged"}, StorageError),
    ],
)
def test_what_cannot_be_read_is_an_error(run, page, error):
    async def test():
        async with working() as (port, client):
            with pytest.raises(error):
                await looked(port, client.dead_letters(QUEUE), page)

    run(test())


def test_a_look_that_makes_no_sense_is_refused(run):
    async def test():
        async with working() as (_, client):
            with pytest.raises(BadRequest, match="page"):
                await anext(client.browse(QUEUE, page=0))
            with pytest.raises(BadRequest, match="after"):
                await anext(client.browse(QUEUE, after=3))

    run(test())


def test_dead_letters_are_replayed_and_purged(run):  # Q9
    async def test():
        async with working() as (port, client):
            op, count = await asked(port, client.replay(QUEUE, ["5", "6"]), Letters, n=2)
            assert (op.to, op.do, op.messages, count) == (QUEUE, "replay", [5, 6], 2)
            op, count = await asked(port, client.purge(QUEUE), Letters, n=9)
            assert (op.do, op.messages, count) == ("purge", None, 9)
            with pytest.raises(BadRequest, match="message"):
                await client.purge(QUEUE, ["five"])

    run(test())


def test_a_broker_is_promoted(run):  # Q10
    async def test():
        async with working() as (port, client):
            op, _ = await asked(port, client.promote("node-a"), Promote)
            assert (op.broker, op.force) == ("node-a", False)
            op, _ = await asked(port, client.promote("node-a", force=True), Promote)
            assert op.force

    run(test())
