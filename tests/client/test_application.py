"""The application layer through real sockets: avatars, recovery, work queues, services."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chappe.client import Disconnected, Missed, Reconnected
from chappe.errors import BadRequest, Unreachable

from .conftest import Notices, Service, serving

TOPIC, QUEUE, SERVICE = "topic:news", "queue:jobs", "service:billing"


async def publish(client: Any, *numbers: int) -> None:
    for n in numbers:
        await client.publish(TOPIC, n)


async def cut(service: Service, client: Any, notices: Notices) -> None:
    service.session(client).sink.abort()
    await notices.wait(Disconnected)


def test_what_was_published_during_a_reconnect_comes_once_and_in_order(run, dial):  # H16
    async def test():
        notices = Notices()
        async with (
            serving() as service,
            dial(service, "a", on_notice=notices) as alice,
            dial(service, "b") as bob,
        ):
            await bob.create(TOPIC, history=10)
            await alice.subscribe(TOPIC)
            await publish(bob, 1, 2)
            for _ in range(5):
                await cut(service, alice, notices)
                await publish(bob, 3, 4)
                await notices.wait(Reconnected)
                await publish(bob, 5)
            got = [(await alice.receive()).data for _ in range(17)]
            assert got == [1, 2, *[3, 4, 5] * 5]
            assert alice.position(TOPIC).offset == 17
            assert alice.waiting == 0
            assert not [told for told in notices if isinstance(told, Missed)]

    run(test())


def test_a_history_that_is_too_short_is_told_as_missed(run, dial):
    async def test():
        notices, gate = Notices(), asyncio.Event()
        gate.set()

        async def token() -> str:
            await gate.wait()
            return ""

        async with (
            serving() as service,
            dial(service, "a", on_notice=notices, token=token) as alice,
            dial(service, "b") as bob,
        ):
            await bob.create(TOPIC, history=2)
            await alice.subscribe(TOPIC)
            gate.clear()
            await cut(service, alice, notices)
            await publish(bob, 1, 2, 3)
            gate.set()
            assert (await notices.wait(Missed)).topic == TOPIC
            await publish(bob, 4)
            assert [(await alice.receive()).data for _ in range(3)] == [2, 3, 4]

    run(test())


def test_a_position_that_was_kept_brings_what_came_since(run, dial):
    async def test():
        async with serving() as service, dial(service, "b") as bob:
            await bob.create(TOPIC, history=10)
            async with dial(service, "a") as alice:
                await alice.subscribe(TOPIC)
                await publish(bob, 1)
                await alice.receive()
                kept = alice.position(TOPIC)
            await publish(bob, 2, 3)
            async with dial(service, "a") as alice:
                assert await alice.subscribe(TOPIC, since=kept)
                assert [(await alice.receive()).data for _ in range(2)] == [2, 3]
                assert not await alice.subscribe("topic:plain", since=kept)
                assert alice.position("topic:plain") is None

    run(test())


def test_an_avatar_hears_for_its_user_once_also_after_a_reconnect(run, dial):  # H14, H15
    async def test():
        notices = Notices()
        async with (
            serving() as service,
            dial(service, "a", on_notice=notices) as alice,
            dial(service, "b") as bob,
        ):
            await bob.add_avatar("avatar:x", "user:a")
            await alice.subscribe(TOPIC, as_="avatar:x")
            await alice.subscribe(TOPIC)
            for n in range(2):
                await publish(bob, n)
                await bob.send("avatar:x", "direct")
                assert [(await alice.receive()).data for _ in range(2)] == [n, "direct"]
                await cut(service, alice, notices)
                await notices.wait(Reconnected)
            await alice.remove_avatar("avatar:x")
            with pytest.raises(Unreachable):
                await bob.send("avatar:x", 1)
            await publish(bob, 9)
            assert (await alice.receive()).data == 9

    run(test())


def test_items_are_fetched_acknowledged_and_come_again(run, dial):  # H17
    async def test():
        async with serving() as service, dial(service, "a") as alice, dial(service, "b") as bob:
            with pytest.raises(Unreachable):
                await alice.fetch(QUEUE)
            await bob.create(QUEUE, volatile=True)
            assert await alice.fetch(QUEUE) == []
            waiting = asyncio.create_task(alice.fetch(QUEUE, 5, wait_s=20))
            while not alice.pending:
                await asyncio.sleep(0)
            await alice.presence("user:a")  # so that it has reached the queue
            await bob.send(QUEUE, b"\xff")
            (item,) = await waiting
            assert (item.data, item.message.sender) == (b"\xff", "user:b")
            assert await item.nack()
            (item,) = await alice.fetch(QUEUE, 5)
            assert await item.ack()
            assert not await item.ack()
            assert await alice.fetch(QUEUE) == []
            await bob.delete(QUEUE)
            with pytest.raises(Unreachable):
                await bob.send(QUEUE, 1)

    run(test())


def test_a_consumer_gets_everything_through_reconnects(run, dial):  # H17
    async def test():
        notices = Notices()
        async with (
            serving() as service,
            dial(service, "a", on_notice=notices) as alice,
            dial(service, "b") as bob,
        ):
            await bob.create(QUEUE, volatile=True)
            seen: dict[int, int] = {}

            async def consume() -> None:
                async with alice.consume(QUEUE, credit=3) as items:
                    async for item in items:
                        seen[item.data] = seen.get(item.data, 0) + 1
                        await item.ack()
                        if len(seen) == 60:
                            return

            consuming = asyncio.create_task(consume())
            for n in range(60):
                await bob.send(QUEUE, n)
                if n % 20 == 10:
                    await cut(service, alice, notices)
                    await bob.send(QUEUE, -n)
                    await notices.wait(Reconnected)
            await consuming
            assert set(seen) >= set(range(50))
            # What was not acknowledged came again, and nothing else: three at a time at most.
            assert sum(seen.values()) - len(seen) <= 3 * 3
            assert alice.waiting == 0
            assert not alice._conversation.takers

    run(test())


def test_two_clients_ask_and_answer_through_a_service(run, dial):  # H18
    async def test():
        notices = Notices()

        async def price(data: Any) -> Any:
            if not isinstance(data, dict):
                raise BadRequest("data: an object is meant")
            await asyncio.sleep(0)
            return {"price": data["n"] * 2, "of": data["what"]}

        async with (
            serving() as service,
            dial(service, "a", on_notice=notices) as alice,
            dial(service, "b") as bob,
        ):
            with pytest.raises(Unreachable):
                await bob.request(SERVICE, 1)
            await alice.provide(SERVICE, price)
            for _ in range(2):
                asked = [bob.request(SERVICE, {"n": n, "what": "é"}) for n in range(200)]
                got = await asyncio.gather(*asked)
                assert got == [{"price": n * 2, "of": "é"} for n in range(200)]
                with pytest.raises(BadRequest, match="an object is meant"):
                    await bob.request(SERVICE, b"\xff", timeout_s=5)
                await cut(service, alice, notices)
                await notices.wait(Reconnected)
            await alice.unprovide(SERVICE)
            with pytest.raises(Unreachable):
                await bob.request(SERVICE, {})

    run(test())


def test_a_provider_that_closes_answers_what_it_was_asked(run, dial):  # H18
    async def test():
        gate, begun = asyncio.Event(), asyncio.Queue[Any]()

        async def slow(data: Any) -> Any:
            begun.put_nowait(data)
            await gate.wait()
            return data

        async with serving() as service, dial(service, "b") as bob:
            alice = await dial(service, "a", options={"close_timeout_s": 20})
            await alice.provide(SERVICE, slow, concurrency=2)
            asking = [asyncio.create_task(bob.request(SERVICE, n)) for n in range(5)]
            assert [await begun.get(), await begun.get()] == [0, 1]
            closing = asyncio.create_task(alice.close())
            while not alice._services._retired:
                await asyncio.sleep(0.001)
            with pytest.raises(Unreachable):
                await bob.request(SERVICE, 9)
            gate.set()
            assert await asyncio.gather(*asking) == list(range(5))
            await closing

    run(test())


def test_an_idempotent_request_survives_its_provider(run, dial):  # H18
    async def test():
        begun: asyncio.Queue[Any] = asyncio.Queue()

        async def never(data: Any) -> None:
            begun.put_nowait(data)
            await asyncio.Event().wait()

        async with serving() as service, dial(service, "b") as bob, dial(service, "c") as carol:
            alice = await dial(service, "a", options={"close_timeout_s": 0.01})
            await alice.provide(SERVICE, never)
            safe = asyncio.create_task(bob.request(SERVICE, 1, idempotent=True))
            unsafe = asyncio.create_task(bob.request(SERVICE, 2))
            assert [await begun.get(), await begun.get()] == [1, 2]
            await carol.provide(SERVICE, lambda data: ["carol", data])
            service.session(alice).sink.abort()
            assert await safe == ["carol", 1]
            with pytest.raises(Unreachable) as caught:
                await unsafe
            assert caught.value.outcome_unknown
            await alice.close()

    run(test())
