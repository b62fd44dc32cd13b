"""One fleet of a crew: says each second what it has seen, until nobody listens any more."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec

from chappe.cli.push.fleet.fleet import Fleet

_EVERY_S = 0.5


async def feed(fleet: Fleet) -> None:
    """Run a fleet until standard input ends; raises what makes it of no use."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    running = asyncio.create_task(fleet.run())
    waits: set[asyncio.Future[Any]] = {
        asyncio.ensure_future(ended.wait()),
        running,
        fleet.failure,
    }
    try:
        while not ended.is_set():
            done, _ = await asyncio.wait(
                waits, timeout=_EVERY_S, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                each.result()
            _say(fleet)
    finally:
        running.cancel()
        await fleet.stop()
        _say(fleet)


def _say(fleet: Fleet) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(fleet.tally) + b"\n")
    sys.stdout.buffer.flush()
