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
_RUN_S_MAX = 120


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
        self._binary = folder / "load"
        sources = [str(_HERE / "load.c"), str(_HERE / "protocols.c")]
        subprocess.run(["gcc", "-O2", "-Wall", "-o", str(self._binary), *sources], check=True)

    def run(self, server: Target, protocol: str, work: str, *options: float) -> Figures:
        """Do closed-loop or timed work; raises LoadError."""
        argv = self._argv(server, protocol, work, options)
        run = subprocess.run(
            argv, capture_output=True, text=True, timeout=_RUN_S_MAX, check=False, errors="replace"
        )
        if run.returncode:
            raise _failure(server, protocol, work, run.stderr)
        server.settle()
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
        pids = ",".join(map(str, server.pids()))
        words = [str(self._binary), protocol, server.ports[protocol], work]
        return [*words, *map(str, options), pids]


def _failure(server: Target, protocol: str, work: str, reason: str) -> LoadError:
    return LoadError(f"{server.name}, {protocol}, {work}: {reason.strip()}")


def _read(line: str) -> Figures:
    figures: Figures = json.loads(line)
    return figures
