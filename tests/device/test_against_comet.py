"""The device against the real comet, over real sockets: what one says, the other means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest

from chappe.device import Device, DeviceOptions, Grant, Note, Replaced
from chappe.edge.device.connection import DevicePort
from chappe.push.comet.comet import Comet
from chappe.wire.pushlink import Close, Why, Withdraw
from tests.loop import on_loop
from tests.push.comet.rig import APP, IDENTITY, Rig

FAST = DeviceOptions(backoff_first_s=0.01, backoff_max_s=0.05, request_timeout_s=5)


@asynccontextmanager
async def port_of(comet: Comet):
    server = await asyncio.get_running_loop().create_server(DevicePort(comet), "127.0.0.1", 0)
    try:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def device_for(rig: Rig, comet: str, client: tuple[str, str], **more: object) -> Device:
    async def give() -> Grant:
        return Grant(
            client=client[0],
            token=client[1],
            comet=comet,
            identity=IDENTITY.public,
            expires_ms=rig.clock.wall_ms() + 7 * 86_400_000,
        )

    settings = {"app": APP, "device": "d", "grants": give, "options": FAST, "clock": rig.clock}
    return Device(**(settings | more))  # type: ignore[arg-type]


async def until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.005)


async def drained(rig: Rig, client: str) -> None:
    while await rig.waiting(client):
        await rig.rest()
        await asyncio.sleep(0.005)


@on_loop
async def test_notes_that_wait_and_that_come_arrive_and_are_settled():  # P3, P7
    rig = Rig(1)
    client = await rig.client()
    first, second = rig.note(b"one"), rig.note(b"two" * 19_000)
    await rig.send(first, client[0])
    async with port_of(rig.comets[0]) as address, device_for(rig, address, client) as device:
        got = await anext(device)
        assert got == Note(first.id, first.job, 1, first.ts_ms, b"one")
        await rig.send(second, client[0])
        assert (await anext(device)).content == b"two" * 19_000
        await drained(rig, client[0])
        for n in range(600):
            await rig.send(rig.note(b"%d" % n), client[0])
        assert [(await anext(device)).content for _ in range(600)] == [
            b"%d" % n for n in range(600)
        ]
        await drained(rig, client[0])


@on_loop
async def test_topics_are_kept_by_the_comet():
    rig = Rig(1)
    client = await rig.client()
    async with port_of(rig.comets[0]) as address, device_for(rig, address, client) as device:
        await device.subscribe("news", "weather")
        assert sorted(await device.topics()) == ["news", "weather"]
        note = await rig.publish("news")
        assert (await anext(device)).id == note.id
        await device.unsubscribe("news")
        assert await device.topics() == ("weather",)


@on_loop
async def test_a_second_login_replaces_the_first():  # P3, P15
    rig = Rig(1)
    client = await rig.client()
    async with port_of(rig.comets[0]) as address, device_for(rig, address, client) as device:
        await device.wait_connected()
        async with device_for(rig, address, client) as other:
            await other.wait_connected()
            assert [each async for each in device] == []
            assert isinstance(device.ended, Replaced)
            await rig.send(rig.note(), client[0])
            assert (await anext(other)).content == b"hello"


@on_loop
async def test_a_note_is_taken_back():
    rig = Rig(1)
    client = await rig.client()
    async with port_of(rig.comets[0]) as address, device_for(rig, address, client) as device:
        await device.wait_connected()
        await device.topics()
        unseen, seen = rig.note(b"unseen"), rig.note(b"seen")
        await rig.send(unseen, client[0])
        await rig.rest()
        rig.comets[0].withdraw(Withdraw(APP, unseen.id, [client[0]]))
        await device.topics()
        await rig.send(seen, client[0])
        assert (await anext(device)).content == b"seen"


@pytest.mark.parametrize("why", [Why.REVOKED, Why.REMOVED])
@on_loop
async def test_one_that_is_sent_away_asks_for_another_token(why):
    rig = Rig(1)
    clients = [await rig.client(), await rig.client()]
    async with port_of(rig.comets[0]) as address:
        given: list[str] = []

        async def give() -> Grant:
            client, token = clients[len(given)]
            given.append(client)
            return Grant(
                client=client,
                token=token,
                comet=address,
                identity=IDENTITY.public,
                expires_ms=rig.clock.wall_ms() + 7 * 86_400_000,
            )

        async with device_for(rig, address, clients[0], grants=give) as device:
            await device.wait_connected()
            rig.comets[0].close(Close(clients[0][0], why, 2**62))
            await until(lambda: len(given) == 2)
            await device.wait_connected()
            await rig.send(rig.note(), clients[1][0])
            assert (await anext(device)).content == b"hello"


@on_loop
async def test_what_was_not_acknowledged_comes_on_the_next_connection_and_is_shown_once(tmp_path):
    rig = Rig(1)
    client = await rig.client()
    note = rig.note()
    async with port_of(rig.comets[0]) as address:
        async with device_for(rig, address, client, cache=tmp_path / "c") as device:
            await rig.send(note, client[0])
            assert (await anext(device)).id == note.id
        await drained(rig, client[0])
        # As if the acknowledgement had been lost with the store.
        await rig.states.message.add(note, [client[0]], 1000)
        async with device_for(rig, address, client, cache=tmp_path / "c") as device:
            await device.wait_connected()
            other = rig.note(b"other")
            await rig.send(other, client[0])
            assert (await anext(device)).content == b"other"
            await drained(rig, client[0])
