"""Devices in a process of their own: each writes down what it is shown, until it is killed."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import uvloop

from chappe.device import Device, DeviceOptions, Note

# Comes back at once, and notices soon that a comet hangs.
OPTIONS = DeviceOptions(
    connect_timeout_s=3.0,
    heartbeat_s=1.0,
    answer_timeout_s=3.0,
    backoff_first_s=0.05,
    backoff_max_s=0.5,
    steady_s=1.0,
    request_timeout_s=60.0,
)


def shown_file(folder: Path, device: str) -> Path:
    """Where a device writes down what it was shown: an id to a line."""
    return folder / f"{device}.shown"


def cache_file(folder: Path, device: str) -> Path:
    """Where a device keeps its token, and beside it what it has given out."""
    return folder / f"{device}.cache"


async def live(folder: Path, web: str, app: str, device: str, topic: str) -> None:
    """Be a device for ever."""
    file = os.open(shown_file(folder, device), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    async with Device(
        app=app, device=device, web=web, cache=cache_file(folder, device), options=OPTIONS
    ) as own:
        await own.subscribe(topic)
        (folder / f"{device}.ready").touch()
        async for note in own:
            os.write(file, f"{note.id if isinstance(note, Note) else '-' + note.note}\n".encode())
    raise SystemExit(f"{device} is over: {own.ended}")


async def main(folder: str, web: str, app: str, topic: str, *devices: str) -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.gather(*(live(Path(folder), web, app, device, topic) for device in devices))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
