"""A town: three whole nodes in one process, on real sockets, seen through clients."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import jwt

from chappe.access.token import AUDIENCE, Key
from chappe.client import Client, ClientOptions, Message, Notice, connect
from chappe.cluster.cluster import Traffic
from chappe.cluster.options import ClusterOptions, LinkOptions
from chappe.hub.app import App
from chappe.node.node import Node
from chappe.node.options import Access
from chappe.node.parts import Parts
from chappe.registry.memory import MemoryRegistry
from tests.node.running import ROOMS_UNUSED, options_of

APP = "default"
SECRET = b"a secret that only the nodes of this town know"
KEY_SECRET = "a key of thirty-two bytes or more, for tokens"
# Redials at once; beats that a busy machine does not miss.
LINK = LinkOptions(heartbeat_s=2.0, backoff_first_s=0.02, backoff_max_s=0.1)
# Comes back at once when its node goes.
QUICK = ClientOptions(backoff_first_s=0.05, backoff_max_s=0.2)
PATIENCE_S = 10.0
# Long enough for a message that should not come to come all the same.
QUIET_S = 0.05


class Town:
    """Nodes, and whoever is connected to them."""

    def __init__(self, folder: Path, stack: AsyncExitStack, **options: Any) -> None:
        self._folder = folder
        self._stack = stack
        self._options = options
        self._registry = MemoryRegistry()
        self.nodes: list[Node] = []
        # One on each node, to wait for what is under way between them.
        self._watch: list[Client] = []
        self._numbers = count()
        self._key = folder / "tokens.key"
        self._key.write_text(KEY_SECRET)

    async def add(self) -> Node:
        """Start one more node."""
        number = len(self.nodes)
        name = f"n{number}"
        options = options_of(
            self._folder / name,
            name=name,
            cluster=ClusterOptions(port=0, link=LINK),
            access=Access(keys=[Key(id="k", file=str(self._key))]),
            rooms=ROOMS_UNUSED,
            **({"traffic": Traffic(answer_timeout_s=2.0)} | self._options),
        )
        node = Node(options, parts=Parts(registry=self._registry.open(name), secret=SECRET))
        await node.start()
        self._stack.push_async_callback(self.stop, node)
        self.nodes.append(node)
        self._watch.append(await self.client(number, f"watch-{number}"))
        return node

    async def stop(self, node: Node) -> None:
        """Let a node go, with a goodbye, unless it has gone."""
        if not node.hub.draining:
            await node.drain()

    def url(self, at: int, edge: str = "websocket") -> str:
        """Where an edge of a node is."""
        return self.nodes[at].addresses()[edge]

    async def client(
        self,
        at: int,
        name: str,
        *,
        edge: str = "websocket",
        notices: list[Notice] | None = None,
        options: ClientOptions = QUICK,
        **scopes: Sequence[str],
    ) -> Client:
        """Connect a user to a node; with scopes, by a token that grants these and nothing else."""
        kinds: dict[str, Any] = {"as_": f"user:{name}"}
        if not self._options.get("dev", True):
            scopes = scopes or {key: ["*"] for key in ("send", "publish", "subscribe")}
        if scopes:
            kinds = {"token": self.token(f"user:{name}", **scopes)}
        on_notice = notices.append if notices is not None else None
        client = await connect(self.url(at, edge), options=options, on_notice=on_notice, **kinds)
        self._stack.push_async_callback(client.close)
        return client

    def token(self, address: str, **scopes: Sequence[str]) -> str:
        """A token that grants these scopes."""
        claims = {"app": APP, "sub": address, "exp": time.time() + 600, "aud": AUDIENCE}
        return jwt.encode(claims | {k: list(v) for k, v in scopes.items()}, KEY_SECRET, "HS256")

    async def http(self, at: int) -> httpx.AsyncClient:
        """A client of a node's HTTP API."""
        # There is no TLS here: reading the machine's certificates would take longer than the rest.
        client = httpx.AsyncClient(
            base_url=self.url(at, "http"),
            timeout=PATIENCE_S,
            verify=False,
            trust_env=False,
        )
        self._stack.push_async_callback(client.aclose)
        return client

    def app(self, at: int) -> App:
        """The app, as a node holds it."""
        return self.nodes[at].hub.apps[APP]

    def placed(self, kind: str, at: int) -> str:
        """An address that was not used before, and is at home on that node."""
        while True:
            address = f"{kind}:{next(self._numbers)}"
            if self.nodes[at].neighbourhood.cluster.is_home(APP, address):
                return address

    async def settle(self) -> None:
        """Wait until each node has heard what the others said so far: links keep the order."""
        alive = [i for i, node in enumerate(self.nodes) if not node.hub.draining]
        for i in alive:
            others = [f"user:watch-{j}" for j in alive if j != i]
            if others:
                await self._watch[i].send(others, "settle")
        for i in alive:
            for _ in alive[1:]:
                await receive(self._watch[i])


@asynccontextmanager
async def town(folder: Path, nodes: int = 3, **options: Any) -> AsyncIterator[Town]:
    """Start nodes that know each other; all is stopped at the end."""
    thresholds = gc.get_threshold()
    try:
        async with AsyncExitStack() as stack:
            place = Town(folder, stack, **options)
            for _ in range(nodes):
                await place.add()
            await place.settle()
            yield place
    finally:
        # Nodes arrange the collector for themselves alone; here they are guests.
        gc.set_threshold(*thresholds)
        gc.unfreeze()


async def receive(client: Client) -> Message:
    """The next message, if it comes in time."""
    async with asyncio.timeout(PATIENCE_S):
        return await client.receive()


async def data(client: Client, n: int = 1) -> list[Any]:
    """What the next messages say."""
    return [(await receive(client)).data for _ in range(n)]


async def quiet(*clients: Client) -> None:
    """See that nothing more comes."""
    await asyncio.sleep(QUIET_S)
    assert [client.waiting for client in clients] == [0] * len(clients)


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str = "") -> None:
    """Look until it is so: what other nodes find out by themselves is no event here."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = condition()
        if isinstance(found, bool):
            if found:
                return
        elif await found:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what or "it did not become so")
