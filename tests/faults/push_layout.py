"""Push over several processes: each role one of its own, with one Redis for all they share."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from chappe.push.signing import sign
from tests.servers import RedisServer

from .figures import FULL
from .process import Api, NodeProcess
from .trio import ClusterNode, until

LEASE_S = 3.0
# What a story may take.
LIMIT_S = 2400.0 if FULL else 240.0
CONFIG = f"""
registry = "{{redis}}"
store = "{{redis}}"
name = "{{name}}"
drain_s = 2.0
[leases]
lease_s = {LEASE_S}
poll_s = 1.0
timeout_s = 1.0
[cluster]
port = 0
secret = "{{secret}}"
[cluster.link]
heartbeat_s = 1.0
backoff_max_s = 0.5
[events]
enabled = false
"""
ROLES: Mapping[str, str] = {"c1": "comet", "c2": "comet", "w1": "web", "a1": "admin"}
NOTHING: Mapping[str, str] = {}


class Answer(NamedTuple):
    """What HTTP said."""

    status: int
    body: dict[str, Any]


class PushProcess(ClusterNode):
    """`chappe serve` with roles of push, found at its ports again after a death."""

    def __init__(self, folder: Path, config: str, *flags: str, dev: bool = True) -> None:
        self._flags = flags
        super().__init__(folder, config, dev=dev)

    def start(self) -> None:
        self._command += self._flags
        self._flags = ()
        super().start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] = NOTHING,
        timeout_s: float = 30,
    ) -> Answer:
        """Make one request."""
        raw = None if body is None else body if isinstance(body, bytes) else encode(body)
        with closing(Api(self, timeout_s)) as api:
            status, said = api.request(method, path, raw, headers)
        return Answer(status, json.loads(said))


def encode(body: object) -> bytes:
    return json.dumps(body).encode()


class AppKey(NamedTuple):
    """What an app's server signs with."""

    key: str
    secret: str

    def headers(
        self, method: str, target: str, body: bytes, off_ms: int = 0, nonce: str = ""
    ) -> dict[str, str]:
        """The headers of a signed request, by a clock that may be off."""
        time_ms = int(time.time() * 1000) + off_ms
        nonce = nonce or secrets.token_hex(8)
        return sign(self.key, self.secret, method, target, body, time_ms=time_ms, nonce=nonce)

    def post(self, node: PushProcess, path: str, **fields: object) -> Answer:
        """Make a signed request."""
        body = encode(fields)
        return node.ask("POST", path, body, self.headers("POST", path, body))


def make_app(node: PushProcess, name: str, *, open: bool = True) -> AppKey:
    """Make an app, as an administrator does."""
    status, made = node.ask(
        "POST", "/v1/push/apps", {"name": name, "open": open, "as": "user:admin"}
    )
    assert status == 200, made
    return AppKey(made["key"], made["secret"])


class PushLayout:
    """Processes by name, and the Redis that is their registry and their states."""

    def __init__(
        self, folder: Path, roles: Mapping[str, str] = ROLES, more: str = "", **own: str
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._more = more
        self._own = own
        self._closing = ExitStack()
        self.nodes: dict[str, PushProcess] = {}
        with ExitStack() as failed:
            failed.callback(self._closing.close)
            self.redis = RedisServer(folder / "redis")
            self._closing.callback(self.redis.kill)
            self.secret = folder / "secret"
            self.secret.write_text("a secret that only these processes know\n")
            self.start(roles)
            failed.pop_all()

    def config(self, name: str) -> str:
        """The options of a process."""
        told = CONFIG.format(redis=self.redis.url, name=name, secret=self.secret)
        return told + self._more + self._own.get(name, "")

    def start(self, roles: Mapping[str, str]) -> None:
        """Start processes of these roles, together."""

        def begin(name: str) -> None:
            node = PushProcess(self._folder / name, self.config(name), "--roles", roles[name])
            self.nodes[name] = node
            self._closing.callback(node.kill)

        with ThreadPoolExecutor(len(roles)) as pool:
            list(pool.map(begin, roles))

    def stop(self) -> None:
        """Drain all that run, and see that they end well."""
        with self._closing, ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(NodeProcess.stop, self.nodes.values()))

    def __getitem__(self, name: str) -> PushProcess:
        return self.nodes[name]

    def comets(self) -> list[PushProcess]:
        return [self.nodes[name] for name in sorted(self.nodes) if "comet" in self[name].addresses]

    async def whole(self, app: AppKey, web: str = "w1") -> None:
        """Wait until the web knows every comet: of many devices, each gets some."""
        wanted = {comet.addresses["comet"] for comet in self.comets()}

        def known() -> bool:
            asked = [
                self[web].ask("POST", "/v1/push/devices", {"app": app.key, "device": f"x{n}"})
                for n in range(8)
            ]
            return {body.get("comet") for _, body in asked} >= wanted

        await until(known, "the web gives out every comet")
