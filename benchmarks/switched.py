"""A node that records what happens, or does not, as signals say.

Both ways run in one process: two processes that do the same differ by several per cent, for where
they happen to lie in memory, and that is more than recording costs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from chappe.events import eventlog
from chappe.events.counting import CountingRecorder
from chappe.node.node import Node
from chappe.node.options import load_options

# With the one, it only counts; with the other, it records as it is told to.
OFF, ON = signal.SIGUSR1, signal.SIGUSR2
# What is gathered is written down when there is enough of it, or by the clock. The node is stopped
# for nineteen twentieths of the time: so often it is by the clock on one that is not.
_INTERVAL_S = 20 * eventlog.INTERVAL_S


async def _run(node: Node) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    recorders = {OFF: CountingRecorder(), ON: node.recorder}

    def switch(to: signal.Signals) -> None:
        node.hub.fanout._recorder = recorders[to]

    for number in recorders:
        loop.add_signal_handler(number, switch, number)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if await node.start_unless(stop):
        sys.stdout.write(f"ready {msgspec.json.encode(node.addresses()).decode()}\n")
        sys.stdout.flush()
        await node.run_until(stop)


def main() -> None:
    """Serve as `chappe serve --dev` does."""
    parser = argparse.ArgumentParser()
    flags = ("port", "http_port", "tcp_port", "data")
    for flag in flags:
        parser.add_argument(f"--{flag.replace('_', '-')}", required=True)
    parser.add_argument("--config", type=Path, required=True)
    said = parser.parse_args()
    given = {flag: getattr(said, flag) for flag in flags}
    ports = {name: int(value) for name, value in given.items() if name != "data"}
    options = load_options(said.config, os.environ, {**given, **ports, "dev": True})
    eventlog.INTERVAL_S = _INTERVAL_S

    async def serve() -> None:
        await _run(Node(options))

    uvloop.run(serve())


if __name__ == "__main__":
    main()
