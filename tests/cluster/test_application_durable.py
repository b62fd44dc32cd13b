"""Durable queues over links: what is asked on one node is done where the queue lives (Q2, Q8, Q9).

The queue lives on the first node, and nobody who asks is connected to that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chappe.client import Client, DeadLetter
from chappe.errors import BadRequest, Forbidden, Overload, Unreachable
from tests.cluster.town import APP, PATIENCE_S, Town, town, until
from tests.loop import on_loop

HOME, HERE, THERE = range(3)


@asynccontextmanager
async def made(folder: Path, **options: Any) -> AsyncIterator[tuple[Town, str, Client, Client]]:
    """A town with a queue that lives at HOME, and two users of it on the other nodes."""
    async with town(folder) as place:
        queue = place.placed("queue", HOME)
        here, there = await place.client(HERE, "here"), await place.client(THERE, "there")
        await here.create(queue, **options)
        await place.settle()
        yield place, queue, here, there


async def consumers(client: Client, queue: str) -> dict[str, list[str]]:
    """The groups of a queue, and who is registered in each."""
    figures = await client.inspect(queue)
    return {group["group"]: group["consumers"] for group in figures["groups"]}


async def kill(client: Client, queue: str) -> None:
    """Let the next message of a queue die, which may be tried once; wait until that is stored."""
    before = await messages(client, queue, dead=True)
    (item,) = await client.fetch(queue, wait_s=PATIENCE_S, group="g")
    assert await item.nack()

    async def died() -> bool:
        return await messages(client, queue, dead=True) == [*before, item.data]

    await until(died, "it did not die")


async def messages(client: Client, queue: str, **which: bool) -> list[Any]:
    return [letter.data async for letter in client.browse(queue, **which)]


@on_loop
async def test_a_queue_is_made_where_its_name_says_and_inspected_from_anywhere(tmp_path: Path):
    async with made(tmp_path, lanes=2) as (place, queue, here, there):
        for n in range(4):
            await here.send(queue, n)
        held = [node._application.queues.get(APP, queue) is not None for node in place.nodes]
        assert held == [True, False, False]
        figures = await there.inspect(queue)
        assert figures == await here.inspect(queue)
        assert (figures["broker"], figures["stored"], figures["depth"]) == ("n0", "local", 4)
        assert len(figures["lanes"]) == 2
        assert sorted(await messages(there, queue)) == [0, 1, 2, 3]
        # To look takes nothing away, and every page of it is carried.
        pages = [letter.data async for letter in there.browse(queue, page=1)]
        assert sorted(pages) == [0, 1, 2, 3]


@on_loop
async def test_a_name_that_was_registered_on_one_node_is_kept_for_on_all(tmp_path: Path):  # Q8
    async with made(tmp_path) as (place, queue, here, there):
        first = await place.client(HERE, "first")
        await first.consumer(queue, name="bills", group="office").open()
        assert await consumers(there, queue) == {"office": ["bills"]}
        with pytest.raises(BadRequest, match="'bills' is held by a session that still answers"):
            await there.consumer(queue, name="bills", group="office").open()
        await first.close()
        await here.send(queue, "while it is away")
        await place.settle()
        async with there.consumer(queue, name="bills", group="office") as again:
            (item,) = await again.pull(5, wait_s=PATIENCE_S)
            assert item.data == "while it is away"
            assert await item.ack()
            await again.unregister()
        assert await consumers(here, queue) == {"office": []}


@on_loop
async def test_a_delayed_message_is_taken_back_at_home(tmp_path: Path):  # Q2
    async with made(tmp_path) as (_, queue, here, there):
        async with here.delayed_producer(queue, delay_ms=3_600_000) as producer:
            receipts = [await producer.send(n) for n in range(4)]
            assert await messages(there, queue, delayed=True) == [0, 1, 2, 3]
            assert await producer.cancel(receipts[0])
            # By its id alone, in the session that sent it; by its queue, from anywhere.
            assert await here.cancel(receipts[1].message)
            assert await there.cancel(receipts[2].message, to=queue)
            assert not await there.cancel(receipts[3].message)
            assert not await there.cancel(receipts[0].message, to=queue)
        assert await messages(there, queue, delayed=True) == [3]
        assert (await here.inspect(queue))["delayed"] == 1


@on_loop
async def test_dead_letters_are_dealt_with_from_another_node(tmp_path: Path):  # Q9
    async with made(tmp_path, attempts_max=1) as (_, queue, here, there):
        for n in range(3):
            await here.send(queue, n)
            await kill(there, queue)
        letters = [letter async for letter in here.dead_letters(queue)]
        assert [letter.data for letter in letters] == [0, 1, 2]
        death = letters[0].death
        assert death is not None
        assert (death.group, death.attempts) == ("g", 1)
        assert await here.replay(queue, [letters[1].message]) == 1
        (item,) = await there.fetch(queue, wait_s=PATIENCE_S, group="g")
        assert item.data == 1
        assert await item.ack()
        assert await there.purge(queue, [letters[0].message]) == 1
        assert await messages(here, queue, dead=True) == [2]
        assert await here.purge(queue) == 1
        assert await messages(there, queue, dead=True) == []


@on_loop
async def test_a_producer_on_another_node_is_told_of_its_dead_letter(tmp_path: Path):  # Q9
    async with made(tmp_path, attempts_max=1) as (place, queue, here, there):
        told: asyncio.Queue[tuple[str, DeadLetter]] = asyncio.Queue()
        other = await place.client(THERE, "other")
        async with here.producer(queue) as mine, other.producer(queue) as others:
            mine.on_dead(lambda letter: told.put_nowait(("here", letter)))
            others.on_dead(lambda letter: told.put_nowait(("other", letter)))
            # Each hears of its own, and of nobody else's.
            for name, producer, num in (("here", mine, 7), ("other", others, 8)):
                receipt = await producer.send("dies", num=num)
                await kill(there, queue)
                async with asyncio.timeout(PATIENCE_S):
                    who, letter = await told.get()
                assert (who, letter.message, letter.num) == (name, receipt.message, num)
                assert (letter.group, letter.attempts) == ("g", 1)
        assert told.empty()
        assert (here.waiting, other.waiting) == (0, 0)


@on_loop
async def test_who_may_not_administer_may_not_from_another_node_either(tmp_path: Path):
    async with made(tmp_path) as (place, queue, _, _):
        user = await place.client(HERE, "user", send=["*"], subscribe=["*"])
        await user.send(queue, 1)
        for refused in (user.inspect(queue), user.replay(queue), user.purge(queue)):
            with pytest.raises(Forbidden):
                await refused


@on_loop
async def test_a_queue_whose_home_is_gone_stays_there_and_says_so(tmp_path: Path):
    async with made(tmp_path) as (place, queue, here, there):
        await here.send(queue, 1)
        await place.stop(place.nodes[HOME])
        await place.settle()
        for asked in (here.inspect(queue), there.send(queue, 2), there.replay(queue)):
            with pytest.raises(Overload, match="lives on n0, which is not reachable now"):
                await asked
        with pytest.raises(Unreachable):
            await here.inspect(place.placed("queue", HERE))
