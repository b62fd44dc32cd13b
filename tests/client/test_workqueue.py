"""Work queues: items reach who asked for them, and are acknowledged or come again (H17)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from chappe.client import (
    Client,
    ClientOptions,
    Disconnected,
    Item,
    Notice,
    Reconnected,
    Stopped,
    connect,
)
from chappe.errors import BadRequest, ConnectionClosed, Forbidden, Overload, Unreachable
from chappe.wire import ops
from chappe.wire.ops import PACKED, Ack, Consume, Fetch, Nack

from .conftest import QUICK, Notices
from .peer import Port, peering

QUEUE = "queue:jobs"


def job(n: int) -> ops.Op:
    return PACKED[ops.Delivery](message=n, from_="user:b", to=QUEUE, ts=1, data=b"%d" % n)


@contextlib.asynccontextmanager
async def working(on_notice: Any = None, **bounds: Any) -> AsyncIterator[tuple[Port, Client]]:
    options = ClientOptions(**{**QUICK, **bounds})
    async with (
        peering() as port,
        connect(port.url, as_="user:a", options=options, on_notice=on_notice) as client,
    ):
        yield port, client


async def fetched(port: Port, client: Client, *numbers: int) -> list[Item]:
    """Fetch, with a hub that has these."""
    fetching = asyncio.create_task(client.fetch(QUEUE, 10))
    op = await port.peer.next(Fetch)
    port.peer.say(*map(job, numbers))
    port.peer.answer(op, n=len(numbers))
    return await fetching


async def reconnected(port: Port, notices: Notices) -> None:
    port.peer.transport.abort()
    await notices.wait(Reconnected)


def data_of(items: list[Item]) -> list[Any]:
    return [item.data for item in items]


def test_a_fetch_brings_what_came_before_its_answer(run):  # H17
    async def test():
        async with working() as (port, client):
            fetching = asyncio.create_task(client.fetch(QUEUE, 3, wait_s=1.5))
            op = await port.peer.next(Fetch)
            assert (op.to, op.n, op.wait_ms) == (QUEUE, 3, 1500)
            port.peer.say(job(1), job(2))
            port.peer.answer(op, n=2)
            items = await fetching
            assert data_of(items) == [1, 2]
            assert (items[0].id, items[0].queue, items[0].message.sender) == (1, QUEUE, "user:b")
            # The inbox has none of it.
            assert client.waiting == 0

    run(test())


def test_an_empty_fetch_is_an_empty_list_and_a_refused_one_raises(run):
    async def test():
        async with working() as (port, client):
            assert await fetched(port, client) == []
            fetching = asyncio.create_task(client.fetch(QUEUE))
            port.peer.answer(await port.peer.next(Fetch), ok=False, error="unreachable")
            with pytest.raises(Unreachable):
                await fetching
            assert not client._conversation.takers

    run(test())


def test_two_fetches_at_once_get_as_many_as_each_was_given(run):
    async def test():
        async with working() as (port, client):
            first = asyncio.create_task(client.fetch(QUEUE, 2))
            second = asyncio.create_task(client.fetch(QUEUE, 1))
            one, two = await port.peer.next(Fetch), await port.peer.next(Fetch)
            port.peer.say(job(1), job(2), job(3))
            port.peer.answer(two, n=1)
            port.peer.answer(one, n=2)
            assert sorted(data_of(await first) + data_of(await second)) == [1, 2, 3]
            assert len(await first) == 2

    run(test())


def test_what_nobody_asked_for_goes_to_the_inbox(run):
    async def test():
        async with working() as (port, client):
            port.peer.say(job(7))
            message = await client.receive()
            assert (message.to, message.data) == (QUEUE, 7)

    run(test())


def test_items_are_acknowledged_and_handed_back(run):
    async def test():
        async with working() as (port, client):
            first, second = await fetched(port, client, 1, 2)
            for saying, kind, n in ((first.ack(), Ack, 1), (second.nack(), Nack, 2)):
                asking = asyncio.create_task(saying)
                op = await port.peer.next(kind)
                assert op.message == n
                port.peer.answer(op)
                assert await asking is True

    run(test())


def test_an_acknowledgement_that_comes_too_late_is_false(run):
    async def test():
        notices = Notices()
        async with working(notices) as (port, client):
            first, second = await fetched(port, client, 1, 2)
            asking = asyncio.create_task(first.ack())
            port.peer.answer(await port.peer.next(Ack), ok=False, error="protocol", reason="gone")
            assert await asking is False
            asking = asyncio.create_task(second.ack())
            await port.peer.next(Ack)
            await reconnected(port, notices)
            assert await asking is False
            # On another connection it is not even said.
            assert await second.ack() is False
            assert port.peer.ops == []

    run(test())


def test_a_block_acknowledges_what_it_did_and_hands_back_what_it_did_not(run):
    async def test():
        async with working() as (port, client):
            first, second = await fetched(port, client, 1, 2)

            async def do(item: Item, error: Exception | None) -> None:
                async with item:
                    if error is not None:
                        raise error

            doing = asyncio.create_task(do(first, None))
            port.peer.answer(await port.peer.next(Ack))
            await doing
            with pytest.raises(ValueError, match="broken"):
                await do(second, ValueError("broken"))
            assert (await port.peer.next(Nack)).message == 2

    run(test())


def test_a_cancelled_fetch_hands_back_what_it_would_have_brought(run):
    async def test():
        async with working() as (port, client):
            fetching = asyncio.create_task(client.fetch(QUEUE, 2, wait_s=9))
            op = await port.peer.next(Fetch)
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching
            port.peer.say(job(1), job(2))
            port.peer.answer(op, n=2)
            assert [(await port.peer.next(Nack)).message for _ in range(2)] == [1, 2]
            assert client.waiting == client.pending == 0
            assert not client._conversation.takers

    run(test())


def test_a_fetch_waits_longer_than_other_requests(run):
    async def test():
        async with working(request_timeout_s=0.05) as (port, client):
            fetching = asyncio.create_task(client.fetch(QUEUE, wait_s=5))
            op = await port.peer.next(Fetch)
            with pytest.raises(Overload):
                await client.presence("user:b")
            port.peer.answer(op, n=0)
            assert await fetching == []
            with pytest.raises(Overload) as caught:
                await client.fetch(QUEUE, wait_s=0.01)
            assert caught.value.outcome_unknown

    run(test())


def test_a_consumer_iterates_over_what_is_pushed(run):  # H17
    async def test():
        async with working() as (port, client):
            taken: asyncio.Queue[Any] = asyncio.Queue()

            async def consume() -> None:
                async for item in client.consume(QUEUE, credit=2):
                    taken.put_nowait(item.data)

            consuming = asyncio.create_task(consume())
            op = await port.peer.next(Consume)
            assert (op.to, op.credit) == (QUEUE, 2)
            port.peer.answer(op)
            port.peer.say(job(1), job(2))
            assert [await taken.get(), await taken.get()] == [1, 2]
            assert client.waiting == 0
            await client.close()
            await consuming
            assert taken.empty()

    run(test())


def test_leaving_the_block_ends_it_and_hands_back_the_rest(run):
    async def test():
        async with working() as (port, client):

            async def consume() -> Any:
                async with client.consume(QUEUE, credit=3) as items:
                    return await anext(items)

            consuming = asyncio.create_task(consume())
            port.peer.answer(await port.peer.next(Consume))
            port.peer.say(job(1), job(2), job(3))
            end = await port.peer.next(Consume)
            assert end.credit == 0
            port.peer.answer(end)
            assert (await consuming).data == 1
            assert [(await port.peer.next(Nack)).message for _ in range(2)] == [2, 3]
            # Another may begin now.
            assert data_of(await fetched(port, client, 4)) == [4]

    run(test())


def test_a_consumer_goes_on_after_a_reconnect_without_what_it_had_not_taken(run):
    async def test():
        notices = Notices()
        async with working(notices) as (port, client):
            items = client.consume(QUEUE, credit=5)
            opening = asyncio.create_task(items.open())
            port.peer.answer(await port.peer.next(Consume))
            await opening
            port.peer.say(job(1), job(2))
            first = await anext(items)
            await port.cut()
            op = await port.peer.next(Consume)
            assert op.credit == 5
            port.peer.answer(op)
            # The hub lends again what was not acknowledged.
            port.peer.say(job(1), job(2))
            await notices.wait(Reconnected)
            assert await first.ack() is False
            assert [(await anext(items)).data for _ in range(2)] == [1, 2]
            closing = asyncio.create_task(items.close())
            port.peer.answer(await port.peer.next(Consume))
            await closing

    run(test())


def test_a_consumer_that_is_refused_after_a_reconnect_raises_and_is_told(run):
    async def test():
        notices = Notices()
        async with working(notices) as (port, client):
            items = client.consume(QUEUE)
            opening = asyncio.create_task(items.open())
            port.peer.answer(await port.peer.next(Consume))
            await opening
            await port.cut()
            op = await port.peer.next(Consume)
            port.peer.answer(op, ok=False, error="forbidden", reason="no more")
            with pytest.raises(Forbidden):
                await anext(items)
            told: Notice = await notices.wait(Stopped)
            assert told.address == QUEUE
            await items.close()

    run(test())


def test_a_refused_consumer_raises_at_once_and_leaves_nothing(run):
    async def test():
        async with working() as (port, client):
            opening = asyncio.create_task(client.consume(QUEUE).open())
            port.peer.answer(await port.peer.next(Consume), ok=False, error="unreachable")
            with pytest.raises(Unreachable):
                await opening
            assert data_of(await fetched(port, client, 1)) == [1]
            with pytest.raises(BadRequest, match="credit"):
                client.consume(QUEUE, credit=0)

    run(test())


def test_one_client_takes_from_a_queue_in_one_way_at_a_time(run):
    async def test():
        async with working() as (port, client):
            items = client.consume(QUEUE)
            opening = asyncio.create_task(items.open())
            port.peer.answer(await port.peer.next(Consume))
            await opening

            async def refused(asking: Awaitable[Any]) -> None:
                with pytest.raises(BadRequest, match=QUEUE):
                    await asking

            await refused(client.fetch(QUEUE))
            await refused(client.consume(QUEUE).open())
            # The first is none the worse for it.
            port.peer.say(job(1))
            assert (await anext(items)).data == 1

    run(test())


def test_the_end_of_the_client_ends_its_consumers(run):
    async def test():
        async with working() as (port, client):
            items = client.consume(QUEUE)
            opening = asyncio.create_task(items.open())
            port.peer.answer(await port.peer.next(Consume))
            await opening
            waiting = asyncio.create_task(anext(items))
            await asyncio.sleep(0)
            port.peer.say(ops.Closed(code=4003, reason="revoked"))
            port.peer.transport.close()
            with pytest.raises(ConnectionClosed, match="revoked"):
                await waiting

    run(test())


def test_queues_and_topics_are_made_with_options_and_removed(run):
    async def test():
        async with working() as (port, client):
            making = asyncio.create_task(client.create(QUEUE, volatile=True, depth_max=9))
            op = await port.peer.next(ops.Create)
            assert (op.to, op.volatile, op.depth_max, op.history) == (QUEUE, True, 9, None)
            port.peer.answer(op)
            await making
            removing = asyncio.create_task(client.delete(QUEUE))
            port.peer.answer(await port.peer.next(ops.Delete))
            await removing
            for name in ("colour", "id", "to"):
                with pytest.raises((BadRequest, TypeError), match=name):
                    await client.create(QUEUE, **{name: 1})

    run(test())


def test_a_consumer_is_closed_at_once_without_a_connection(run):
    async def test():
        notices = Notices()
        async with working(notices, request_timeout_s=60) as (port, client):
            items = client.consume(QUEUE)
            opening = asyncio.create_task(items.open())
            port.peer.answer(await port.peer.next(Consume))
            await opening
            port.greets = False
            port.peer.transport.abort()
            await notices.wait(Disconnected)
            await items.close()
            with pytest.raises(StopAsyncIteration):
                await anext(items)
            port.greets = True

    run(test())


def test_a_consumer_that_nobody_waits_for_is_taken_back(run):
    async def test():
        async with working() as (port, client):
            opening = asyncio.create_task(client.consume(QUEUE).open())
            await port.peer.next(Consume)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert (await port.peer.next(Consume)).credit == 0
            assert not client._conversation.takers

    run(test())


@pytest.mark.parametrize("wait_s", [-1, float("inf"), float("nan")])
def test_a_wait_that_makes_no_sense_is_refused(run, wait_s):
    async def test():
        async with working() as (_, client):
            with pytest.raises(BadRequest, match="wait_s"):
                await client.fetch(QUEUE, wait_s=wait_s)

    run(test())
