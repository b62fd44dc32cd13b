"""Work queues and services across nodes: each side, and the home, on another one (H17, H18)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from chappe.client import Client
from chappe.errors import Overload, RequestError, Unreachable
from tests.cluster.town import PATIENCE_S, Town, town, until
from tests.loop import on_loop

QUEUE = "queue:jobs"


async def make_queue(place: Town, at: int, **options: Any) -> None:
    """Make the queue on a node, and wait until all know."""
    admin = await place.client(at, "admin")
    await admin.create(QUEUE, volatile=True, **options)
    await place.settle()


async def numbers(client: Client, n: int, *, wait_s: float = 0) -> list[int]:
    """Fetch items, acknowledge each, and say what they hold."""
    items = await client.fetch(QUEUE, n, wait_s=wait_s)
    assert all([await item.ack() for item in items])
    return [item.data for item in items]


async def waits(client: Client) -> None:
    """Wait until what a client asked for has reached the queue's home: links keep the order."""
    await asyncio.sleep(0)
    await client.presence(QUEUE)


@on_loop
async def test_items_go_in_order_to_whoever_fetches_wherever_they_are(tmp_path: Path):  # H17
    async with town(tmp_path) as place:
        await make_queue(place, 0)
        users = [await place.client(at, f"u{at}") for at in range(3)]
        for n in range(9):
            await users[n % 3].send(QUEUE, n)
        assert await numbers(users[1], 2) == [0, 1]
        assert await numbers(users[2], 3) == [2, 3, 4]
        assert await numbers(users[0], 100) == [5, 6, 7, 8]
        assert await numbers(users[1], 1) == []
        # Who waits is served in the order they came, over links as at home.
        fetches = []
        for n, user in enumerate((users[2], users[0], users[1])):
            fetches.append(asyncio.create_task(numbers(user, 1, wait_s=20)))
            await waits(user)
            assert not fetches[n].done()
        for n in range(3):
            await users[1].send(QUEUE, n)
        assert await asyncio.gather(*fetches) == [[0], [1], [2]]


@on_loop
async def test_an_item_shows_its_sender_and_what_was_sent(tmp_path: Path):  # H17
    async with town(tmp_path) as place:
        await make_queue(place, 0)
        sender, consumer = await place.client(1, "s"), await place.client(2, "c")
        id_ = await sender.send(QUEUE, b"\x00\xff")
        (item,) = await consumer.fetch(QUEUE)
        assert (str(item.id), item.queue, item.data) == (id_, QUEUE, b"\x00\xff")
        assert item.message.sender == "user:s"


@on_loop
async def test_what_is_handed_back_or_not_acknowledged_goes_to_the_next(tmp_path: Path):  # H17
    async with town(tmp_path) as place:
        await make_queue(place, 0, ack_timeout_s=0.3)
        sender, one, two = [await place.client(at, f"u{at}") for at in range(3)]
        await sender.send(QUEUE, "nack")
        (item,) = await one.fetch(QUEUE)
        assert await two.fetch(QUEUE) == []
        assert await item.nack()
        (item,) = await two.fetch(QUEUE)
        assert item.data == "nack"
        # Its time runs out: it goes to who waits, on another node, and the late word is refused.
        (again,) = await one.fetch(QUEUE, wait_s=20)
        assert again.id == item.id
        assert not await item.ack()
        assert await again.ack()
        # A consumer that goes hands back what it had.
        await sender.send(QUEUE, "left")
        (item,) = await one.fetch(QUEUE)
        await one.close()
        assert await numbers(two, 1, wait_s=20) == ["left"]


@on_loop
async def test_a_queue_is_bounded_and_says_so_to_who_sends_from_elsewhere(tmp_path: Path):  # H17
    async with town(tmp_path) as place:
        await make_queue(place, 0, depth_max=2)
        sender, consumer = await place.client(1, "s"), await place.client(2, "c")
        for n in range(2):
            await sender.send(QUEUE, n)
        with pytest.raises(Overload) as refused:
            await sender.send(QUEUE, 2)
        assert not refused.value.outcome_unknown
        assert await numbers(consumer, 1) == [0]
        await sender.send(QUEUE, 3)
        assert await numbers(consumer, 5) == [1, 3]


@on_loop
async def test_consumers_on_all_nodes_share_the_work_each_item_once(tmp_path: Path):  # H17
    async with town(tmp_path) as place:
        await make_queue(place, 1)
        sender = await place.client(2, "s")
        done: list[tuple[int, int]] = []

        async def work(at: int) -> None:
            client = await place.client(at, f"c{at}")
            async with client.consume(QUEUE, credit=5) as items:
                async for item in items:
                    async with item:
                        done.append((at, item.data))

        workers = [asyncio.create_task(work(at)) for at in range(3)]
        for n in range(300):
            await sender.send(QUEUE, n)
        await until(lambda: len(done) >= 300)
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        assert sorted(n for _, n in done) == list(range(300))
        assert {at for at, _ in done} == {0, 1, 2}
        assert await sender.fetch(QUEUE) == []


@on_loop
async def test_what_a_consumer_had_goes_on_when_its_node_goes(tmp_path: Path):  # H17
    async with town(tmp_path) as place:
        await make_queue(place, 0)
        sender, other = await place.client(0, "s"), await place.client(1, "other")
        gone = await place.client(2, "gone")
        for n in range(3):
            await sender.send(QUEUE, n)
        assert [item.data for item in await gone.fetch(QUEUE, 2)] == [0, 1]
        await place.nodes[2].drain()
        found: list[int] = []
        while len(found) < 3:
            found += await numbers(other, 3, wait_s=5)
        assert sorted(found) == [0, 1, 2]


