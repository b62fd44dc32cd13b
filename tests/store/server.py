"""A Redis server of one's own: on a free port, with a folder of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import redis

START_TIMEOUT_S = 20.0


class PrivateRedis:
    """A redis-server that writes down every change before it answers, so that it may be killed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder = folder
        self._arguments = arguments
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(
            [
                "redis-server",
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)),
                *("--appendonly", "yes", "--appendfsync", "always", "--save", ""),
                *self._arguments,
            ],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        with redis.Redis(port=self.port, socket_timeout=1) as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.AuthenticationError:
                    return
                except redis.ConnectionError:
                    if time.monotonic() > deadline or self._process.poll() is not None:
                        raise
                    time.sleep(0.02)

    def freeze(self) -> None:
        """Let it answer nobody."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
