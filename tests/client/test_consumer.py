"""Consumers by name and in groups, pushed or pulling, across reconnects (Q6, Q7, Q8)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chappe.client import Client, Consumer, Reconnected, Stopped
from chappe.errors import BadRequest, Forbidden, Overload
from chappe.wire.ops import Ack, Consume, Fetch, Nack, Register, Unregister

from .conftest import Notices
from .peer import Port
from .queues import QUEUE, asked, order, working

HELD = {"ok": False, "error": "protocol", "reason": "name: 'c' is held by a session"}


async def opened(port: Port, client: Client, **options: Any) -> Consumer:
    consumer = client.consumer(QUEUE, name="c", **options)
    await asked(port, consumer.open(), Register)
    return consumer


async def pushing(port: Port, consumer: Consumer, *numbers: int) -> Any:
    """Begin to iterate, with a hub that pushes these; the first."""
    task = asyncio.create_task(anext(consumer))
    port.peer.answer(await port.peer.next(Consume))
    port.peer.say(*(order(n, group="c") for n in numbers))
    return await task


async def closed(port: Port, consumer: Consumer) -> None:
    await asked(port, consumer.close(), Consume)


def test_a_consumer_registers_by_its_name_when_it_is_opened(run):  # Q8
    async def test():
        async with working() as (port, client):
            consumer = client.consumer(
                QUEUE, name="c", group="g", tags=["t"], headers={"h": "v"}, new=True
            )
            op, _ = await asked(port, consumer.open(), Register)
            assert (op.to, op.name, op.group) == (QUEUE, "c", "g")
            assert (op.tags, op.headers, op.new) == (["t"], {"h": "v"}, True)
            # Once is enough.
            await consumer.open()
            assert port.peer.ops == []
            assert (consumer.queue, consumer.name, consumer.group) == (QUEUE, "c", "g")

    run(test())


def test_a_name_is_a_group_of_its_own(run):  # Q8
    async def test():
        async with working() as (port, client):
            consumer = client.consumer(QUEUE, name="c")
            op, _ = await asked(port, consumer.open(), Register)
            assert (op.name, op.group) == ("c", "c")
            op, _ = await asked(port, consumer.pull(), Fetch, n=0)
            assert (op.name, op.group) == ("c", "c")

    run(test())


def test_a_name_that_somebody_holds_is_refused(run):  # Q8
    async def test():
        async with working() as (port, client):
            consumer = client.consumer(QUEUE, name="c")
            with pytest.raises(BadRequest, match="held"):
                await asked(port, consumer.open(), Register, **HELD)
            # It may be free later.
            await asked(port, consumer.open(), Register)
            with pytest.raises(BadRequest, match="already"):
                await client.consumer(QUEUE, name="d").open()

    run(test())


def test_without_a_name_it_competes_in_a_group_and_is_not_registered(run):
    async def test():
        async with working() as (port, client):
            consumer = client.consumer(QUEUE, group="g", tags=["t"], headers={"h": "v"})
            op, _ = await asked(port, consumer.pull(3, wait_s=1.5), Fetch, n=0)
            assert (op.n, op.wait_ms, op.group, op.name) == (3, 1500, "g", None)
            assert (op.tags, op.headers) == (["t"], {"h": "v"})
            with pytest.raises(BadRequest, match="name"):
                await consumer.unregister()
            with pytest.raises(BadRequest, match="new"):
                client.consumer(QUEUE, group="g", new=True)

    run(test())


def test_pulled_items_tell_what_their_sender_said(run):  # Q7, Q13
    async def test():
        async with working() as (port, client):
            consumer = await opened(port, client)
            pulling = asyncio.create_task(consumer.pull(2))
            op = await port.peer.next(Fetch)
            labels = {"key": "k", "headers": {"h": "v"}, "tags": ["t"], "num": 7, "type": 0}
            port.peer.say(order(1, **labels, group="c", attempt=3), order(2))
            port.peer.answer(op, n=2)
            first, second = await pulling
            assert (first.key, first.headers, first.tags) == ("k", {"h": "v"}, ["t"])
            assert (first.num, first.attempt, first.data) == (7, 3, 1)
            assert (first.message.type, first.message.group) == (0, "c")
            assert (second.key, second.headers, second.tags) == (None, {}, [])
            assert (second.num, second.attempt) == (None, 1)

    run(test())


def test_items_are_acknowledged_or_handed_back_for_later(run):  # Q6
    async def test():
        async with working() as (port, client):
            consumer = await opened(port, client)
            pulling = asyncio.create_task(consumer.pull(3))
            op = await port.peer.next(Fetch)
            port.peer.say(order(1), order(2), order(3))
            port.peer.answer(op, n=3)
            first, second, third = await pulling
            op, done = await asked(port, first.ack(), Ack)
            assert (op.message, done) == (1, True)
            op, done = await asked(port, second.nack(delay_s=1.5), Nack)
            assert (op.message, op.delay_ms, done) == (2, 1500, True)
            op, _ = await asked(port, third.nack(), Nack)
            assert op.delay_ms is None
            for wrong in (-1, float("inf"), float("nan")):
                with pytest.raises(BadRequest, match="delay_s"):
                    await third.nack(delay_s=wrong)

    run(test())


def test_iterating_lets_the_queue_push(run):  # Q6
    async def test():
        async with working() as (port, client):
            consumer = client.consumer(QUEUE, name="c", tags=["t"], credit=2)
            taken = asyncio.create_task(anext(consumer))
            # Registered by the way, if nobody opened it.
            port.peer.answer(await port.peer.next(Register))
            op = await port.peer.next(Consume)
            assert (op.credit, op.name, op.group, op.tags) == (2, "c", "c", ["t"])
            port.peer.answer(op)
            port.peer.say(order(1, key="k", group="c"), order(2, group="c"))
            item = await taken
            assert (item.data, item.key) == (1, "k")
            with pytest.raises(BadRequest, match="already"):
                await consumer.pull()
            closing = asyncio.create_task(consumer.close())
            op = await port.peer.next(Consume)
            assert (op.credit, op.group, op.name) == (0, "c", "c")
            port.peer.answer(op)
            await closing
            assert (await port.peer.next(Nack)).message == 2
            assert [item async for item in consumer] == []
            with pytest.raises(BadRequest, match="closed"):
                await consumer.pull()

    run(test())


def test_closing_a_consumer_leaves_others_of_the_client_alone(run):
    async def test():
        async with working() as (port, client):
            fetching = asyncio.create_task(client.fetch(QUEUE, wait_s=5))
            op = await port.peer.next(Fetch)
            consumer = await opened(port, client)
            await consumer.close()
            port.peer.say(order(1))
            port.peer.answer(op, n=1)
            assert [item.data for item in await fetching] == [1]

    run(test())


def test_unregistering_ends_it_and_gives_up_the_name(run):  # Q8
    async def test():
        async with working() as (port, client):
            consumer = await opened(port, client)
            await pushing(port, consumer, 1)
            leaving = asyncio.create_task(consumer.unregister())
            port.peer.answer(await port.peer.next(Consume))
            op = await port.peer.next(Unregister)
            assert (op.to, op.name, op.group) == (QUEUE, "c", "c")
            port.peer.answer(op)
            await leaving
            assert not client._queues.registrations
            assert not client._conversation.takers

    run(test())


def test_after_a_reconnect_it_registers_and_is_pushed_again(run):  # Q8
    async def test():
        notices = Notices()
        async with working(notices) as (port, client):
            consumer = await opened(port, client)
            assert (await pushing(port, consumer, 1)).data == 1
            await port.cut()
            register, consume = (await port.peer.heard(2))[:2]
            assert isinstance(register, Register)
            assert isinstance(consume, Consume)
            assert register.name == consume.name == "c"
            port.peer.ops.clear()
            port.peer.answer(register)
            port.peer.answer(consume)
            port.peer.say(order(1, attempt=2, group="c"))
            item = await anext(consumer)
            assert (item.data, item.attempt) == (1, 2)
            await closed(port, consumer)

    run(test())


def test_a_closed_consumer_does_not_come_back(run):
    async def test():
        notices = Notices()
        async with working(notices) as (port, client):
            consumer = await opened(port, client)
            await consumer.close()
            await port.cut()
            await notices.wait(Reconnected)
            assert port.peer.ops == []

    run(test())


def test_a_name_that_its_own_former_connection_holds_is_asked_for_again(run):  # Q8
    async def test():
        notices = Notices()
        async with working(notices) as (port, client):
            consumer = await opened(port, client)
            assert (await pushing(port, consumer, 1)).data == 1
            await port.cut()
            taking = asyncio.create_task(anext(consumer))
            refusals = {"register": 2, "consume": 2}
            while refusals:
                op: Any = (await port.peer.heard(1)).pop(0)
                kind = "register" if isinstance(op, Register) else "consume"
                if refusals[kind]:
                    refusals[kind] -= 1
                    port.peer.answer(op, **HELD)
                else:
                    del refusals[kind]
                    port.peer.answer(op)
            port.peer.say(order(1, group="c"))
            assert (await taking).data == 1
            await closed(port, consumer)

    run(test())


def test_a_pull_waits_until_the_name_is_its_own_again(run):  # Q7, Q8
    async def test():
        notices = Notices()
        async with working(notices) as (port, client):
            consumer = await opened(port, client)
            await port.cut()
            port.peer.answer(await port.peer.next(Register), **HELD)
            await notices.wait(Reconnected)
            pulling = asyncio.create_task(consumer.pull())
            again = await port.peer.next(Register)
            assert port.peer.ops == []
            port.peer.answer(again)
            op = await port.peer.next(Fetch)
            port.peer.say(order(1))
            port.peer.answer(op, n=1)
            assert [item.data for item in await pulling] == [1]

    run(test())


@pytest.mark.parametrize("error", ["forbidden", "protocol"])
def test_a_consumer_that_is_refused_after_a_reconnect_raises_and_is_told(run, error):
    async def test():
        notices = Notices()
        async with working(notices) as (port, client):
            consumer = await opened(port, client)
            assert (await pushing(port, consumer, 1)).data == 1
            await port.cut()
            register, consume = (await port.peer.heard(2))[:2]
            port.peer.ops.clear()
            port.peer.answer(register, ok=False, error=error, reason="no more")
            port.peer.answer(consume)
            assert (await notices.wait(Stopped)).address == QUEUE
            # What the hub began all the same is ended.
            op = await port.peer.next(Consume)
            assert op.credit == 0
            for taking in (anext(consumer), consumer.pull()):
                with pytest.raises((Forbidden, BadRequest), match="no more"):
                    await taking
            assert not client._conversation.takers

    run(test())


def test_a_name_that_stays_somebody_elses_is_given_up_at_last(run):
    async def test():
        notices = Notices()
        async with working(notices, backoff_max_s=0.01) as (port, client):
            consumer = await opened(port, client)
            await port.cut()
            for _ in range(11):
                port.peer.answer(await port.peer.next(Register), **HELD)
            assert (await notices.wait(Stopped)).address == QUEUE
            with pytest.raises(BadRequest, match="held"):
                await consumer.pull()
            assert port.peer.ops == []

    run(test())


def test_fetch_and_consume_take_for_a_group_as_well(run):
    async def test():
        async with working() as (port, client):
            op, _ = await asked(port, client.fetch(QUEUE, group="g", tags=["t"]), Fetch, n=0)
            assert (op.group, op.tags, op.name) == ("g", ["t"], None)
            items = client.consume(QUEUE, group="g", headers={"h": "v"})
            op, _ = await asked(port, items.open(), Consume)
            assert (op.group, op.headers, op.name) == ("g", {"h": "v"}, None)
            for wrong in ({"tags": "t"}, {"headers": {"h": 1}}, {"group": 7}):
                with pytest.raises(BadRequest, match=next(iter(wrong))):
                    client.consume(QUEUE, **wrong)
            await asked(port, items.close(), Consume)

    run(test())


def test_an_overloaded_hub_is_asked_to_register_again_by_the_caller(run):
    async def test():
        async with working() as (port, client):
            consumer = client.consumer(QUEUE, name="c")
            with pytest.raises(Overload):
                await asked(port, consumer.open(), Register, ok=False, error="overload")
            assert not client._queues.registrations

    run(test())
