"""A real hub on real sockets, inside each test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.client import Client, ClientOptions, Connecting, Notice, connect
from chappe.clock import SystemClock
from chappe.edge.acceptor import AcceptCounters, Acceptor
from chappe.edge.origin import Origins
from chappe.edge.tcp import TcpConnection
from chappe.edge.websocket import WebSocketEdge
from chappe.hub.grant import Authenticator
from chappe.hub.options import HubOptions
from chappe.hub.session import Session
from tests.hubs import make_hub
from tests.servers import free_port

QUICK = {"backoff_first_s": 0.01, "backoff_max_s": 0.05}
EDGES = ("websocket-packed", "websocket-text", "tcp")


class Service:
    """A hub with its two streaming edges, as long as a test needs it."""

    def __init__(self, options: HubOptions, authenticator: Authenticator | None) -> None:
        self._options = options
        clock = SystemClock()
        self._clock = clock
        self._authenticator = authenticator or DevAuthenticator(TokenAuthenticator([], clock))
        # Ports that no connection of others is given while nobody serves on them.
        self._ports = [free_port(), free_port()]
        self.start()

    def start(self) -> None:
        """Begin to serve; again on the same ports after `stop`."""
        loop = asyncio.get_running_loop()
        self.hub = make_hub(
            loop, self._clock, authenticator=self._authenticator, options=self._options
        )
        self.hub.start()
        edge = WebSocketEdge(self.hub, Origins([], loopback=True), loop=loop)
        counters = AcceptCounters()
        hub = self.hub
        self._acceptors = [
            Acceptor(loop, edge.protocol, "127.0.0.1", self._ports[0], None, counters),
            Acceptor(loop, lambda: TcpConnection(hub), "127.0.0.1", self._ports[1], None, counters),
        ]
        self._ports = [acceptor.port for acceptor in self._acceptors]

    def stop(self) -> None:
        """Serve no more; connections are closed with `going away`."""
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors = []
        self.hub.stop()

    def url(self, edge: str) -> str:
        """Where an edge listens."""
        if edge == "tcp":
            return f"tcp://127.0.0.1:{self._ports[1]}"
        return f"ws://127.0.0.1:{self._ports[0]}/ws"

    def session(self, client: Client) -> Session:
        """The hub's side of a client's session."""
        return self.hub.sessions[client.session]


class Notices(list[Notice]):
    """What a client told; `wait` for one of a kind."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def __call__(self, notice: Notice) -> None:
        self.append(notice)
        self._more.set()

    async def wait(self, kind: type[Notice]) -> Any:
        """The first notice of a kind, once it has come; it is taken off the list."""
        while True:
            for at, notice in enumerate(self):
                if isinstance(notice, kind):
                    return self.pop(at)
            self._more.clear()
            await self._more.wait()


@contextlib.asynccontextmanager
async def serving(
    options: HubOptions | None = None, authenticator: Authenticator | None = None
) -> AsyncIterator[Service]:
    """Run a hub for a while."""
    service = Service(options or HubOptions(), authenticator)
    try:
        yield service
    finally:
        service.stop()


Dialler = Callable[..., Connecting]


@pytest.fixture(params=EDGES)
def edge(request: pytest.FixtureRequest) -> str:
    """Each way to a hub."""
    return str(request.param)


@pytest.fixture
def dial(edge: str) -> Dialler:
    """Connect to a service as a user, on this edge, with quick reconnects."""

    def to(service: Service, name: str, **named: Any) -> Connecting:
        bounds = {**QUICK, "form": "text" if edge.endswith("text") else "packed"}
        options = ClientOptions(**{**bounds, **named.pop("options", {})})
        return connect(service.url(edge), as_=f"user:{name}", options=options, **named)

    return to


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a test's coroutine on both kinds of loop, and see that it leaves no task behind."""
    start = uvloop.run if request.param == "uvloop" else asyncio.run

    async def watched(test: Awaitable[Any]) -> Any:
        async with asyncio.timeout(30):
            result = await test
        left = asyncio.all_tasks() - {asyncio.current_task()}
        # What the hub's own acceptors and the loop were about to finish.
        if left:
            await asyncio.wait(left, timeout=1)
        assert not {task for task in left if not task.done()}
        return result

    return lambda test: start(watched(test))
