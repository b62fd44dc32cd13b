"""The load generator: built from C, run once per measurement."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

Figures = dict[str, float]

_HERE = Path(__file__).resolve().parent
# The longest is a queue that is filled with millions of messages.
_RUN_S_MAX = 900


class LoadError(Exception):
    """The load could not be carried through; the text says why."""


class Target(Protocol):
    """What work is put on: a server, or several that are one to their clients."""

    @property
    def name(self) -> str: ...

    @property
    def ports(self) -> Mapping[str, str]:
        """For each protocol one port, or two: where to receive, and where to send."""
        ...

    def pids(self) -> list[int]:
        """The processes whose CPU time counts."""
        ...

    def settle(self) -> None:
        """Wait until every connection of the load is let go."""
        ...


class Load:
    """Puts work on servers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: set[str] = set()
        self._binary = self._build("load", "load.c", "protocols.c")

    def _build(self, name: str, *sources: str) -> Path:
        binary = self._folder / name
        if name not in self._built:
            files = [str(_HERE / source) for source in sources]
            subprocess.run(["gcc", "-O2", "-Wall", "-o", str(binary), *files], check=True)
            self._built.add(name)
        return binary

    def run(self, server: Target, protocol: str, work: str, *options: float) -> Figures:
        """Do closed-loop or timed work; raises LoadError."""
        figures = self._run(server, protocol, work, self._argv(server, protocol, work, options))
        server.settle()
        return figures

    def queue(
        self, server: Target, protocol: str, name: str, work: str, *options: float
    ) -> Figures:
        """Do work on a queue of that name; raises LoadError.

        A server need not let go of all that it opened: it keeps the files of its queues.
        """
        binary = self._build("queue", "queue.c", "queue_protocols.c", "amqp.c")
        words = [str(binary), protocol, server.ports[protocol], name, work]
        return self._run(server, protocol, work, [*words, *map(str, options), _pids(server)])

    def _run(self, server: Target, protocol: str, work: str, argv: list[str]) -> Figures:
        run = subprocess.run(
            argv, capture_output=True, text=True, timeout=_RUN_S_MAX, check=False, errors="replace"
        )
        if run.returncode:
            raise _failure(server, protocol, work, run.stderr)
        return _read(run.stdout)

    @contextmanager
    def idle(
        self, server: Target, protocol: str, connections: int, under_way: int
    ) -> Iterator[Figures]:
        """Hold connections open, heartbeats answered, while the block runs; raises LoadError."""
        argv = self._argv(server, protocol, "idle", (connections, under_way))
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace"
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with process:
            line = process.stdout.readline()
            if not line:
                raise _failure(server, protocol, "idle", process.stderr.read())
            yield _read(line)
            process.stdin.close()
            reason = process.stderr.read()
        if process.returncode:
            raise _failure(server, protocol, "idle", reason)
        server.settle()

    def _argv(
        self, server: Target, protocol: str, work: str, options: tuple[float, ...]
    ) -> list[str]:
        words = [str(self._binary), protocol, server.ports[protocol], work]
        return [*words, *map(str, options), _pids(server)]


def _pids(server: Target) -> str:
    return ",".join(map(str, server.pids()))


def _failure(server: Target, protocol: str, work: str, reason: str) -> LoadError:
    return LoadError(f"{server.name}, {protocol}, {work}: {reason.strip()}")


def _read(line: str) -> Figures:
    figures: Figures = json.loads(line)
    return figures
