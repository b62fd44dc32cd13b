"""Rooms over many machines: each role a process of its own, on a machine of its own."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from chappe.client import ClientOptions, connect
from tests.processes import END_S
from tests.servers import RedisServer, ZooKeeperServer

from .figures import FULL
from .namespaces import Machine, Segment, datagrams_overrun
from .process import COMMAND, Api
from .tokens import App
from .trio import ClusterNode, First, story, until

BEAT_S = 0.5
# Somebody who is silent is passed over within two beats; a busy machine may be late by so much.
SLACK_S = 1.0
TAKEOVER_S = 2 * BEAT_S + SLACK_S
LEASE_S = 3.0
JOIN_S = 8.0
# What a story may take.
LIMIT_S = 2400.0 if FULL else 100.0
CONFIG = f"""
registry = "{{registry}}"
store = "{{store}}"
name = "{{name}}"
host = "{{host}}"
allow_plaintext = true
drain_s = 0.5
[leases]
lease_s = {LEASE_S}
poll_s = 1.0
timeout_s = 1.0
[cluster]
host = "{{host}}"
secret = "{{secret}}"
allow_plaintext = true
[cluster.link]
backoff_max_s = 0.5
[rooms]
beat_s = {BEAT_S}
join_timeout_s = {JOIN_S}
{{rooms}}
[events]
enabled = false
"""
OPTIONS = ClientOptions(backoff_first_s=0.05, backoff_max_s=0.3, request_timeout_s=20.0)
EVERYWHERE = "0.0.0.0"
NOTHING: Mapping[str, str] = {}


class RoleNode(ClusterNode):
    """`chappe serve --roles ...` on a machine of its own, found at its ports again."""

    def __init__(self, machine: Machine, folder: Path, config: str, roles: str) -> None:
        self.machine = machine
        self.roles = roles
        super().__init__(folder, config, dev=False)

    def start(self) -> None:
        if "--roles" not in self._command:
            self._command += ["--roles", self.roles]
        with self.machine.inside():
            super().start()

    def metric(self, name: str, **labels: str) -> float:
        """One sample of what it has counted."""
        with self.machine.inside(), closing(Api(self)) as api:
            return api.metric(name, **labels)


class OutsideRedis(RedisServer):
    """A Redis that other machines reach."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.machine = machine
        super().__init__(folder, {"bind": EVERYWHERE, "protected-mode": "no"})

    @property
    def url(self) -> str:
        return f"redis://{self.machine.address}:{self.port}"


class OutsideZooKeeper(ZooKeeperServer):
    """A ZooKeeper that other machines reach."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.machine = machine
        super().__init__(folder)

    def command(self) -> list[str]:
        command = super().command()
        config = self.folder / "zoo.cfg"
        config.write_text(config.read_text().replace("=127.0.0.1\n", f"={EVERYWHERE}\n"))
        return command

    @property
    def url(self) -> str:
        return f"zookeeper://{self.machine.address}:{self.port}/chappe"


Registry = type[OutsideRedis] | type[OutsideZooKeeper]


class RoomsLayout:
    """Nodes by name; their registry and store, and their clients, are on a machine `outside`."""

    def __init__(
        self,
        folder: Path,
        registry: Registry,
        roles: Mapping[str, str],
        rooms: Mapping[str, str] = NOTHING,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._closing = ExitStack()
        self.nodes: dict[str, RoleNode] = {}
        with ExitStack() as failed:
            failed.callback(self._closing.close)
            self.segment = Segment()
            self._closing.callback(self.segment.close)
            self.outside = self.segment.machine()
            with self.outside.inside():
                self.registry = registry(folder / "registry", self.outside)
                self._closing.callback(self.registry.kill)
                self.store = OutsideRedis(folder / "store", self.outside)
                self._closing.callback(self.store.kill)
            self.app = App(folder, "chat")
            self._secret = folder / "secret"
            self._secret.write_text("a secret that only these machines know\n")
            self.start(roles, rooms)
            failed.pop_all()

    def start(self, roles: Mapping[str, str], rooms: Mapping[str, str] = NOTHING) -> None:
        """Start nodes of these roles, together; some have more to say about rooms."""
        machines = {name: self.segment.machine() for name in roles}

        def begin(name: str) -> None:
            config = self._config(name, machines[name], rooms.get(name, ""))
            node = RoleNode(machines[name], self._folder / name, config, roles[name])
            self.nodes[name] = node
            self._closing.callback(node.kill)

        with ThreadPoolExecutor(len(roles)) as pool:
            list(pool.map(begin, roles))

    def _config(self, name: str, machine: Machine, rooms: str) -> str:
        """The options of a node."""
        config = CONFIG.format(
            registry=self.registry.url,
            store=self.store.url,
            name=name,
            host=machine.address,
            secret=self._secret,
            rooms=rooms,
        )
        return config + self.app.config()

    def stop(self) -> None:
        """Drain all that run, and see that they end well."""
        with self._closing:
            self.segment.lose(0)
            with ThreadPoolExecutor(len(self.nodes)) as pool:
                list(pool.map(RoleNode.stop, self.nodes.values()))

    def those(self, role: str) -> list[RoleNode]:
        """All nodes of a role."""
        found = [name for name, node in self.nodes.items() if role in node.roles.split(",")]
        return [self.nodes[name] for name in sorted(found)]

    def client(self, name: str, at: int, *others: int) -> Any:
        """Somebody at a gateway; one that knows others goes there when this one is gone."""
        gateways = self.those("gateway")
        urls = [gateways[each].url for each in (at, *others)]
        scopes = {"publish": ["room:*"], "subscribe": ["room:*"]}
        token = self.app.forge(sub=f"user:{name}", exp=int(time.time() + LIMIT_S), **scopes)
        return connect(urls, token=token, options=OPTIONS, rng=First())

    def status(self, at: int = 0) -> dict[str, Any]:
        """How rooms do, as a gateway sees it and `chappe rooms status` shows it."""
        token = self._folder / "admin.token"
        token.write_text(self.app.forge(sub="user:admin", admin=["*"], publish=["*"]))
        http = self.those("gateway")[at].addresses["http"]
        found: dict[str, Any] = self.rooms(
            "status", "--http", http, "--token-file", str(token), "--json"
        )
        return found

    def rooms(self, *words: str) -> Any:
        """Run a command of `chappe rooms` outside, and what it says, as JSON."""
        with self.outside.inside():
            done = subprocess.run(
                [COMMAND, "rooms", *words],
                capture_output=True,
                text=True,
                timeout=4 * END_S,
                check=False,
            )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    def double(self) -> dict[str, Any]:
        """Have twice as many partitions."""
        found: dict[str, Any] = self.rooms(
            "double", "--registry", self.registry.url, "--yes", "--json"
        )
        return found

    def overrun(self) -> int:
        """Datagrams that came faster than processes took them: the kernels let them go."""
        return sum(map(datagrams_overrun, self.segment.machines))

    def partitions(self) -> int:
        """How many there are, as a proxy knows."""
        return int(self.those("proxy")[0].metric("rooms_partition_num"))

    async def whole(self) -> None:
        """Wait until every proxy can serve every partition."""

        def served() -> bool:
            proxies = self.those("proxy")
            numbers = {each.metric("rooms_served", role="proxy", partition="") for each in proxies}
            return numbers == {self.partitions()}

        await until(served, "every partition is served")


def told(layout: Any, tale: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    """Tell a story with the clients on the machine outside."""
    with layout.outside.inside():
        story(tale, layout, *args, limit_s=LIMIT_S)
