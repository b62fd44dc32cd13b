"""Servers under measurement: private instances on free ports, stopped by their own id."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CHAPPE = f"{Path(sys.executable).parent / 'chappe'} serve --dev"
_START_S = 20
_STOP_S = 15
_SETTLE_S = 20
_PAUSE_S = 0.02
_FIRST_CONNECTIONS = 16
# What the load speaks, by what Chappe calls the port when it is ready.
_PROTOCOLS = {
    "websocket": ("json", "json-acknowledged"),
    "tcp": ("packed", "packed-single", "packed-acknowledged", "packed-volatile"),
    "http": ("http",),
    "comet": ("push",),
}


class ServerError(Exception):
    """A server did not start, or did not come to rest."""


@dataclass
class Server:
    """A running server and the ports of its protocols."""

    name: str
    process: subprocess.Popen[str]
    folder: Path
    ready_s: float
    ports: dict[str, str] = field(default_factory=dict)
    # What Chappe says when it is ready.
    addresses: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.greet(int(next(iter(self.ports.values()))))
        self.rest()

    def greet(self, *ports: int) -> None:
        """Have the descriptors, such as the kernel's for polling, that appear with the first
        connection: so many connections that each process which shares a port gets one."""
        with ExitStack() as stack:
            for port in ports * _FIRST_CONNECTIONS:
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            time.sleep(0.1)
        time.sleep(0.1)

    def rest(self) -> None:
        """Take the descriptors it holds now for those it holds at rest."""
        self._descriptors = self._count_descriptors()

    def pids(self) -> list[int]:
        """The server's process and all below it."""
        return family(self.process.pid)

    def resident_bytes(self) -> int:
        """The memory all its processes hold together, shared pages counted once."""
        return sum(map(proportional_bytes, self.pids()))

    def settle(self) -> None:
        """Wait until it has let go of every connection of the load before."""
        end = time.monotonic() + _SETTLE_S
        while self._count_descriptors() > self._descriptors:
            if time.monotonic() > end:
                raise ServerError(f"{self.name} keeps connections whose clients have gone")
            time.sleep(_PAUSE_S)
        time.sleep(5 * _PAUSE_S)

    def stop(self) -> None:
        """Stop it, and remove its folder."""
        end(self.process, self.folder)

    def kill(self) -> None:
        """Let it end without a chance to do anything about it."""
        self.process.kill()
        end(self.process, self.folder)

    def _count_descriptors(self) -> int:
        return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in self.pids())


@dataclass(frozen=True)
class Recipe:
    """How to start a server, and what it is."""

    name: str
    start: Callable[[], Server]
    version: Callable[[], str]


def recipes(chappe: str, peers: bool) -> list[Recipe]:
    """The servers to measure: Chappe, and those peers that are installed."""
    found = [Recipe("chappe", lambda: start_chappe(chappe), lambda: version("chappe"))]
    if not peers:
        return found
    for name, start, argument in (
        ("nats-server", _start_nats, "-v"),
        ("redis-server", _start_redis, "-v"),
        ("mosquitto", _start_mosquitto, "-h"),
    ):
        if command := which(name):
            found.append(_peer(name.removesuffix("-server"), command, start, argument))
    return found


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    pids, rest = [], [pid]
    while rest:
        pids.append(rest.pop())
        children = Path(f"/proc/{pids[-1]}/task/{pids[-1]}/children")
        rest += [int(child) for child in children.read_text().split()] if children.exists() else []
    return pids


def _peer(
    name: str, command: str, start: Callable[[str, int, Path], list[str]], argument: str
) -> Recipe:
    return Recipe(
        name, lambda: start_peer(name, command, start), lambda: _version(command, argument)
    )


def which(name: str) -> str | None:
    """Where a server's program is: beside Python, or installed."""
    beside = Path(sys.executable).parent / name
    return (
        str(beside) if beside.exists() else shutil.which(name) or shutil.which(f"/usr/sbin/{name}")
    )


