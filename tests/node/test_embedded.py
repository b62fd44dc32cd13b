"""`chappe.Hub`: a hub inside this process."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import chappe
from chappe.client import ClientOptions
from chappe.errors import BadRequest, ConnectionClosed
from chappe.hub.options import HubOptions
from tests.loop import on_loop


@on_loop
async def test_endpoints_of_one_process_reach_each_other() -> None:  # H2, H3
    async with chappe.Hub() as hub:
        alice, bob = await hub.connect("user:alice"), await hub.connect("user:bob")
        sent = await alice.send("user:bob", {"n": 1})
        message = await bob.receive()
        assert (str(message.id), message.sender, message.data) == (sent, "user:alice", {"n": 1})
        await alice.close()
        assert not await bob.presence("user:alice")
        await bob.close()


@on_loop
async def test_apps_do_not_meet() -> None:
    async with chappe.Hub() as hub:
        red, blue = await hub.connect("user:a", app="red"), await hub.connect("user:a", app="blue")
        await red.send("user:a", "red")
        assert (await red.receive()).data == "red"
        assert blue.waiting == 0
        await red.close()
        await blue.close()


@on_loop
async def test_rooms_are_there_and_those_of_apps_do_not_meet() -> None:
    async with chappe.Hub() as hub:
        alice, bob = await hub.connect("user:alice"), await hub.connect("user:bob")
        other = await hub.connect("user:other", app="other")
        for client in (alice, bob, other):
            await client.join("room:7")
        assert await alice.members("room:7", 5) == (2, ("user:alice", "user:bob"))
        await alice.publish("room:7", 1)
        await alice.publish("room:7", 2, reliable=True)
        assert [(await bob.receive()).data for _ in range(2)] == [1, 2]
        await bob.leave("room:7")
        assert (await bob.presence("room:7"), await other.presence("room:8")) == (True, False)
        await other.publish("room:7", 3)
        assert (await other.receive()).data == 3
        assert (alice.waiting, bob.waiting) == (2, 0)
        for client in (alice, bob, other):
            await client.close()


@on_loop
async def test_a_hello_that_names_nobody_raises() -> None:
    async with chappe.Hub() as hub:
        with pytest.raises(BadRequest):
            await hub.connect("nobody")


@on_loop
async def test_a_hub_that_is_not_running_takes_nobody_and_one_that_stops_ends_its_clients() -> None:
    hub = chappe.Hub()
    with pytest.raises(ConnectionClosed):
        await hub.connect("user:a")
    await hub.start()
    client = await hub.connect("user:a", options=ClientOptions(backoff_first_s=0.001))
    await hub.stop()
    await hub.stop()
    with pytest.raises(ConnectionClosed):
        async with asyncio.timeout(5):
            await client.receive()
    await client.close()


@on_loop
async def test_a_client_that_does_not_read_is_held_to_the_hubs_bounds() -> None:
    options = HubOptions(outbox_bytes_max=200_000)
    async with chappe.Hub(options=options) as hub:
        alice = await hub.connect("user:alice")
        slow = await hub.connect(
            "user:slow", options=ClientOptions(inbox_bytes_pause=1000, inbox_bytes_max=1000)
        )
        accepted = 0
        with contextlib.suppress(chappe.Overload):
            while accepted < 1000:
                await alice.send("user:slow", "x" * 1000)
                accepted += 1
        assert 200 < accepted < 400
        for _ in range(accepted):
            await slow.receive()
        await alice.close()
        await slow.close()
