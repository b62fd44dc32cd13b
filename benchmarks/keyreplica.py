"""One replica of a web application that tells sessions something by key, as a process of its own.

    python -m benchmarks.keyreplica    what it is to be as a line of JSON on standard input

It says which port it has. From then on each line on standard input is an `Order`, and it says when
that is done. It ends with its input.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec
import structlog
import uvicorn
import uvloop

import chappe
from chappe.keys.options import KeysOptions
from chappe.keys.session import KeySession

KEY = "news"
PAYLOAD_BYTES = 128
# Beats are not what is counted here.
_INTERVAL_S = 300.0

Shape = Literal["mounted", "own", "fastapi", "watched", "socketio"]
SendTo = Callable[[str, str], Awaitable[Any]]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What it is, and where its Redis is."""

    shape: Shape
    bus: str


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Send so many messages: these numbers, at once by the key, or to keys that nobody has."""

    first: int = 1
    count: int
    # Of keys that nobody has: always the same one, or each time another.
    nobody: Literal["", "same", "other"] = ""
    at_once: int = 1


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """It is carried out: how many messages that were."""

    count: int


@asynccontextmanager
async def opened(spec: Spec) -> AsyncIterator[tuple[int, SendTo]]:
    """A replica that runs: its port, and how to send by a key."""
    if spec.shape == "socketio":
        app, send = _socketio(spec.bus)
        async with _served(app) as port:
            yield port, send
        return
    hub = _hub(spec.bus)

    async def send_by(key: str, data: str) -> int:
        return await hub.send(key, data)

    if spec.shape == "own":
        async with hub:
            yield await hub.listen(0), send_by
    else:
        async with _served(_app(hub, spec.shape)) as port:
            yield port, send_by


def _app(hub: chappe.Hub, shape: Shape) -> Any:
    if shape == "fastapi":
        # It takes long to load.
        from fastapi import FastAPI  # noqa: PLC0415

        app = FastAPI(lifespan=hub.lifespan)
        app.mount("/", hub.asgi())
        return app
    inner = hub.asgi()
    if shape == "mounted":
        return inner

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        async def watch(event: Any) -> None:
            await send(event)

        await inner(scope, receive, watch)

    return watched


def _hub(bus: str) -> chappe.Hub:
    hub = chappe.Hub(bus, keys=KeysOptions(interval_s=_INTERVAL_S))

    @hub.on_connect
    async def joined(session: KeySession) -> None:
        await hub.subscribe(session, KEY)
        await session.send("joined")

    return hub


def _socketio(bus: str) -> tuple[Any, SendTo]:
    # It is a peer, and not what everybody has.
    import socketio  # noqa: PLC0415

    server = socketio.AsyncServer(async_mode="asgi", client_manager=socketio.AsyncRedisManager(bus))

    async def connect(sid: str, environ: dict[str, Any]) -> None:
        await server.enter_room(sid, KEY)

    server.on("connect", connect)

    async def send(key: str, data: str) -> None:
        await server.emit("message", data, room=key)

    return socketio.ASGIApp(server), send


@asynccontextmanager
async def _served(app: Any) -> AsyncIterator[int]:
    """Uvicorn as it comes, without what most do not have: a log of each, and compression."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(app, ws_per_message_deflate=False, log_level="error")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server.serve([listening]))
    while not server.started:
        if serving.done():
            await serving
        await asyncio.sleep(0.01)
    try:
        yield int(listening.getsockname()[1])
    finally:
        server.should_exit = server.force_exit = True
        await serving


async def carry_out(order: Order, send: SendTo) -> Done:
    """Send what is asked for."""
    numbers = range(order.first, order.first + order.count)
    if not order.nobody:
        await asyncio.gather(*(send(KEY, payload(number)) for number in numbers))
        return Done(count=order.count)
    data = payload(0)
    for first in range(0, order.count, order.at_once):
        keys = ["nobody"] * order.at_once
        if order.nobody == "other":
            keys = [f"nobody-{order.first + first + more}" for more in range(order.at_once)]
        if order.at_once == 1:
            await send(keys[0], data)
        else:
            await asyncio.gather(*(send(key, data) for key in keys))
    return Done(count=order.count)


def payload(number: int) -> str:
    """What is sent: the number, and so much that it has its length."""
    return f"{number:08d}".ljust(PAYLOAD_BYTES, "x")


async def main() -> None:
    """Serve until the input ends."""
    # What it answers is on the standard output.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    spec = msgspec.json.decode(await orders.readline(), type=Spec)
    async with opened(spec) as (port, send):
        print(port, flush=True)
        while line := await orders.readline():
            done = await carry_out(msgspec.json.decode(line, type=Order), send)
            print(msgspec.json.encode(done).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
