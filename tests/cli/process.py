"""The command line in processes of its own, as a person or a script runs it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from chappe.cli.main import main

CHAPPE = str(Path(sys.executable).parent / "chappe")
TIMEOUT_S = 30.0


def environment() -> dict[str, str]:
    """The environment without options of ours, and with no colours in what is printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAPPE_")}
    return kept | {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}


def run(*arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; keywords are variables of its environment."""
    return subprocess.run(
        [CHAPPE, *arguments],
        input=stdin,
        env=environment() | more,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def run_here(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in this process: for tests of many, each of which would take a second."""
    out, errors = io.StringIO(), io.StringIO()
    code = 0
    with (
        patch.object(sys, "argv", ["chappe", *arguments]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")),
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the test is over."""
    process = subprocess.Popen(
        [CHAPPE, *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=TIMEOUT_S)


class Served:
    """A node that is ready."""

    def __init__(self, process: subprocess.Popen[str], addresses: dict[str, str]) -> None:
        self.process = process
        self.addresses = addresses
        self.http = addresses["http"]

    def run(self, command: str, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a command against this node."""
        return run(command, *arguments, "--http", self.http, **more)

    def run_here(self, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a command against this node in this process."""
        return run_here(*arguments, "--http", self.http, **more)

    def terminate(self) -> tuple[int, str]:
        """Ask the node to go; its exit code and what it said on the way."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, errors


@contextmanager
def serving(data: Path, *arguments: str) -> Iterator[Served]:
    """Run `chappe serve` on free ports."""
    ports = ("--port", "0", "--http-port", "0", "--tcp-port", "0")
    with started("serve", *ports, "--data", str(data), *arguments) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        word, _, addresses = line.partition(" ")
        if word != "ready":
            raise AssertionError(f"{line!r} {process.communicate(timeout=TIMEOUT_S)}")
        yield Served(process, json.loads(addresses))
