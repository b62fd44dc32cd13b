"""Three real nodes that have copies of each other's queues, to be killed, paused and cut off."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from chappe.client import Client, connect
from chappe.errors import Overload
from tests.servers import RedisServer, ZooKeeperServer, free_port

from .process import Api
from .relay import Network
from .trio import CONFIG, LEASE_S, OPTIONS, ROOMS_UNUSED, ClusterNode, start_together, until

NAMES = ("n0", "n1", "n2")
REPLICATION = """
[replication]
replicas = 2
mode = "acknowledged"
promotion = "auto"
timeout_s = 2.0
[journal]
segment_bytes = 262144
batch_bytes_max = 1048576
allocate_bytes = 65536
"""
# Longer than a lease: whoever was paused for so long is master no more.
PAUSE_S = LEASE_S + 3.0


class Replicas:
    """Three nodes, a network between them that can be cut, and a registry behind it."""

    def __init__(
        self,
        folder: Path,
        registry: RedisServer | ZooKeeperServer,
        replication: str = REPLICATION,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.registry = registry
        # The broker whose queue is at work: the node of its name is its master to begin with.
        self.broker = NAMES[0]
        self.network = Network()
        secret = folder / "secret"
        secret.write_text("a secret that only these three nodes know\n")

        def start(name: str) -> ClusterNode:
            port, host = free_port(), f"127.0.1.{NAMES.index(name) + 1}"
            self.network.relay((host, port), ("127.0.0.1", port), name)
            to = self.network.relay(("127.0.0.1", 0), ("127.0.0.1", registry.port))
            url = registry.url.replace(f":{registry.port}", f":{to[1]}")
            options = CONFIG.format(registry=url, name=name, secret=secret)
            options = options.replace("port = 0", f'port = {port}\nadvertise = "{host}"', 1)
            return ClusterNode(folder / name, options + replication + ROOMS_UNUSED)

        with ExitStack() as failed:
            failed.callback(self.network.close)
            self.nodes = start_together(start, NAMES)
            failed.pop_all()
        for name, node in zip(NAMES, self.nodes, strict=True):
            self.network.pid_of[name] = lambda node=node: node._process.pid  # type: ignore[misc]

    def stop(self) -> None:
        """Drain all that run, and see that they end well."""
        with ExitStack() as after:
            after.callback(self.network.close)
            for node in self.nodes:
                after.callback(node.kill)
            # One that was cut off when a test failed would wait for the registry.
            self.network.heal()
            with ThreadPoolExecutor(3) as pool:
                list(pool.map(ClusterNode.stop, self.nodes))

    async def client(self, at: int, name: str) -> Client:
        """Somebody who knows one node only, and stays with it."""
        return await connect(self.nodes[at].url, as_=f"user:{name}", options=OPTIONS)

    async def make(self, admin: Client, queue: str, **options: Any) -> None:
        """Make a queue, as soon as its node leads the journal that it is to be in: one that is held
        up loses its lease for a moment, and says so."""

        async def made() -> bool:
            try:
                await admin.create(queue, **options)
            except Overload:
                return False
            return True

        await until(made, f"{queue} is made")

    async def master(self, *, but: int | None = None) -> int:
        """Which node serves the broker, once there is one."""
        found: list[int] = []

        async def known() -> bool:
            others = [at for at in range(3) if at != but]
            serving = await asyncio.gather(*(asyncio.to_thread(self.serves, at) for at in others))
            found[:] = [at for at, serves in zip(others, serving, strict=True) if serves]
            return len(found) == 1

        await until(known, f"one node is the master of {self.broker}")
        return found[0]

    def serves(self, at: int) -> bool:
        """Whether a node serves the broker now."""
        try:
            with closing(Api(self.nodes[at], timeout_s=5)) as api:
                _, body = api.request("GET", "/metrics")
        except OSError:
            return False
        return f'chappe_journal_failed{{broker="{self.broker}"}}' in body.decode()

    async def in_sync(self) -> None:
        """Wait until every node has all of the log again."""
        await until(lambda: asyncio.to_thread(self._whole), "all copies are in sync again")

    def led(self) -> int:
        """How often a node has become the broker's master."""
        said = re.compile(rf"broker led +broker={self.broker} ")
        return sum(len(said.findall(node.log())) for node in self.nodes)

    def _whole(self) -> bool:
        ends = {self._end(node) for node in self.nodes}
        return len(ends) == 1 and None not in ends

    def _end(self, node: ClusterNode) -> tuple[str, bytes] | None:
        """The last segment of a copy, without room that was taken ahead."""
        logs = sorted((node.data / "journals" / self.broker).glob("*.log"))
        return (logs[-1].name, logs[-1].read_bytes().rstrip(b"\0")) if logs else None

    def damage(self, at: int) -> None:
        """Flip a bit in the middle of what a node, which does not run, has of the last segment."""
        path = max((self.nodes[at].data / "journals" / self.broker).glob("*.log"))
        data = bytearray(path.read_bytes())
        data[len(data.rstrip(b"\0")) // 2] ^= 0x10
        path.write_bytes(data)

    async def kill(self, at: int) -> None:
        self.nodes[at].kill()

    async def start(self, at: int) -> None:
        await asyncio.to_thread(self.nodes[at].start)
