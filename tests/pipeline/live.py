"""A cluster at work whose nodes are killed, and what those who use it know of it.

Each message and request has a size of its own: by that, and by ids where there are some, what the
clients know is compared with what the nodes recorded.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path

from chappe.access.dev import DEV_APP
from chappe.client import Client, Item, connect
from chappe.cluster.homes import mix, stable_hash
from chappe.errors import ConnectionClosed, RequestError
from tests.faults.trio import CONFIG, OPTIONS, ClusterNode, start_together, until

NAMES = ("n0", "n1", "n2")
# By how much the clock of the second node is ahead of all others.
AHEAD_MS = 7_000
EVENTS = "\n[events]\nenabled = true\nshare = 1.0\nseal_s = 3600\n"
APP = DEV_APP
PAUSE_S = 0.004


def home_of(address: str) -> str:
    """The node that a topic, a service or a queue is made on, with all three there."""
    point = stable_hash(APP, address)
    return max(NAMES, key=lambda name: (mix(point ^ stable_hash(name)), name))


def address_on(node: str, begin: str) -> str:
    """An address that begins so, of what is made on a node."""
    return next(one for n in count() if home_of(one := f"{begin}{n}") == node)


class SkewedNode(ClusterNode):
    """A node whose clock is ahead."""

    def start(self) -> None:
        if self._command[0] != sys.executable:
            self._command[:1] = [sys.executable, "-m", "tests.pipeline.skewed", str(AHEAD_MS)]
        super().start()


class Cluster:
    """Three nodes; the clock of the second is wrong."""

    def __init__(self, folder: Path, registry: str) -> None:
        secret = folder / "secret"
        secret.write_text("a secret that only these three nodes know\n")

        def start(name: str) -> ClusterNode:
            config = CONFIG.format(registry=registry, name=name, secret=secret) + EVENTS
            kind = SkewedNode if name == "n1" else ClusterNode
            return kind(folder / name, config)

        self.nodes = start_together(start, NAMES)

    async def client(self, at: int, name: str) -> Client:
        return await connect([self.nodes[at].url], as_=f"user:{name}", options=OPTIONS)


class Known:
    """What became of what was sent or asked, as far as its client knows."""

    def __init__(self) -> None:
        # By size: the node of its client, and where to.
        self.sent: dict[int, tuple[str, str]] = {}
        # By size, what came of it: an id or an answer, "refused", or "unknown".
        self.outcome: dict[int, str] = {}
        self.ids: dict[int, int] = {}

    def of(self, outcome: str, *, to: str, via: tuple[str, ...] = NAMES) -> set[int]:
        """The sizes of those with an outcome."""
        return {
            size
            for size, found in self.outcome.items()
            if found == outcome and self.sent[size][1] == to and self.sent[size][0] in via
        }


class Load:
    """Everybody talks all the time; until it is told to stop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sizes = count(10)
        self._stack = AsyncExitStack()
        self._senders: list[asyncio.Task[None]] = []
        self._takers: list[asyncio.Task[None]] = []
        self._over = False
        self.queued, self.asked, self.published, self.said = (Known() for _ in range(4))
        # Messages to a room by id, as a member heard them.
        self.heard: list[int] = []
        # Messages of queues by id: that came, that somebody tried to acknowledge, that are done.
        self.came: set[int] = set()
        self.tried: set[int] = set()
        self.done: set[int] = set()

    async def connect(self, at: int, name: str) -> Client:
        return await self._stack.enter_async_context(await self._cluster.client(at, name))

    async def send(self, at: int, client: Client, to: str, known: Known) -> None:
        """Send, publish or ask once, and note what is known of it; raises ConnectionClosed when
        the client was closed before it could."""
        size = next(self._sizes)
        known.sent[size] = (NAMES[at], to)
        # Two more are the quotes of JSON.
        data = "x" * (size - 2)
        try:
            if to.startswith("service:"):
                await client.request(to, data)
            elif to.startswith(("topic:", "room:")):
                known.ids[size] = int((await client.publish(to, data)).message)
            else:
                known.ids[size] = int(await client.send(to, data))
        except RequestError as error:
            known.outcome[size] = "unknown" if error.outcome_unknown else "refused"
        except ConnectionClosed:
            known.outcome[size] = "refused"
            raise
        else:
            known.outcome[size] = "ok"

    def keep_sending(self, at: int, client: Client, to: str, known: Known, tasks: int = 1) -> None:
        """Send to an address from now on, so many at a time."""

        async def loop() -> None:
            with suppress(ConnectionClosed):
                while not self._over:
                    await self.send(at, client, to, known)
                    await asyncio.sleep(PAUSE_S)

        self._senders += [asyncio.create_task(loop()) for _ in range(tasks)]

    def keep_taking(self, client: Client, queue: str) -> None:
        """Take what comes, slower than it is sent for as long as it is sent."""

        async def loop() -> None:
            while True:
                try:
                    async for item in client.consumer(queue, group="g", credit=4):
                        await self._handle(item)
                except RequestError:
                    await asyncio.sleep(0.05)  # its node is gone

        self._takers.append(asyncio.create_task(loop()))

    def keep_reading(self, client: Client) -> None:
        """Read what comes: who does not is not sent all of it."""

        async def loop() -> None:
            async for _ in client:
                pass

        self._takers.append(asyncio.create_task(loop()))

    def keep_hearing(self, client: Client) -> None:
        """Note what comes from a room."""

        async def loop() -> None:
            async for message in client:
                self.heard.append(int(message.id))

        self._takers.append(asyncio.create_task(loop()))

    async def _handle(self, item: Item) -> None:
        self.came.add(item.id)
        # Nothing is sent any more: what is left is done as quickly as it can be.
        await asyncio.sleep(0 if self._over else 2 * PAUSE_S)
        self.tried.add(item.id)
        # With an error, nobody knows.
        with suppress(RequestError):
            if await item.ack():
                self.done.add(item.id)

    async def reaches(self, known: Known, to: str, more: int) -> None:
        """Wait until so many more went well."""
        wanted = len(known.of("ok", to=to)) + more
        await until(lambda: len(known.of("ok", to=to)) >= wanted, f"{more} more to {to} go well")

    async def lasts(self, seconds: float) -> None:
        """Go on for a while."""
        end = time.monotonic() + seconds
        await until(lambda: time.monotonic() >= end, "time passes")

    async def stop(self) -> None:
        """Send no more; what is under way is awaited."""
        self._over = True
        await asyncio.gather(*self._senders)

    async def drained(self, client: Client, queue: str) -> None:
        """Wait until all that a queue has is done; also what nobody was told of."""

        async def empty() -> bool:
            return bool((await client.inspect(queue))["depth"] == 0)

        await until(empty, f"{queue} is empty")

    async def close(self) -> None:
        for task in (*self._senders, *self._takers):
            task.cancel()
        await asyncio.gather(*self._senders, *self._takers, return_exceptions=True)
        await self._stack.aclose()
