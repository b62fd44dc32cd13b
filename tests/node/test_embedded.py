"""`chappe.Hub`: a hub inside this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import pytest
from websockets.asyncio.client import connect

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


@on_loop
async def test_what_hooks_say_when_the_hub_stops_does_not_start_it_again() -> None:
    hub, said = chappe.Hub(), []

    @hub.on_connect
    async def come(session: Any) -> None:
        await hub.subscribe(session, "all")

    @hub.on_disconnect
    async def leave(session: Any) -> None:
        said.append(await hub.send("key:all", "somebody left"))

    async with hub, connect(f"ws://127.0.0.1:{await hub.listen(0)}", proxy=None):
        while hub.counts()["keys"] != 1:
            await asyncio.sleep(0.01)
        await hub.stop()
        assert (said, hub.counts()) == ([0], {})
        with pytest.raises(ConnectionClosed):
            await hub.send("key:all", "too late")
        assert hub.counts() == {}
        await hub.start()
        assert await hub.send("key:all", "anew") == 0


@on_loop
async def test_a_hook_that_never_ends_does_not_keep_the_hub_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chappe.keys.serving._LEAVING_S", 0.1)
    hub, stuck = chappe.Hub(), asyncio.Event()

    @hub.on_disconnect
    async def leave(session: Any) -> None:
        await stuck.wait()

    @hub.plaintext("*")
    async def echo(session: Any, text: str) -> None:
        await session.send(text)

    async with hub, connect(f"ws://127.0.0.1:{await hub.listen(0)}", proxy=None) as one:
        await one.send("there")
        await one.recv()
        await asyncio.wait_for(hub.stop(), 10)


@on_loop
async def test_blocking_calls_are_for_other_threads() -> None:
    hub = chappe.Hub()
    with pytest.raises(RuntimeError, match="not been started"):
        hub.blocking.send("key:7", 1)
    async with hub:
        with pytest.raises(RuntimeError, match="own thread"):
            hub.blocking.send("key:7", 1)
        assert await asyncio.to_thread(hub.blocking.send, "key:7", 1) == 0


@pytest.mark.parametrize("name", [None, "web-1"])
def test_parts_of_a_process_that_forked_are_brokers_of_their_own(name: str | None) -> None:
    hub = chappe.Hub(name=name)
    reading, writing = os.pipe()

    async def tell() -> None:
        async with hub:
            os.write(writing, hub.name.encode())

    child = os.fork()
    if not child:
        asyncio.run(tell())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    theirs = os.read(reading, 1000).decode()
    os.close(reading)
    os.close(writing)
    assert (theirs == hub.name) is (name is not None)
