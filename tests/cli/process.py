"""The command line in processes of its own, as a person or a script runs it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog

from chappe.cli.main import main
from chappe.cli.options import console
from tests.processes import kill, read_line

CHAPPE = str(Path(sys.executable).parent / "chappe")
TIMEOUT_S = 60.0
# The same in this process and in others: paths of a parallel run do not fit in 80 columns.
WIDTH = 200
console.width = WIDTH


def environment() -> dict[str, str]:
    """The environment without options of ours, and with no colours in what is printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CHAPPE_")}
    quiet = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": str(WIDTH)}
    return kept | quiet | {"CHAPPE_EVENTS_ENABLED": "false"}


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


def run_here(*arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process: for tests of many, each of which would take a second."""
    out, errors = io.StringIO(), io.StringIO()
    code = 0
    with (
        patch.dict(os.environ, environment() | more, clear=True),
        patch.object(sys, "argv", ["chappe", *arguments]),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")),
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            # A command may have said where its log goes; what comes next logs as before.
            structlog.reset_defaults()
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())


@contextmanager
def started(*arguments: str, log: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the test is over; what it complains of is piped, or goes to a file."""
    with log.open("ab") if log else nullcontext(subprocess.PIPE) as errors:
        process = subprocess.Popen(
            [CHAPPE, *arguments],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield process
    finally:
        kill(process)


class Served:
    """A node that is ready."""

    def __init__(
        self, process: subprocess.Popen[str], log: Path, addresses: dict[str, str]
    ) -> None:
        self.process = process
        self._log = log
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
        try:
            code = self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the node did not end:\n{self._log.read_text()}") from None
        return code, self._log.read_text()


@contextmanager
def serving(data: Path, *arguments: str) -> Iterator[Served]:
    """Run `chappe serve` on free ports."""
    ports = ("--port", "0", "--http-port", "0", "--tcp-port", "0", "--comet-port", "0")
    with ExitStack() as stack:
        # A file, as nobody reads what a node writes while it runs: a pipe would fill up.
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = Path(folder) / "log"
        command = ("serve", *ports, "--data", str(data), *arguments)
        process = stack.enter_context(started(*command, log=log))
        assert process.stdout is not None
        try:
            line = read_line(process.stdout)
        except TimeoutError as error:
            line = str(error)
        word, _, addresses = line.partition(" ")
        if word != "ready":
            raise AssertionError(f"{line!r}\n{log.read_text()}")
        yield Served(process, log, json.loads(addresses))