@on_loop
async def test_a_node_that_leaves_hands_its_queues_over_and_consumers_go_on(tmp_path: Path):  # H17
    async with town(tmp_path) as place:
        await make_queue(place, 2)
        sender, consumer = await place.client(0, "s"), await place.client(1, "c")
        items = await consumer.consume(QUEUE, credit=1).open()
        for n in range(5):
            await sender.send(QUEUE, n)
        async with asyncio.timeout(PATIENCE_S):
            assert (await anext(items)).data == 0
        await place.nodes[2].drain()
        await until(lambda: not place.nodes[0].neighbourhood.cluster.peer("n2"))
        await until(lambda: not place.nodes[1].neighbourhood.cluster.peer("n2"))
        await place.settle()
        await sender.send(QUEUE, 5)
        # What was not acknowledged comes again, and the rest in order.
        done: list[int] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(done) < 6:
                item = await anext(items)
                if await item.ack():
                    done.append(item.data)
        assert sorted(done) == list(range(6))
        assert done[1:] == sorted(done[1:])
        await items.close()
        # It lives on one node, whoever asks.
        for n in range(4):
            await (sender, consumer)[n % 2].send(QUEUE, n)
        assert await numbers(sender, 2) == [0, 1]
        assert await numbers(consumer, 2) == [2, 3]


@on_loop
async def test_administrators_remove_queues_wherever_they_live(tmp_path: Path):  # H17
    async with town(tmp_path) as place:
        await make_queue(place, 2)
        admin, user = await place.client(0, "a"), await place.client(1, "u")
        waiting = asyncio.create_task(user.fetch(QUEUE, wait_s=20))
        await waits(user)
        await admin.delete(QUEUE)
        with pytest.raises(Unreachable):
            await waiting
        await place.settle()
        for one in (admin, user):
            with pytest.raises(Unreachable):
                await one.send(QUEUE, 1)
            assert not await one.presence(QUEUE)


@on_loop
async def test_a_request_goes_to_a_provider_elsewhere_and_each_sees_only_the_service(
    tmp_path: Path,
):  # H18
    async with town(tmp_path) as place:
        service = place.placed("service", 0)
        provider, asking = await place.client(1, "p"), await place.client(2, "a")
        with pytest.raises(Unreachable):
            await asking.request(service, 1)
        asked: list[Any] = []

        async def answer(data: Any) -> Any:
            asked.append(data)
            if data == "refuse":
                raise Overload("not today")
            return data if isinstance(data, bytes) else {"answer": data}

        await provider.provide(service, answer)
        assert await asking.request(service, 1) == {"answer": 1}
        assert await asking.request(service, b"\xff") == b"\xff"
        assert asked == [1, b"\xff"]
        with pytest.raises(Overload, match="not today"):
            await asking.request(service, "refuse")
        answers = await asyncio.gather(*(asking.request(service, n) for n in range(50)))
        assert answers == [{"answer": n} for n in range(50)]
        await provider.unprovide(service)
        with pytest.raises(Unreachable):
            await asking.request(service, 1)
        assert not await asking.presence(service)


@on_loop
async def test_requests_are_shared_among_providers_on_all_nodes(tmp_path: Path):  # H18
    async with town(tmp_path) as place:
        service = place.placed("service", 1)
        for at in range(3):
            provider = await place.client(at, f"p{at}")
            await provider.provide(service, lambda data, at=at: at)
        asking = await place.client(0, "a")
        answers = [await asking.request(service, n) for n in range(12)]
        assert set(answers) == {0, 1, 2}


@on_loop
async def test_a_provider_lost_elsewhere_hands_on_what_is_idempotent_and_nothing_else(
    tmp_path: Path,
):  # H18
    async with town(tmp_path) as place:
        service = place.placed("service", 0)
        dying, asking = await place.client(1, "dying"), await place.client(2, "a")
        entered = asyncio.Queue[Any]()

        async def hang(data: Any) -> None:
            entered.put_nowait(data)
            await asyncio.Event().wait()

        await dying.provide(service, hang)
        plain = asyncio.create_task(asking.request(service, "plain"))
        idempotent = asyncio.create_task(asking.request(service, "again", idempotent=True))
        assert {await entered.get(), await entered.get()} == {"plain", "again"}
        second = await place.client(0, "second")
        await second.provide(service, lambda data: f"{data} by the second")
        place.nodes[1].hub.sessions[dying.session].sink.abort()
        async with asyncio.timeout(5):
            with pytest.raises(Unreachable) as refused:
                await plain
            assert refused.value.outcome_unknown
            assert await idempotent == "again by the second"


@on_loop
async def test_when_its_home_goes_a_service_lives_on_elsewhere(tmp_path: Path):  # H18
    async with town(tmp_path) as place:
        services = [place.placed("service", 2) for _ in range(6)]
        provider, asking = await place.client(1, "p"), await place.client(0, "a")
        going = asyncio.Event()

        async def answer(data: Any) -> Any:
            if data == "wait":
                going.set()
                await asyncio.Event().wait()
            return data

        for service in services:
            await provider.provide(service, answer)
        await answered(asking, services)
        waiting = asyncio.create_task(asking.request(services[0], "wait"))
        await going.wait()
        await place.nodes[2].drain()
        # Whoever waited there is told, at once and not after the time limit.
        async with asyncio.timeout(5):
            with pytest.raises(RequestError) as refused:
                await waiting
        assert refused.value.outcome_unknown
        await place.settle()
        await answered(asking, services)
        # One that comes takes over its share of services, and their providers go along.
        await place.add()
        await place.settle()
        await answered(asking, services)


async def answered(asking: Client, services: list[str]) -> None:
    """See that each of the services answers, as soon as its provider is known at its home."""
    for n, service in enumerate(services):
        await until(lambda service=service: asking.presence(service))
        assert await asking.request(service, n) == n
