"""Devices in processes that can be killed, users of a hub beside them, and what all were shown."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import websockets

from tests.processes import kill, read_line

from .push_device import cache_file, shown_file
from .push_layout import AppKey, PushProcess

TOPIC = "news"
_PAUSE_S = 0.1


class DeviceProcess:
    """Some devices in one process."""

    def __init__(
        self,
        folder: Path,
        web: PushProcess,
        app: AppKey,
        devices: list[str],
        topic: str = TOPIC,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.devices = devices
        self._command = [sys.executable, "-m", "tests.faults.push_device", str(folder)]
        self._command += [web.addresses["http"], app.key, topic, *devices]
        self.start()

    def start(self) -> None:
        """Start it, anew after a death."""
        with (self.folder / "stderr").open("ab") as stderr:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=stderr, cwd=Path.cwd()
            )
        assert self._process.stdout is not None
        assert read_line(self._process.stdout) == "ready\n", self.log()

    def kill(self) -> None:
        """End it as a device's owner does who takes the battery out."""
        kill(self._process)

    def log(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    @property
    def subscribed(self) -> bool:
        """Whether all have subscribed."""
        return all((self.folder / f"{device}.ready").exists() for device in self.devices)

    def printed(self, device: str) -> Counter[str]:
        """How often a device was shown each id, as its user has written it down."""
        return Counter(_lines(shown_file(self.folder, device)))

    def given(self, device: str) -> set[str]:
        """What a device has given out, by its own account. One that is killed between giving a note
        out and its user's writing it down has shown it: the note is not given again."""
        ids = cache_file(self.folder, device)
        return {*_lines(ids.with_name(ids.name + ".ids")), *self.printed(device)}


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


class HubUser:
    """A user with a WebSocket, who says of each note that it was shown, and comes back."""

    def __init__(self, hub: PushProcess, app: str, name: str) -> None:
        self._hub = hub
        self._app = app
        self.name = name
        # An id that comes again is not shown again.
        self.given: set[str] = set()

    async def run(self) -> None:
        """Be there for ever."""
        while True:
            with suppress(OSError, websockets.WebSocketException, TimeoutError):
                async with websockets.connect(self._hub.url, open_timeout=3) as socket:
                    await self._stay(socket)
            await asyncio.sleep(_PAUSE_S)

    async def _stay(self, socket: websockets.ClientConnection) -> None:
        hello = {"op": "hello", "id": 1, "as": f"user:{self.name}", "app": self._app}
        await socket.send(json.dumps(hello))
        async for said in socket:
            op = json.loads(said)
            if op["op"] == "message" and "note" in op["data"]:
                note = op["data"]["note"]
                self.given.add(note)
                await socket.send(json.dumps({"op": "shown", "notes": [note]}))


class Crowd:
    """All devices and users, and what they were shown."""

    def __init__(self, processes: list[DeviceProcess], users: list[HubUser]) -> None:
        self.processes = processes
        self.users = users

    def given(self) -> dict[str, set[str]]:
        """What each was shown, users by `user:` and their names."""
        found = {d: process.given(d) for process in self.processes for d in process.devices}
        return found | {f"user:{user.name}": user.given for user in self.users}

    def twice(self) -> list[tuple[str, str]]:
        """What a device was shown more than once."""
        return [
            (note, device)
            for process in self.processes
            for device in process.devices
            for note, count in process.printed(device).items()
            if count > 1
        ]
