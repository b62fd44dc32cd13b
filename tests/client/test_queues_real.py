"""Producers and consumers against a whole node (Q2 to Q9)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from chappe import blocking
from chappe.client import Client, ClientOptions, DeadLetter, Item, Letter, Receipt, connect
from chappe.errors import BadRequest, Overload, Unreachable
from chappe.node.node import Node
from tests.node.running import running

from .conftest import EDGES, QUICK

QUEUE = "queue:orders"


@pytest.fixture
def edge() -> str:
    """Most of it is the same on every edge."""
    return "tcp"


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """A whole node takes a moment to start: once for each test is enough."""
    return lambda test: uvloop.run(asyncio.wait_for(test, 60))


@pytest.fixture
def at(tmp_path: Path, edge: str) -> Callable[..., Any]:
    """A node, and a way to connect to it as a user on this edge."""

    @asynccontextmanager
    async def started(**changes: Any) -> AsyncIterator[tuple[Node, Callable[..., Any]]]:
        form: Any = "text" if edge.endswith("text") else "packed"
        async with running(tmp_path, **changes) as node, AsyncExitStack() as stack:
            url = node.addresses()["tcp" if edge == "tcp" else "websocket"]

            async def enter(name: str, **options: Any) -> Client:
                bounds = ClientOptions(**{**QUICK, "form": form, **options})
                return await stack.enter_async_context(
                    connect(url, as_=f"user:{name}", options=bounds)
                )

            yield node, enter

    return started


async def all_of(letters: AsyncIterator[Letter]) -> list[Any]:
    return [letter.data async for letter in letters]


@pytest.mark.parametrize("edge", EDGES)
def test_messages_are_stored_shared_and_acknowledged(run, at):  # Q3, Q4, Q5, Q7, Q13
    async def test():
        async with at() as (_, enter):
            shop, worker = await enter("shop"), await enter("worker")
            with pytest.raises(Unreachable, match="does not exist"):
                await shop.send(QUEUE, 1)
            async with shop.producer(QUEUE, lanes=3) as producer:
                assert len(producer.lanes) == len(set(producer.lanes)) == 3
                labels = {"key": "k", "headers": {"h": "v"}, "tags": ["t"]}
                receipts = [await producer.send(n, num=n, **labels) for n in range(5)]
                assert [receipt.text for receipt in receipts] == [f"{n} ACK" for n in range(5)]
                assert isinstance(receipts[0], Receipt)
            consumer = worker.consumer(QUEUE, group="g")
            for n in range(5):
                # Of one key, the next comes when the one before is done.
                (item,) = await consumer.pull(5)
                assert (item.data, item.num, item.attempt) == (n, n, 1)
                assert (item.key, item.headers, item.tags) == ("k", {"h": "v"}, ["t"])
                assert str(item.id) == receipts[n].message
                assert await item.ack()
            assert await consumer.pull(5) == []
            assert (await shop.inspect(QUEUE))["depth"] == 0

    run(test())


def test_a_producer_that_goes_on_with_its_numbers_stores_nothing_twice(run, at, tmp_path):  # Q5
    async def test():
        async with at() as (_, enter):
            shop = await enter("shop")
            async with shop.producer(QUEUE, name="billing", seq=1) as producer:
                first = [await producer.send(n) for n in range(3)]
        async with at() as (_, enter):
            shop = await enter("shop")
            # As a process that died before it had written down its last number.
            async with shop.producer(QUEUE, name="billing", seq=2) as producer:
                assert [await producer.send(n) for n in (1, 2)] == first[1:]
                await producer.send(3)
            assert await all_of(shop.browse(QUEUE)) == [0, 1, 2, 3]
            assert await all_of(shop.browse(QUEUE, reverse=True, page=3)) == [3, 2, 1, 0]

    run(test())


def test_each_consumer_gets_each_message_and_those_of_a_group_compete(run, at):  # Q8
    async def test():
        async with at() as (_, enter):
            shop = await enter("shop")
            async with shop.producer(QUEUE) as producer:
                clients = [await enter(f"worker-{n}") for n in range(3)]
                names = [("bills", None), ("packer-1", "packers"), ("packer-2", "packers")]
                consumers = [
                    client.consumer(QUEUE, name=name, group=group)
                    for client, (name, group) in zip(clients, names, strict=True)
                ]
                for consumer in consumers:
                    await consumer.open()
                for n in range(20):
                    await producer.send(n)

                async def take(consumer: Any) -> list[Any]:
                    taken = []
                    while items := await consumer.pull(3, wait_s=0.05):
                        for item in items:
                            taken.append(item.data)
                            assert await item.ack()
                    return taken

                bills, one, two = await asyncio.gather(*map(take, consumers))
                assert bills == list(range(20))
                assert sorted(one + two) == list(range(20))

    run(test())


def test_tags_headers_and_names_select(run, at):  # Q8
    async def test():
        async with at() as (_, enter):
            shop = await enter("shop")
            async with shop.producer(QUEUE) as producer:
                tagged = (await enter("a")).consumer(QUEUE, name="tagged", tags=["red", "blue"])
                headed = (await enter("b")).consumer(QUEUE, name="headed", headers={"h": "v"})
                await tagged.open()
                await headed.open()
                await producer.send(1, tags=["red", "green"])
                await producer.send(2, tags=["green"], headers={"h": "v", "i": "w"})
                await producer.send(3, headers={"h": "w"})
                await producer.send(4, consumers=["headed"], headers={"h": "v"}, tags=["red"])
                assert [item.data for item in await tagged.pull(9)] == [1]
                assert [item.data for item in await headed.pull(9)] == [2, 4]
                with pytest.raises(BadRequest, match="registered with"):
                    await (await enter("c")).fetch(QUEUE, group="tagged", tags=["green"])

    run(test())


def test_a_new_consumer_begins_with_all_or_with_what_is_new(run, at):  # Q8
    async def test():
        async with at() as (_, enter):
            shop = await enter("shop")
            async with shop.producer(QUEUE) as producer:
                await producer.send("old")
                old = await (await enter("a")).consumer(QUEUE, name="a").open()
                new = await (await enter("b")).consumer(QUEUE, name="b", new=True).open()
                await producer.send("new")
                assert [item.data for item in await old.pull(9)] == ["old", "new"]
                assert [item.data for item in await new.pull(9)] == ["new"]

    run(test())


def test_a_name_is_one_consumers_until_that_is_gone(run, at):  # Q8
    async def test():
        async with at() as (_, enter):
            shop, one, two = [await enter(name) for name in ("shop", "one", "two")]
            async with shop.producer(QUEUE) as producer:
                first, second = (client.consumer(QUEUE, name="c") for client in (one, two))
                await first.open()
                with pytest.raises(BadRequest, match="'c'"):
                    await second.open()
                await producer.send(1)
                await one.close()
                # What is sent while it is away is kept for it.
                await producer.send(2)
                while True:
                    try:
                        await second.open()
                        break
                    except BadRequest:
                        await shop.presence("user:one")
                assert [item.data for item in await second.pull(9)] == [1, 2]
                await second.unregister()
                groups = (await shop.inspect(QUEUE))["groups"]
                assert [group["group"] for group in groups] == []

    run(test())


@pytest.mark.parametrize("edge", EDGES)
def test_a_consumer_goes_on_after_its_connection_broke(run, at):  # Q6, Q8
    async def test():
        async with at() as (node, enter):
            shop, worker = await enter("shop"), await enter("worker")
            async with shop.producer(QUEUE) as producer:
                await shop.create(QUEUE, retry_s=0.01)
                consumer = worker.consumer(QUEUE, name="c")
                await producer.send(1)
                first = await anext(consumer)
                node.hub.sessions[worker.session].sink.abort()
                again = await anext(consumer)
                assert (first.data, again.data) == (1, 1)
                assert (first.attempt, again.attempt) == (1, 2)
                assert not await first.ack()
                # Items may come before all is said again; whether they are done is not told then.
                await worker.presence("user:shop")
                assert await again.ack()
                await consumer.close()

    run(test())


@pytest.mark.parametrize("edge", EDGES)
def test_what_dies_is_told_listed_replayed_and_purged(run, at):  # Q6, Q9
    async def test():
        async with at() as (_, enter):
            shop, worker = await enter("shop"), await enter("worker")
            await shop.create(QUEUE, attempts_max=2, retry_s=0.01)
            async with shop.producer(QUEUE) as producer:
                letters: asyncio.Queue[DeadLetter] = asyncio.Queue()
                producer.on_dead(letters.put_nowait)
                receipts = [await producer.send(n, num=n) for n in range(2)]

                async def fail(count: int) -> list[Item]:
                    """Hand back all that comes."""
                    handed = []
                    async with worker.consumer(QUEUE, name="c") as consumer:
                        async for item in consumer:
                            handed.append(item)
                            await item.nack()
                            if len(handed) == count:
                                break
                    return handed

                assert sorted(item.attempt for item in await fail(4)) == [1, 1, 2, 2]
                told = sorted([await letters.get(), await letters.get()], key=lambda d: d.num or 0)
                assert [(one.message, one.num, one.attempts, one.group) for one in told] == [
                    (receipt.message, receipt.num, 2, "c") for receipt in receipts
                ]
                assert shop.waiting == 0
                found = [letter async for letter in shop.dead_letters(QUEUE, page=1)]
                assert sorted(one.data for one in found) == [0, 1]
                assert found[0].death is not None
                assert (found[0].death.group, found[0].death.attempts) == ("c", 2)
                assert await shop.replay(QUEUE, [receipts[0].message]) == 1
                assert await shop.purge(QUEUE) == 1
                (item,) = await worker.consumer(QUEUE, name="c").pull(9, wait_s=5)
                assert (item.data, item.attempt) == (0, 1)
                assert await item.ack()
                assert await all_of(shop.dead_letters(QUEUE)) == []
                with pytest.raises(BadRequest, match="dead letters"):
                    await shop.replay(QUEUE, [receipts[1].message])

    run(test())


def test_delayed_messages_come_when_they_are_due_unless_taken_back(run, at):  # Q2
    async def test():
        async with at() as (_, enter):
            shop, worker = await enter("shop"), await enter("worker")
            async with shop.delayed_producer(QUEUE, delay_ms=60_000) as producer:
                late = await producer.send("late")
                await producer.send("soon", delay_ms=20)
                assert set(await all_of(shop.browse(QUEUE, delayed=True))) >= {"late"}
                (item,) = await worker.fetch(QUEUE, 9, wait_s=5)
                assert item.data == "soon"
                assert await producer.cancel(late) is True
                assert await producer.cancel(late) is False
                assert await all_of(shop.browse(QUEUE, delayed=True)) == []

    run(test())


def test_one_way_messages_arrive_too(run, at):  # Q2, Q13
    async def test():
        async with at() as (_, enter):
            shop, worker = await enter("shop"), await enter("worker")
            async with shop.one_way_producer(QUEUE) as producer:
                for n in range(50):
                    await producer.send(n, num=n)
                taken: list[Item] = []
                while len(taken) < 50:
                    taken += await worker.fetch(QUEUE, 50 - len(taken), wait_s=5)
                assert [item.data for item in taken] == list(range(50))
                assert {item.message.type for item in taken} == {0}

    run(test())


def test_a_queue_that_is_full_refuses_and_takes_again(run, at):  # Q5
    async def test():
        async with at() as (_, enter):
            shop, worker = await enter("shop"), await enter("worker")
            await shop.create(QUEUE, depth_max=1)
            async with shop.producer(QUEUE, retries=0) as producer:
                await producer.send(1)
                with pytest.raises(Overload) as caught:
                    await producer.send(2)
                assert not caught.value.outcome_unknown
            async with shop.producer(QUEUE) as producer:
                sending = asyncio.create_task(producer.send(3))
                (item,) = await worker.fetch(QUEUE)
                await item.ack()
                await sending
                assert await all_of(shop.browse(QUEUE)) == [3]

    run(test())


def test_requesting_a_queue_leaves_its_options(run, at):  # Q3
    async def test():
        async with at() as (_, enter):
            shop = await enter("shop")
            await shop.create(QUEUE, attempts_max=3, lanes=2)
            async with shop.producer(QUEUE, lanes=4) as producer:
                assert len(producer.lanes) == 4
            async with shop.producer(QUEUE) as producer:
                assert len(producer.lanes) == 4
            assert (await shop.inspect(QUEUE))["options"]["attempts_max"] == 3
            await shop.create("queue:fast", volatile=True)
            async with shop.producer("queue:fast") as producer:
                await producer.send(1)
            assert (await shop.inspect("queue:fast"))["volatile"]

    run(test())


def test_the_same_without_await(run, at):  # Q2 to Q9
    def do(url: str) -> None:
        with (
            blocking.connect(url, as_="user:shop") as shop,
            blocking.connect(url, as_="user:worker") as worker,
        ):
            shop.create(QUEUE, attempts_max=1)
            dead: list[DeadLetter] = []
            with (
                shop.producer(QUEUE, lanes=2, name="p", seq=1) as producer,
                worker.consumer(QUEUE, name="c", credit=1) as consumer,
            ):
                producer.on_dead(dead.append)
                assert (producer.queue, producer.name, producer.seq) == (QUEUE, "p", 1)
                assert len(producer.lanes) == 2
                assert producer.send(1, key="k", num=7).text == "7 ACK"
                producer.send(2, key="k", headers={"h": "v"}, tags=["t"])
                first = next(consumer)
                assert (first.data, first.key, first.num, first.attempt) == (1, "k", 7, 1)
                with first:
                    pass
                second = next(consumer)
                assert (second.headers, second.tags) == ({"h": "v"}, ["t"])
                assert second.nack(delay_s=0)
                assert (consumer.queue, consumer.name, consumer.group) == (QUEUE, "c", "c")
            while not (found := list(shop.dead_letters(QUEUE, page=1))):
                shop.presence("user:worker")
            assert [letter.data for letter in found] == [2]
            assert shop.replay(QUEUE) == 1
            with worker.consumer(QUEUE, name="c") as consumer:
                (item,) = consumer.pull(9, wait_s=5)
                assert item.ack()
            assert [letter.message for letter in dead] in ([], [found[0].message])
            assert shop.purge(QUEUE) == 0
            with shop.delayed_producer(QUEUE, delay_ms=60_000) as delayed:
                receipts = [delayed.send(n) for n in range(2)]
                assert [letter.data for letter in shop.browse(QUEUE, delayed=True)] == [0, 1]
                assert delayed.cancel(receipts[0])
                assert shop.cancel(receipts[1].message, to=QUEUE)
            with shop.one_way_producer(QUEUE) as one_way:
                one_way.send("posted")
            (item,) = worker.fetch(QUEUE, wait_s=5, group="c")
            assert item.data == "posted"
            item.ack()
            figures = shop.inspect(QUEUE)
            assert (figures["delayed"], [group["group"] for group in figures["groups"]]) == (
                0,
                ["c"],
            )
            worker.consumer(QUEUE, name="c").unregister()
            assert shop.inspect(QUEUE)["groups"] == []
            shop.delete(QUEUE)

    async def test():
        async with at() as (node, _):
            await asyncio.to_thread(do, node.addresses()["websocket"])

    run(test())


@pytest.mark.parametrize("volatile", [False, True])
def test_what_follows_the_making_or_removing_of_a_queue_waits_for_it(run, at, volatile):
    async def test():
        async with at() as (_, enter):
            admin = await enter("admin")
            await admin.create(QUEUE, volatile=volatile)
            await admin.send(QUEUE, 0)
            # All of it in one write, none of it awaited.
            await asyncio.gather(
                admin.delete(QUEUE),
                admin.create(QUEUE, volatile=volatile),
                admin.send(QUEUE, 1),
                admin.send(QUEUE, 2),
            )
            items = await admin.fetch(QUEUE, 10, wait_s=5)
            assert [item.data for item in items] == [1, 2]
            await asyncio.gather(
                admin.delete(QUEUE),
                admin.create(QUEUE, volatile=volatile),
                admin.send(QUEUE, 3),
                admin.delete(QUEUE),
                return_exceptions=True,  # perhaps it is stored before it is removed
            )
            assert not await admin.presence(QUEUE)
            results = await asyncio.gather(
                admin.create(QUEUE, volatile=volatile),
                admin.delete(QUEUE),
                admin.send(QUEUE, 4),
                return_exceptions=True,
            )
            assert isinstance(results[2], Unreachable)

    run(test())
