"""Three nodes of a cluster, each a process of its own, to be killed, stopped and started again."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from threading import Thread
from traceback import format_stack
from typing import Any

import uvloop

from chappe.client import Client, ClientOptions, connect
from tests.servers import free_port

from .process import Api, NodeProcess

HEARTBEAT_S = 1.0
SILENCE_S = 3 * HEARTBEAT_S
LEASE_S = 3.0
# Whoever is to come back within it does so on a busy machine, too.
GRACE_S = 2.0
ANSWER_S = 2.0
# Who is on a node is written down behind, twice a second: several times that.
WRITTEN_S = 2.0
# Longer than anything here takes on a busy machine.
PATIENCE_S = 40.0
# What a story that is over leaves behind is cleared away in that time.
CLOSE_S = 40.0
CONFIG = f"""
registry = "{{registry}}"
name = "{{name}}"
drain_s = 0.5
[leases]
lease_s = {LEASE_S}
poll_s = 1.0
timeout_s = 1.0
[cluster]
port = 0
secret = "{{secret}}"
[cluster.link]
heartbeat_s = {HEARTBEAT_S}
backoff_max_s = 0.5
[traffic]
answer_timeout_s = {ANSWER_S}
[presence]
grace_s = {GRACE_S}
takeover_s = {SILENCE_S + 2}
"""
# Whoever leaves says so for two beats of rooms, also where nobody is in one.
ROOMS_UNUSED = "\n[rooms]\nbeat_s = 0.25\n"
# Comes back at once; a request may take as long as a node that is stopped is not missed.
OPTIONS = ClientOptions(backoff_first_s=0.05, backoff_max_s=0.5, request_timeout_s=20.0)


class ClusterNode(NodeProcess):
    """A node that is found at its ports again after a death."""

    def start(self) -> None:
        for flag in ("--port", "--http-port", "--tcp-port", "--comet-port"):
            at = self._command.index(flag) + 1
            if self._command[at] == "0":
                self._command[at] = str(free_port())
        super().start()

    @property
    def url(self) -> str:
        return self.addresses["websocket"]

    def hold(self) -> None:
        """Let it sleep: its connections stay, and nothing answers."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Wake it."""
        self.signal(signal.SIGCONT)


def start_together(start: Callable[[str], ClusterNode], names: Sequence[str]) -> list[ClusterNode]:
    """Start nodes at the same time; when one does not start, or time is over, none is left."""
    started: list[ClusterNode] = []

    def note(name: str) -> ClusterNode:
        node = start(name)
        started.append(node)
        return node

    with ExitStack() as failed:
        failed.callback(lambda: [node.kill() for node in started])
        # Whoever waits for a start waits no longer than a start may take.
        with ThreadPoolExecutor(len(names)) as pool:
            nodes = list(pool.map(note, names))
        failed.pop_all()
    return nodes


class Trio:
    """Three nodes that know each other by a registry."""

    def __init__(self, folder: Path, registry: str, config: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        secret = folder / "secret"
        secret.write_text("a secret that only these three nodes know\n")

        def start(name: str) -> ClusterNode:
            options = CONFIG.format(registry=registry, name=name, secret=secret)
            return ClusterNode(folder / name, options + config + ROOMS_UNUSED)

        self.nodes = start_together(start, ("n0", "n1", "n2"))

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    def start(self) -> None:
        """Start all that were killed, together."""
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(ClusterNode.start, self.nodes))

    def stop(self) -> None:
        """Drain all that run, and see that they end well."""
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(ClusterNode.stop, self.nodes))

    def links(self) -> dict[tuple[str, str], float]:
        """Which node has a link to which, and for how many seconds, as an administrator sees it."""
        with closing(Api(self.nodes[0])) as api:
            status, body = api.request("GET", "/v1/nodes?as=user:admin")
        assert status == 200, body
        nodes = json.loads(body)["nodes"]
        return {
            (node["name"], link["peer"]): link["up_s"] for node in nodes for link in node["links"]
        }

    async def client(self, at: int, name: str, *more: int, **kinds: Any) -> Client:
        """Connect a user to a node; one that knows more nodes goes there when this one is gone."""
        url = self.nodes[at].url
        urls = [url, *(self.nodes[other].url for other in more)]
        first = First() if more else None
        return await connect(urls, as_=f"user:{name}", options=OPTIONS, rng=first, **kinds)


class First(Random):
    """Chance that begins with the first of several nodes."""

    def randrange(self, *args: Any) -> int:
        return 0


def story(told: Callable[..., Coroutine[Any, Any, None]], *args: Any, limit_s: float = 100) -> None:
    """Run an async story within the time that a test has.

    In a thread of its own: uvloop swallows what the handler of a signal raises, so no time limit
    of pytest would end a loop that hangs, not even while it is closed after a story has failed.
    """
    found: list[asyncio.Task[None]] = []

    async def bounded() -> None:
        async with asyncio.timeout(limit_s):
            await told(*args)

    async def noted() -> None:
        found.append(asyncio.create_task(bounded()))
        await asyncio.wait(found)

    thread = Thread(target=uvloop.run, args=(noted(),), name="story", daemon=True)
    thread.start()
    thread.join(limit_s + CLOSE_S)
    frame = sys._current_frames().get(thread.ident or 0) if thread.is_alive() else None
    if found and found[0].done():
        found[0].result()
    assert frame is None, f"the story's loop does not end:\n{''.join(format_stack(frame))}"


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str) -> float:
    """Look until it is so; return how long it took. What other processes do is no event."""
    began = time.monotonic()
    while time.monotonic() < began + PATIENCE_S:
        found = condition()
        if found if isinstance(found, bool) else await found:
            return time.monotonic() - began
        await asyncio.sleep(0.02)
    raise AssertionError(f"it never came to it that {what}")
