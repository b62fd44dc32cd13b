"""A hub with its HTTP edge on a free port, in the loop that a node uses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import uvloop

from chappe.access.dev import DevAuthenticator
from chappe.access.token import Key, TokenAuthenticator
from chappe.clock import SystemClock
from chappe.edge.acceptor import AcceptCounters, Acceptor
from chappe.edge.http.edge import HttpEdge
from chappe.edge.http.nodes import LinkView
from chappe.edge.http.options import HttpOptions
from chappe.edge.http.queue_administration import QueuesOf, no_queues
from chappe.edge.http.relay import Elsewhere
from chappe.edge.http.rooms_admin import RoomsReport
from chappe.edge.origin import Origins
from chappe.events.counting import CountingRecorder
from chappe.hub.hub import Hub
from chappe.hub.options import HubOptions
from chappe.push.admin.desk import PushDesk
from chappe.wire.limits import Limits
from tests.hubs import make_hub

SECRET = b"a secret of more than thirty-two bytes, for tests"
PAGE = "https://page.example"


class Service:
    """A running edge, and a client of it."""

    def __init__(self, hub: Hub, edge: HttpEdge, port: int, client: httpx.AsyncClient) -> None:
        self.hub = hub
        self.edge = edge
        self.port = port
        self.client = client

    async def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return await self.client.post(path, json=body, **more)

    async def get(self, path: str, **more: Any) -> httpx.Response:
        return await self.client.get(path, **more)

    async def open_poll(self, as_: str, *topics: str) -> str:
        """A session to poll, subscribed."""
        opened = await self.post("/v1/poll", {"as": as_})
        assert opened.status_code == 200, opened.text
        session: str = opened.json()["session"]
        for topic in topics:
            answer = await self.post(f"/v1/poll/{session}/ops", {"op": "subscribe", "to": topic})
            assert answer.json() == {"ok": True}
        return session

    async def poll(self, session: str, **fields: Any) -> dict[str, Any]:
        answer = await self.post("/v1/poll", {"session": session, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()  # type: ignore[no-any-return]

    async def until(self, condition: Callable[[], Any]) -> None:
        """Wait until something that the server does on its own has happened."""
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.001)


def make_link(peer: str) -> LinkView:
    """A link to a node, of which nothing but its name matters."""
    return LinkView(
        peer=peer,
        up_s=1.0,
        round_trip_ms=None,
        clock_offset_ms=None,
        bytes_in=0,
        bytes_out=0,
        waiting_bytes=0,
        pending=0,
    )


Serve = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Start an edge; keywords go to the hub's, the edge's and the wire's options."""
    (tmp_path / "key").write_bytes(SECRET)

    @asynccontextmanager
    async def serving(
        *,
        dev: bool = True,
        hub_options: HubOptions | None = None,
        options: HttpOptions | None = None,
        limits: Limits | None = None,
        node: str = "",
        elsewhere: Elsewhere | None = None,
        queues: QueuesOf = no_queues,
        rooms: RoomsReport | None = None,
        peers: Iterable[str] = (),
        failures: Sequence[str] = (),
        push: PushDesk | None = None,
        tenants: Iterable[str] = (),
    ) -> AsyncIterator[Service]:
        clock, recorder, counters = SystemClock(), CountingRecorder(), AcceptCounters()
        file = str(tmp_path / "key")
        keys = [Key(id="k", file=file), *(Key(id=app, file=file, app=app) for app in tenants)]
        tokens = TokenAuthenticator(keys, clock)
        authenticator = DevAuthenticator(tokens) if dev else tokens
        loop = asyncio.get_running_loop()
        hub = make_hub(
            loop,
            clock,
            authenticator=authenticator,
            recorder=recorder,
            options=hub_options,
            limits=limits,
        )
        hub.node = hub.tag = node
        edge = HttpEdge(
            hub,
            authenticator,
            tokens,
            Origins([PAGE], loopback=dev),
            dev=dev,
            recorder=recorder,
            accept_counters=counters,
            addresses=lambda: {"http": "here"},
            options=options,
            elsewhere=elsewhere,
            queues=queues,
            rooms=lambda: rooms,
            failures=lambda: failures,
            push=lambda: push,
            links=lambda: [make_link(peer) for peer in peers],
        )
        await edge.start()
        hub.start()
        acceptor = Acceptor(loop, edge.protocol, "127.0.0.1", 0, None, counters)
        base = f"http://127.0.0.1:{acceptor.port}"
        async with httpx.AsyncClient(base_url=base, timeout=20) as client:
            try:
                yield Service(hub, edge, acceptor.port, client)
            finally:
                acceptor.close()
                await edge.stop()
                hub.stop()

    return serving


@pytest.fixture
def run() -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """Run a coroutine function to its end on uvloop."""

    def running(main: Callable[[], Awaitable[Any]]) -> Any:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_as_coroutine(main))

    return running


async def _as_coroutine(main: Callable[[], Awaitable[Any]]) -> Any:
    return await main()


@pytest.fixture
def bearer() -> Callable[..., dict[str, str]]:
    """Make the header that carries a token with these claims."""

    def make(sub: str, *, kid: str = "k", **claims: Any) -> dict[str, str]:
        claims = {"app": "default", "aud": "chappe", "exp": time.time() + 600} | claims
        token = jwt.encode({"sub": sub, **claims}, SECRET, "HS256", headers={"kid": kid})
        return {"authorization": f"Bearer {token}"}

    return make
