"""What sessions in a web application are sent: in order, once, whatever the server does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import chappe
from chappe.hub.options import HubOptions
from tests.loop import on_loop

COUNT = 40
EXPECTED = [b"%d" % number for number in range(COUNT)]


class FakeServer:
    """A server by hand: takes what it is sent at once, or when it is open again."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.took: list[str | bytes] = []
        self.senders: set[asyncio.Task[Any] | None] = set()
        self.open = asyncio.Event()
        self.open.set()
        self.gone = False

    async def send(self, event: Any) -> None:
        if event["type"] == "websocket.send":
            self.senders.add(asyncio.current_task())
            await self.open.wait()
            if self.gone:
                raise OSError("it has gone")
            self.took.append(event["text"] if "text" in event else event["bytes"])


@contextlib.asynccontextmanager
async def a_session(
    options: HubOptions | None = None,
) -> AsyncIterator[tuple[chappe.Hub, FakeServer]]:
    hub, server, joined = chappe.Hub(options=options), FakeServer(), asyncio.Event()

    @hub.on_connect
    async def connected(session: Any) -> None:
        await hub.subscribe(session, "news")
        joined.set()

    server.said.put_nowait({"type": "websocket.connect"})
    scope = {"type": "websocket", "path": "/", "headers": [], "client": ("127.0.0.1", 1)}
    async with hub:
        serving = asyncio.create_task(hub.asgi()(scope, server.said.get, server.send))  # type: ignore[arg-type]
        await asyncio.wait_for(joined.wait(), 5)
        await asyncio.sleep(0.01)
        yield hub, server
        server.open.set()
        server.said.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(serving, 5)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


@on_loop
async def test_what_a_server_takes_at_once_is_sent_as_if_by_the_sessions_task() -> None:
    async with a_session() as (hub, server):
        for data in EXPECTED:
            await hub.send("key:news", data)
            await asyncio.sleep(0)
        await until(lambda: len(server.took) == COUNT)
        assert server.took == EXPECTED
        assert len(server.senders) == 1
        assert None not in server.senders


@on_loop
async def test_text_and_bytes_of_one_tick_keep_their_order() -> None:
    async with a_session() as (hub, server):
        await asyncio.gather(*(hub.send("key:news", data) for data in ("é", b"\xff", "b")))
        await until(lambda: len(server.took) == 3)
        assert server.took == [
            '{"type":"message","key":"news","data":"é"}',
            b"\xff",
            '{"type":"message","key":"news","data":"b"}',
        ]


@on_loop
async def test_a_server_that_waits_now_and_then_gets_all_in_order_and_once() -> None:
    async with a_session() as (hub, server):
        for number, data in enumerate(EXPECTED):
            if number % 7 == 3:
                server.open.clear()
            await hub.send("key:news", data)
            if number % 2:
                await asyncio.sleep(0.001)
            if number % 7 == 6:
                server.open.set()
        server.open.set()
        await until(lambda: len(server.took) >= COUNT)
        await asyncio.sleep(0.01)
        assert server.took == EXPECTED


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a while"])
@on_loop
async def test_a_server_that_says_that_it_has_gone_ends_the_session(waits: bool) -> None:
    async with a_session() as (hub, server):
        server.gone = True
        if waits:
            server.open.clear()
        assert await hub.send("key:news", b"1") == 1
        await asyncio.sleep(0.01)
        server.open.set()
        await until(lambda: hub.counts()["sessions"] == 0)
        assert await hub.send("key:news", b"2") == 0


@on_loop
async def test_a_server_that_takes_nothing_is_not_waited_for_without_bound() -> None:
    async with a_session(HubOptions(outbox_bytes_max=300_000)) as (hub, server):
        server.open.clear()
        taken = 0
        while await hub.send("key:news", b"x" * 10_000):
            taken += 1
            assert taken < 100
            await asyncio.sleep(0.001)
        assert 30 <= taken <= 50
        assert hub.counts()["sessions"] == 0
