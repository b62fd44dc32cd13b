"""Servers that keep queues, each with the same durability: what is confirmed is on the disk."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.server import (
    Server,
    ServerError,
    end,
    family,
    free_port,
    listens_soon,
    spawn,
    start_chappe,
    start_peer,
    which,
)

# What Debian's wrapper runs as another user, with the machine's own folders.
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_RABBITMQ_START_S = 60.0
CHAPPE, JETSTREAM, STREAMS, RABBITMQ = "chappe", "jetstream", "streams", "rabbitmq"
# Whose package it takes, where there is none of it.
PACKAGES = {JETSTREAM: "nats-server", STREAMS: "redis-server", RABBITMQ: "rabbitmq-server"}


@dataclass(frozen=True)
class Together:
    """Servers that are one to their clients, who speak to the first of them."""

    name: str
    servers: Sequence[Server]

    @property
    def ports(self) -> Mapping[str, str]:
        """Those of the first."""
        return self.servers[0].ports

    def pids(self) -> list[int]:
        """The processes of all."""
        return [pid for server in self.servers for pid in server.pids()]

    def settle(self) -> None:
        """Wait until each has let go of the load's connections."""
        for server in self.servers:
            server.settle()

    def stop(self) -> None:
        """Stop them in turn."""
        for server in self.servers:
            server.stop()


class RabbitMQ(Server):
    """A RabbitMQ, and the daemon by which Erlang's nodes find each other."""

    daemon: subprocess.Popen[str]

    def stop(self) -> None:
        """Stop both; the script that started the server ends with it."""
        _end_rabbitmq(self.process, self.folder, self.daemon)


def find_brokers(chappe: str, peers: bool) -> dict[str, Callable[[], Server]]:
    """How to start Chappe, and those peers that are installed."""
    found: dict[str, Callable[[], Server]] = {CHAPPE: lambda: start_chappe(chappe)}
    if not peers:
        return found
    if nats := which("nats-server"):
        found[JETSTREAM] = lambda: start_peer("nats", nats, _jetstream)
    if which("redis-server"):
        found[STREAMS] = start_streams
    if _RABBITMQ.exists() and which("epmd"):
        found[RABBITMQ] = _start_rabbitmq
    return found


def rabbitmq_version() -> str | None:
    """Its version, if it is installed."""
    found = re.search(r"rabbitmq_server-([\d.]+)", str(_RABBITMQ.resolve()))
    return found.group(1) if found else None


def start_streams() -> Server:
    """Start a Redis that has on its disk whatever it answers; raises ServerError."""
    command = which("redis-server")
    if command is None:
        raise ServerError("please install redis-server")
    return start_peer("redis", command, _streams)


def _jetstream(command: str, port: int, folder: Path) -> list[str]:
    config = folder / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\n'
        f'jetstream {{ store_dir: "{folder}", sync_interval: always }}\n'
    )
    return [command, "-c", str(config)]


def _streams(command: str, port: int, folder: Path) -> list[str]:
    return [
        *(command, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)),
        *("--save", "", "--appendonly", "yes", "--appendfsync", "always"),
    ]


def _start_rabbitmq() -> Server:
    folder = Path(tempfile.mkdtemp(prefix="rabbitmq-benchmark-"))
    port, daemon_port, link_port = free_port(), free_port(), free_port()
    environment = {
        # Where Erlang keeps the cookie that its nodes share.
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(daemon_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"benchmark-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(link_port),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
    }
    nowhere = subprocess.DEVNULL
    daemon = spawn([which("epmd") or "epmd"], folder, nowhere, environment)
    begun = time.monotonic()
    if not listens_soon(daemon, daemon_port):
        end(daemon, folder)
        raise ServerError(f"epmd does not listen on port {daemon_port}")
    process = spawn([str(_RABBITMQ)], folder, nowhere, environment)
    if not listens_soon(process, port, _RABBITMQ_START_S):
        _end_rabbitmq(process, folder, daemon)
        raise ServerError(f"rabbitmq does not listen on port {port}")
    ports = dict.fromkeys(("amqp", "amqp-quorum"), str(port))
    server = RabbitMQ("rabbitmq", process, folder, time.monotonic() - begun, ports)
    server.daemon = daemon
    return server


def _end_rabbitmq(
    process: subprocess.Popen[str], folder: Path, daemon: subprocess.Popen[str]
) -> None:
    for pid in family(process.pid)[1:]:
        # It has nothing that is worth an orderly end, which takes seconds.
        subprocess.run(["kill", "-KILL", str(pid)], check=False, stderr=subprocess.DEVNULL)
    end(process, folder)
    end(daemon, folder)
    shutil.rmtree(folder, ignore_errors=True)
