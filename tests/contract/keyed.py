"""Servers of sessions with keys: our own edge, and those of others with the hub mounted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import granian.server.embed
import uvicorn
from granian.constants import Interfaces
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from chappe import Hub
from tests.servers import free_port

EDGES = ("own", "uvicorn", "granian")
WAIT_S = 20.0


@asynccontextmanager
async def served(hub: Hub, edge: str, app: Any = None) -> AsyncIterator[str]:
    """Serve a hub, or an application that it is mounted in; where."""
    if edge == "own":
        async with hub:
            yield f"ws://127.0.0.1:{await hub.listen(0)}"
        return
    serve = {"uvicorn": _uvicorn, "granian": _granian}[edge]
    async with serve(app or hub.asgi()) as port:
        yield f"ws://127.0.0.1:{port}"


@asynccontextmanager
async def _uvicorn(app: Any) -> AsyncIterator[int]:
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="on")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started or task.done())
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, WAIT_S)


@asynccontextmanager
async def _granian(app: Any) -> AsyncIterator[int]:
    port = free_port()
    server = granian.server.embed.Server(
        app, address="127.0.0.1", port=port, interface=Interfaces.ASGI, log_enabled=False
    )
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: _answers(port))
        yield port
    finally:
        server.stop()
        await asyncio.wait_for(task, WAIT_S)


async def _answers(port: int) -> bool:
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False


async def until(true: Callable[[], bool | Awaitable[bool]], within_s: float = WAIT_S) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(within_s):
        while True:
            found = true()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


class Talker:
    """A client that speaks JSON."""

    def __init__(self, ws: ClientConnection) -> None:
        self.ws = ws

    async def say(self, type: str = "", key: str = "", data: Any = None) -> None:
        """Say a text of the keyed form."""
        await self.ws.send(json.dumps({"type": type, "key": key, "data": data}))

    async def hear(self) -> tuple[str, str, Any]:
        """The next text: its type, key and data."""
        async with asyncio.timeout(WAIT_S):
            text = await self.ws.recv()
        assert isinstance(text, str), text
        found = json.loads(text)
        assert list(found) == ["type", "key", "data"]
        return found["type"], found["key"], found["data"]

    async def end(self) -> tuple[int, str]:
        """Wait for the end: its code and reason."""
        async with asyncio.timeout(WAIT_S):
            with suppress(ConnectionClosed):
                while True:
                    await self.ws.recv()
        assert self.ws.close_code is not None
        return self.ws.close_code, self.ws.close_reason or ""


@asynccontextmanager
async def talking(url: str, **options: Any) -> AsyncIterator[Talker]:
    """Connect, and hang up in the end."""
    # What is compressed does not fill anything up.
    async with connect(url, proxy=None, compression=None, **options) as ws:
        yield Talker(ws)