def _version(command: str, argument: str) -> str:
    run = subprocess.run([command, argument], capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+[.\d]*", run.stdout + run.stderr)
    return found.group() if found else "unknown"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def spawn(
    argv: list[str], folder: Path, stdout: int, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a process in a folder, with more in its environment if so given."""
    return subprocess.Popen(
        argv,
        cwd=folder,
        env=os.environ | environment if environment else None,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def start_chappe(command: str, data: Path | None = None, *, events: bool = False) -> Server:
    """Start a node, or several that share its ports; raises ServerError.

    Without a data folder it has one for as long as it runs. What it costs to record events is
    measured by itself: others do not.
    """
    folder = Path(tempfile.mkdtemp(prefix="chappe-benchmark-"))
    ports = ["--port", "0", "--http-port", "0", "--tcp-port", "0"]
    words = command.split()
    words[0] = shutil.which(words[0]) or words[0]
    begun = time.monotonic()
    quiet = None if events else {"CHAPPE_EVENTS_ENABLED": "false"}
    process = spawn([*words, *ports, "--data", str(data or folder)], folder, subprocess.PIPE, quiet)
    ready = _read_ready(process)
    if ready is None:
        end(process, folder)
        raise ServerError(f"chappe ended before it was ready: {command}")
    taken = time.monotonic() - begun
    found = {
        name: str(urlsplit(ready[key]).port)
        for key, names in _PROTOCOLS.items()
        if key in ready
        for name in names
    }
    return Server("chappe", process, folder, taken, found, ready)


def _read_ready(process: subprocess.Popen[str]) -> dict[str, Any] | None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ready "):
            addresses: dict[str, Any] = json.loads(line.removeprefix("ready "))
            return addresses
    return None


def end(process: subprocess.Popen[str], folder: Path) -> None:
    """Ask a process to end, make it end if it does not, and clean up behind it."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout:
        process.stdout.close()
    shutil.rmtree(folder, ignore_errors=True)


def start_peer(name: str, command: str, argv: Callable[[str, int, Path], list[str]]) -> Server:
    """Start a server by the words for its port and its folder; raises ServerError."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-benchmark-"))
    port = free_port()
    begun = time.monotonic()
    process = spawn(argv(command, port, folder), folder, subprocess.DEVNULL)
    if not listens_soon(process, port):
        end(process, folder)
        raise ServerError(f"{name} does not listen on port {port}")
    protocol = "mqtt" if name == "mosquitto" else name
    return Server(name, process, folder, time.monotonic() - begun, {protocol: str(port)})


def listens_soon(process: subprocess.Popen[str], port: int, within_s: float = _START_S) -> bool:
    """Whether it takes connections before it is too late."""
    last = time.monotonic() + within_s
    while time.monotonic() < last and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except ConnectionRefusedError:
            time.sleep(0.002)
    return False


def start_redis() -> Server:
    """Start a Redis for nodes to share; raises ServerError when there is none to start."""
    command = which("redis-server")
    if command is None:
        raise ServerError("please install redis-server")
    return start_peer("redis", command, _start_redis)


def start_replica(of: Server) -> Server:
    """Start a Redis that follows another; what is published there is published here, too."""
    command = which("redis-server")
    assert command is not None, "there is one that this one follows"
    follow = ["--replicaof", "127.0.0.1", of.ports["redis"]]
    return start_peer("redis", command, lambda *given: [*_start_redis(*given), *follow])


def _start_nats(command: str, port: int, folder: Path) -> list[str]:
    return [command, "-a", "127.0.0.1", "-p", str(port)]


def _start_redis(command: str, port: int, folder: Path) -> list[str]:
    # Unlimited buffers, as a closed loop bounds them itself; the load comes from 127.0.0.x, which
    # the protected mode takes for strangers.
    return [
        *(command, "--port", str(port), "--bind", "127.0.0.1", "--protected-mode", "no"),
        *("--save", "", "--maxclients", "18000", "--tcp-backlog", "1024"),
        *("--client-output-buffer-limit", "pubsub 0 0 0", "--repl-diskless-sync-delay", "0"),
    ]


def _start_mosquitto(command: str, port: int, folder: Path) -> list[str]:
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\n"
        "max_queued_messages 0\nset_tcp_nodelay true\n"
    )
    return [command, "-c", str(config)]


def proportional_bytes(pid: int) -> int:
    """The memory of a process, its share of what it shares."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None, "the kernel's smaps_rollup has no Pss"
    return int(found.group(1)) * 1024
