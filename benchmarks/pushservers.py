"""Servers for push: comets and a desk on one Redis; and as many Mosquittos as there are comets."""

from __future__ import annotations

import json
import secrets
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.server import (
    Server,
    ServerError,
    proportional_bytes,
    start_chappe,
    start_peer,
    start_redis,
    which,
)
from chappe.push.signing import sign

WORKERS = 4
_APP = "benchmark"
# How long links between the processes may take to come up.
_LINKS_S = 20.0


class PushLayout:
    """`chappe serve --roles comet --workers 4`, and a process that is web and admin; their registry
    and states are in one Redis."""

    name = "chappe"

    def __init__(self, chappe: str, workers: int = WORKERS) -> None:
        command = chappe.split(maxsplit=1)[0]
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chappe-push-")))
            secret = folder / "secret"
            secret.write_text(secrets.token_hex(32))
            self.redis = start_redis()
            stack.callback(self.redis.stop)
            self.url = f"redis://127.0.0.1:{self.redis.ports['redis']}"
            shared = (
                f"{command} serve --dev --registry {self.url} --store {self.url} "
                f"--cluster-secret-file {secret} --cluster-port 0"
            )
            self.desk = start_chappe(f"{shared} --roles web,admin --name desk")
            stack.callback(self.desk.stop)
            many = f"--workers {workers} " if workers > 1 else ""
            self.comets = start_chappe(f"{shared} --roles comet {many}--name comet --comet-port 0")
            stack.callback(self.comets.stop)
            self._make_app()
            self._await_links(workers)
            self._stack = stack.pop_all()

    @property
    def port(self) -> int:
        """Where devices connect."""
        return int(self.comets.ports["push"])

    def pids(self) -> list[int]:
        """All processes but Redis."""
        return [*self.comets.pids(), *self.desk.pids()]

    def parts(self) -> Mapping[str, list[int]]:
        """The processes by what they are."""
        supervisor, *workers = self.comets.pids()
        return {
            "comets": workers or [supervisor],
            "supervisor": [supervisor] if workers else [],
            "web and admin": self.desk.pids(),
        }

    def ask(self, path: str, body: Mapping[str, Any], *, signed: bool = True) -> Mapping[str, Any]:
        """Ask the desk; raises ServerError."""
        data = json.dumps(body).encode()
        headers = self.signed(path, data) if signed else {}
        connection = HTTPConnection("127.0.0.1", int(self.desk.ports["http"]), timeout=60)
        try:
            connection.request("POST", path, data, {"content-type": "application/json", **headers})
            response = connection.getresponse()
            answer: Mapping[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if not answer.get("ok"):
            raise ServerError(f"push: {path}: {answer}")
        return answer

    def signed(self, path: str, data: bytes) -> dict[str, str]:
        """What proves that the app's server asks."""
        return sign(
            self.app,
            self._secret,
            "POST",
            path,
            data,
            time_ms=time.time_ns() // 1_000_000,
            nonce=secrets.token_hex(8),
        )

    def broadcast(self, topic: str, content: str) -> None:
        """Send a note to a topic."""
        self.ask("/v1/push/send", {"topic": topic, "data64": content})

    def stop(self) -> None:
        """Stop them all."""
        self._stack.close()

    def _make_app(self) -> None:
        limits = {"sends_per_s": 0.0, "devices_max": 0, "device_notes_per_h": 0}
        made = self.ask(
            "/v1/push/apps", {"name": _APP, "open": True, "limits": limits}, signed=False
        )
        self.app, self._secret = made["key"], made["secret"]

    def _await_links(self, workers: int) -> None:
        """The desk names comets to devices: wait until it knows of one, and give the others as
        long."""
        end = time.monotonic() + _LINKS_S
        while True:
            try:
                asked = {"app": self.app, "device": "first"}
                granted = self.ask("/v1/push/devices", asked, signed=False)
                break
            except ServerError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        self.identity = granted["identity"]
        time.sleep(1.0)
        for server in (self.comets, self.desk):
            server.rest()


class Mosquittos:
    """One for each comet: none may have more connections than a process may have descriptors."""

    name = "mosquitto"

    def __init__(self, count: int = WORKERS, *, tls: bool = False) -> None:
        command = which("mosquitto")
        if command is None:
            raise ServerError("please install mosquitto")
        with ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="mosquitto-push-"))
            )
            self.certificate = _certify(folder) if tls else ""
            self.servers: list[Server] = []
            for _ in range(count):
                self.servers.append(start_peer(self.name, command, self._argv))
                stack.callback(self.servers[-1].stop)
            self._stack = stack.pop_all()

    def _argv(self, command: str, port: int, folder: Path) -> list[str]:
        lines = [
            f"listener {port} 127.0.0.1",
            "allow_anonymous true",
            "max_queued_messages 0",
            "set_tcp_nodelay true",
            "user root",
        ]
        if self.certificate:
            lines += [f"certfile {self.certificate}", f"keyfile {self.certificate}"]
        config = folder / "mosquitto.conf"
        config.write_text("\n".join(lines) + "\n")
        return [command, "-c", str(config)]

    @property
    def ports(self) -> list[int]:
        """Where they listen."""
        return [int(server.ports["mqtt"]) for server in self.servers]

    def pids(self) -> list[int]:
        """All of them."""
        return [pid for server in self.servers for pid in server.pids()]

    def stop(self) -> None:
        """Stop them all."""
        self._stack.close()


def _certify(folder: Path) -> str:
    """A certificate of this machine's own, and its key, in one file."""
    path, key = folder / "certificate.pem", folder / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*words.split(), *subject, "-keyout", str(key), "-out", str(path)],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + key.read_text())
    return str(path)


def proportional_sum(pids: list[int]) -> int:
    """The memory that processes hold together."""
    return sum(map(proportional_bytes, pids))
