"""A node in a process of its own, which can be stopped and killed.

It joins, holds a lease and a seat, and answers each line with what it knows of the lease. Its
loop's time is the machine's monotonic clock, so it can be compared with another process's.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import structlog

from chappe.node.keeper.kept import kept_registry
from chappe.registry.membership import Member
from chappe.registry.options import RegistryOptions
from chappe.registry.url import open_registry
from tests.processes import kill, read_line


class Elsewhere:
    """Drives such a node."""

    def __init__(self, url: str, name: str, options: RegistryOptions) -> None:
        times = f"{options.lease_s},{options.poll_s},{options.timeout_s}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.registry.elsewhere", url, name, times],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with ExitStack() as failed:
            failed.callback(self.kill)
            self._read()
            failed.pop_all()

    async def knows(self) -> dict[str, Any]:
        """Ask it what it knows of its lease; on another thread, since the loop goes on."""
        return await asyncio.to_thread(self._ask)

    def stop(self) -> None:
        """Let it stand still."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it."""
        kill(self._process)

    def _ask(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(b"?\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = read_line(self._process.stdout)
        assert line, "the other process died"
        answer: dict[str, Any] = json.loads(line)
        return answer


async def _run(url: str, name: str, times: str) -> None:
    # Standard output is for the answers.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    lease_s, poll_s, timeout_s = map(float, times.split(","))
    options = RegistryOptions(lease_s=lease_s, poll_s=poll_s, timeout_s=timeout_s)
    scheme, _, path = url.partition(":")
    registry = (
        kept_registry(Path(path), options) if scheme == "keeper" else open_registry(url, options)
    )
    assert registry.coordination is not None
    await registry.membership.join(Member(name=name, incarnation=1, url=f"ws://{name}"))
    lease = await registry.coordination.acquire("/lease", name.encode())
    await registry.coordination.sit("/row", name.encode())
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    _say({})
    while await lines.readline():
        # What it would do work by, before anything else of the loop had a chance to run.
        _say({"until": lease.until, "now": loop.time()})


def _say(answer: dict[str, float]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_run(*sys.argv[1:]))
