"""A hub inside somebody's web application: mounts, paths, starts and stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus

from chappe import Hub
from chappe.errors import ConfigError
from tests.contract.keyed import served, talking, until
from tests.loop import on_loop
from tests.servers import RedisServer, free_port


def telling(bus: str | None = None) -> Hub:
    """A hub that tells who connects where that is."""
    hub = Hub(bus)

    @hub.on_connect
    async def tell(session: Any) -> None:
        await session.send(session.path)

    return hub


class Server:
    """What an application sees of a server, without one."""

    def __init__(self, kind: str = "websocket", path: str = "/", **scope: Any) -> None:
        self.scope = {"type": kind, "path": path, "headers": [], "query_string": b"", **scope}
        self.said: list[dict[str, Any]] = []
        self.hears: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.refuses: BaseException | None = None

    async def send(self, event: dict[str, Any]) -> None:
        if self.refuses is not None and event["type"] != "websocket.accept":
            raise self.refuses
        self.said.append(event)

    async def run(self, app: Any, *events: str) -> None:
        for event in events:
            self.hears.put_nowait({"type": event})
        await app(self.scope, self.hears.get, self.send)

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.said]


@pytest.mark.parametrize("edge", ["uvicorn", "granian"])
@pytest.mark.parametrize("kind", [FastAPI, Starlette])
@on_loop
async def test_a_hub_is_mounted_and_starts_with_the_application(kind: Any, edge: str) -> None:
    hub = telling()
    app = kind(lifespan=hub.lifespan, routes=[Mount("/ws", hub.asgi())])
    async with served(hub, edge, app) as url:
        assert hub.counts() == {"sessions": 0, "keys": 0}
        for path, seen in (("/ws/orders", "/orders"), ("/ws/orders/", "/orders"), ("/ws/", "/")):
            async with talking(url + path) as one:
                assert await one.hear() == ("message", "", seen)
        with pytest.raises(InvalidStatus):
            async with talking(f"{url}/elsewhere"):
                pass
    assert hub.counts() == {}


@pytest.mark.parametrize(
    ("mounted", "path", "root", "more", "seen"),
    [
        ("", "/ws/orders", "/ws", {}, "/orders"),
        # A server that is told of a prefix: the path has it.
        ("", "/api/ws/orders", "/api/ws", {"app_root_path": "/api"}, "/orders"),
        ("/ws", "/api/ws/orders", "/api", {}, "/orders"),
        # An application that is told of a prefix which a proxy took off.
        ("", "/ws/orders", "/api/ws", {"app_root_path": "/api"}, "/orders"),
        ("/ws", "/ws/orders", "/api", {}, "/orders"),
        ("/ws", "/ws", "", {}, "/"),
        ("/ws/", "/ws/", "/", {}, "/"),
    ],
)
@on_loop
async def test_the_path_of_a_session_is_below_where_the_hub_is_mounted(
    mounted: str, path: str, root: str, more: Any, seen: str
) -> None:
    hub, paths = Hub(), []

    @hub.on_connect
    async def tell(session: Any) -> None:
        paths.append(session.path)

    server = Server(path=path, root_path=root, **more)
    async with hub:
        app = hub.asgi(path=mounted)
        await server.run(app, "websocket.connect", "websocket.disconnect")
    assert paths == [seen]


@pytest.mark.parametrize("path", ["/", "/wsx", "/other/ws"])
@on_loop
async def test_what_is_elsewhere_is_for_the_application_behind(path: str) -> None:
    seen = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])

    async with telling() as hub:
        await Server(path=path).run(hub.asgi(inner, path="/ws"))
        alone = Server(path=path)
        await alone.run(hub.asgi(path="/ws"), "websocket.connect")
    assert seen == [path]
    assert alone.types == ["websocket.close"]


@pytest.mark.filterwarnings("ignore:The `root_path` parameter is deprecated")
@on_loop
async def test_an_application_behind_a_proxy_that_takes_a_prefix_off() -> None:
    hub = telling()
    app = FastAPI(lifespan=hub.lifespan, root_path="/api")
    app.mount("/ws", hub.asgi())
    async with served(hub, "uvicorn", app) as url, talking(f"{url}/ws/orders") as one:
        assert await one.hear() == ("message", "", "/orders")


@on_loop
async def test_plain_http_is_told_what_this_is_for() -> None:
    hub = telling()
    async with served(hub, "uvicorn") as url, httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(url.replace("ws:", "http:"))
        assert (answer.status_code, answer.text) == (426, "this is for WebSockets\n")


@on_loop
async def test_the_application_behind_starts_after_the_hub_and_stops_before_it() -> None:
    hub, life = telling(), []

    @asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        life.append(("starts", hub.counts()["sessions"]))
        yield
        life.append(("stops", hub.counts()["sessions"]))

    app = hub.asgi(Starlette(lifespan=lifespan), path="/ws")
    async with served(hub, "uvicorn", app) as url, talking(f"{url}/ws") as one:
        assert await one.hear() == ("message", "", "/")
        assert life == [("starts", 0)]
    assert life == [("starts", 0), ("stops", 0)]
    assert hub.counts() == {}


@on_loop
async def test_an_application_behind_that_cannot_start_is_heard() -> None:
    @asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        raise ZeroDivisionError
        yield

    hub, server = telling(), Server("lifespan")
    with pytest.raises(ZeroDivisionError):
        await server.run(hub.asgi(Starlette(lifespan=lifespan)), "lifespan.startup")
    assert server.types == ["lifespan.startup.failed"]
    assert hub.counts() == {}


@on_loop
async def test_an_application_behind_need_not_know_of_lives() -> None:
    async def inner(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http", "as Django says"

    hub, server = telling(), Server("lifespan")
    running = asyncio.create_task(server.run(hub.asgi(inner), "lifespan.startup"))
    await until(lambda: server.types == ["lifespan.startup.complete"])
    assert hub.counts()["sessions"] == 0
    server.hears.put_nowait({"type": "lifespan.shutdown"})
    await running
    assert server.types[1:] == ["lifespan.shutdown.complete"]
    assert hub.counts() == {}


@on_loop
async def test_a_hub_that_may_not_use_its_bus_does_not_start(redis_server: RedisServer) -> None:
    hub, server = telling(f"redis://nobody:wrong@127.0.0.1:{redis_server.port}"), Server("lifespan")
    with pytest.raises(ConfigError, match="bus: "):
        await server.run(hub.asgi(), "lifespan.startup")
    (told,) = server.said
    assert told["type"] == "lifespan.startup.failed"
    assert "wrong" not in told["message"]
    asked = Server(extensions={"websocket.http.response": {}})
    await asked.run(hub.asgi(), "websocket.connect")
    assert asked.said[0]["status"] == 503
    assert hub.counts() == {}


@on_loop
async def test_without_a_life_told_of_the_hub_starts_with_who_comes_first() -> None:
    hub, seen = telling(), []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append(await asyncio.to_thread(hub.blocking.send, "key:7", "from a view"))

    await Server("http").run(hub.asgi(inner, path="/ws"))
    assert seen == [0]
    await hub.stop()
    again = telling()
    server = Server()
    await server.run(again.asgi(), "websocket.connect", "websocket.disconnect")
    assert server.types[0] == "websocket.accept"
    assert again.counts()["sessions"] == 0
    await again.stop()


@on_loop
async def test_a_hub_that_stopped_takes_nobody_in() -> None:
    hub = telling()
    async with hub:
        pass
    server = Server()
    await server.run(hub.asgi(), "websocket.connect")
    assert server.types == ["websocket.close"]
    assert hub.counts() == {}


@pytest.mark.parametrize(
    ("error", "told"), [(OSError("gone"), 0), (RuntimeError("after close"), 1), (KeyError("b"), 1)]
)
@on_loop
async def test_who_cannot_be_sent_to_is_gone(error: Exception, told: int) -> None:
    hub, server = telling(), Server()
    server.refuses = error
    with capture_logs() as logs:
        async with hub:
            await asyncio.wait_for(server.run(hub.asgi(), "websocket.connect"), 10)
            assert hub.counts() == {"sessions": 0, "keys": 0}
    assert server.types == ["websocket.accept"]
    assert len([entry for entry in logs if entry["event"] == "asgi.send.failed"]) == told


@on_loop
async def test_a_server_that_ends_a_session_by_force_may() -> None:
    hub, server, left = telling(), Server(), []

    @hub.on_disconnect
    async def gone(session: Any) -> None:
        left.append(session.path)

    async with hub:
        running = asyncio.create_task(server.run(hub.asgi(), "websocket.connect"))
        await until(lambda: len(server.said) == 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: left == ["/"])
        assert hub.counts() == {"sessions": 0, "keys": 0}


@on_loop
async def test_a_server_that_never_takes_a_goodbye_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chappe.edge.asgi._GOODBYE_S", 0.1)
    hub, server, stuck = telling(), Server(), asyncio.Event()

    async def send(event: dict[str, Any]) -> None:
        server.said.append(event)
        if event["type"] != "websocket.accept":
            await stuck.wait()

    server.send = send  # type: ignore[method-assign]
    async with hub:
        running = asyncio.create_task(server.run(hub.asgi(), "websocket.connect"))
        await until(lambda: len(server.said) == 2)
        await hub.stop()
        await asyncio.wait_for(running, 10)
    assert server.types == ["websocket.accept", "websocket.send"]
    # It was not cancelled: should the server take it in the end, the goodbye follows.
    stuck.set()
    await until(lambda: server.types[2:] == ["websocket.close"])


@on_loop
async def test_a_port_that_is_taken_is_an_error() -> None:
    port = free_port()
    listener = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", port)
    async with telling() as hub:
        with pytest.raises(ConfigError):
            await hub.listen(port)
    listener.close()
