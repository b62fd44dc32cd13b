"""What sessions in a web application are sent: in order, once, whatever the server does."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from websockets.asyncio.client import connect

import chappe
from chappe.edge import asgi
from chappe.edge.uvicorn import frame_transport
from chappe.errors import CloseCode
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


def watched(inner: asgi.Asgi) -> asgi.Asgi:
    """A middleware that looks at what is sent."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def watch(event: Any) -> None:
            await send(event)

        await inner(scope, receive, watch)

    return app


def in_fastapi(hub: chappe.Hub) -> asgi.Asgi:
    app = FastAPI()
    app.mount("/", hub.asgi())
    return app


APPS: dict[str, Callable[[chappe.Hub], asgi.Asgi]] = {
    "bare": lambda hub: hub.asgi(),
    "fastapi": in_fastapi,
    "watched": lambda hub: watched(hub.asgi()),
}


@contextlib.asynccontextmanager
async def served(app: asgi.Asgi) -> AsyncIterator[str]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", lifespan="off", ws="websockets-sansio")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listening]))
    await until(lambda: server.started)
    try:
        yield f"ws://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        await serving


@pytest.mark.parametrize(
    ("app", "compression", "straight"),
    [
        ("bare", None, True),
        ("fastapi", None, True),
        ("watched", None, False),
        ("bare", "deflate", False),
    ],
)
@on_loop
async def test_frames_go_past_uvicorn_where_nobody_else_wants_to_see_them(
    app: str, compression: str | None, straight: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[asyncio.WriteTransport | None] = []

    def look(receive: object, send: object) -> asyncio.WriteTransport | None:
        found.append(frame_transport(receive, send))
        return found[-1]

    monkeypatch.setattr(asgi, "frame_transport", look)
    hub = chappe.Hub()

    @hub.on_connect
    async def connected(session: Any) -> None:
        await hub.subscribe(session, "news")
        await session.send(b"joined")

    async with (
        hub,
        served(APPS[app](hub)) as url,
        connect(url, compression=compression) as client,
    ):
        assert await client.recv() == b"joined"
        assert [way is not None for way in found] == [straight]
        # More than the connection holds, so that it goes straight, waits, and goes on.
        large = [b"%d" % number * 200_000 for number in range(10)]
        for data in [*EXPECTED, *large]:
            assert await hub.send("key:news", data) == 1
        assert [await client.recv() for _ in (*EXPECTED, *large)] == [*EXPECTED, *large]
        await asyncio.gather(*(hub.send("key:news", data) for data in EXPECTED))
        assert [await client.recv() for _ in EXPECTED] == EXPECTED
        await hub.send("key:news", b"last")
        assert await hub.close("key:news", reason="enough") == 1
        assert await client.recv() == b"last"
        await client.wait_closed()
        assert (client.close_code, client.close_reason) == (CloseCode.NORMAL, "enough")
