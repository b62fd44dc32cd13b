"""Servers for keys: two replicas on one Redis, and sessions on the second of them.

publisher -> replica -> Redis -> replica -> sessions
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self

import msgspec
from redis import Redis

from benchmarks import keyload, keyreplica
from benchmarks.server import Server, ServerError, family, start_redis

_ROOT = Path(__file__).resolve().parent.parent
_STOP_S = 5.0
_SOCKETIO_PATH = "/socket.io/?EIO=4&transport=websocket"


class Process:
    """A process that is told something by lines, and answers each with one."""

    def __init__(self, module: str, spec: msgspec.Struct) -> None:
        self._module = module
        argv = [sys.executable, "-m", module]
        self._process = subprocess.Popen(
            argv, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.say(msgspec.json.encode(spec))

    def say(self, line: bytes) -> None:
        """Tell it something; raises ServerError when it has ended."""
        try:
            self._pipe("stdin").write(line + b"\n")
            self._pipe("stdin").flush()
        except BrokenPipeError:
            raise ServerError(f"{self._module} ended") from None

    def hear(self) -> bytes:
        """Its answer; raises ServerError when it has ended instead."""
        line = self._pipe("stdout").readline()
        if not line:
            raise ServerError(f"{self._module} ended without an answer")
        return line.strip()

    def pids(self) -> list[int]:
        """It, and what it has started."""
        return family(self._process.pid)

    def stop(self) -> None:
        """End its input, and wait for its end."""
        try:
            self._process.communicate(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _pipe(self, name: str) -> IO[Any]:
        pipe: IO[Any] | None = getattr(self._process, name)
        assert pipe is not None
        return pipe


class KeyLayout:
    """A Redis of their own, two replicas of one shape, and sessions that are on the second."""

    def __init__(self, shape: str, sessions: int) -> None:
        with ExitStack() as stack:
            self.redis: Server = start_redis()
            stack.callback(self.redis.stop)
            port = self.redis.ports["redis"]
            spec = keyreplica.Spec(shape=shape, bus=f"redis://127.0.0.1:{port}/0")
            self._replicas: list[Process] = []
            for _ in range(2):
                self._replicas.append(Process("benchmarks.keyreplica", spec))
                stack.callback(self._replicas[-1].stop)
            ports = [int(replica.hear()) for replica in self._replicas]
            self._load: Process | None = None
            if sessions:
                readers = keyload.Spec(
                    port=ports[1],
                    path=_SOCKETIO_PATH if shape == "socketio" else "/",
                    sessions=sessions,
                    engineio=shape == "socketio",
                )
                self._load = Process("benchmarks.keyload", readers)
                stack.callback(self._load.stop)
                if self._load.hear() != b"connected":
                    raise ServerError("sessions do not connect")
            self._client = Redis(port=int(port))
            stack.callback(self._client.close)
            self._stack = stack.pop_all()
        self._told = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def pids(self) -> list[int]:
        """Both replicas."""
        return [pid for replica in self._replicas for pid in replica.pids()]

    def load_pids(self) -> list[int]:
        """Who reads."""
        return [] if self._load is None else self._load.pids()

    def tell(self, count: int) -> None:
        """Send messages at once by the key, and wait until every session has each of them."""
        assert self._load is not None
        order = keyreplica.Order(first=self._told + 1, count=count)
        self._told += count
        self._load.say(b"%d" % self._told)
        self.order(order)
        self._load.hear()

    def order(self, order: keyreplica.Order) -> keyreplica.Done:
        """Let the first replica send something."""
        self._replicas[0].say(msgspec.json.encode(order))
        return msgspec.json.decode(self._replicas[0].hear(), type=keyreplica.Done)

    def requests(self) -> dict[str, int]:
        """How many of each command Redis has had, those too that scripts have made."""
        stats: dict[str, dict[str, int]] = self._client.info("commandstats")
        return {name.removeprefix("cmdstat_"): int(found["calls"]) for name, found in stats.items()}
