"""Devices in processes that can be killed, and an app's server that sends to them and signs."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.processes import kill, read_line

from .push_device import cache_file, shown_file
from .push_layout import AppKey, PushProcess, encode

TOPIC = "news"
# No slower than an answer may be: a comet that hangs is waited for so long, and so is the store.
_ANSWER_S = 20.0
_PAUSE_S = 0.2


class DeviceProcess:
    """Some devices in one process."""

    def __init__(self, folder: Path, web: PushProcess, app: AppKey, devices: list[str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.devices = devices
        self._command = [sys.executable, "-m", "tests.faults.push_device", str(folder)]
        self._command += [web.addresses["http"], app.key, TOPIC, *devices]
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


class Sender:
    """An app's server under load: to devices, to some of them, to a topic; some sends it insists
    on, others it makes once."""

    def __init__(
        self, admin: PushProcess, app: AppKey, devices: Iterable[str], rng: Random
    ) -> None:
        self._admin = admin
        self._app = app
        self._devices = list(devices)
        self._rng = rng
        self._numbers = itertools.count()
        # What was answered: by note, whom it is for.
        self.answered: dict[str, list[str]] = {}
        self.unanswered = 0
        self.stopping = False
        self.times: list[float] = []

    async def run(self, pause_s: float) -> None:
        """Send until told to stop; what is under way is finished first."""
        async with httpx.AsyncClient(timeout=_ANSWER_S) as http:
            while not self.stopping:
                await asyncio.sleep(pause_s)
                await self._send(http)

    async def _send(self, http: httpx.AsyncClient) -> None:
        number = next(self._numbers)
        to, targets = self._aim()
        fields: dict[str, Any] = {**to, "data": number, "name": f"n{number}"}
        insists = number % 2 == 0
        if insists:
            fields["idempotency_key"] = f"key-{number}"
        body = encode(fields)
        while True:
            note = await self._post(http, body)
            if note is not None:
                self.answered[note] = targets
                return
            self.unanswered += 1
            if not insists:
                return
            await asyncio.sleep(_PAUSE_S)

    async def _post(self, http: httpx.AsyncClient, body: bytes) -> str | None:
        """The note that was sent, if that was answered."""
        target = "/v1/push/send"
        began = time.monotonic()
        try:
            response = await http.post(
                self._admin.addresses["http"] + target,
                content=body,
                headers=self._app.headers("POST", target, body),
            )
        except httpx.HTTPError:
            return None
        self.times.append(time.monotonic() - began)
        if response.status_code == 200:
            return str(response.json()["note"])
        # Nothing is refused for good, whatever dies.
        assert response.status_code in (503, 429), response.text
        return None

    def _aim(self) -> tuple[dict[str, Any], list[str]]:
        match self._rng.randrange(3):
            case 0:
                device = self._rng.choice(self._devices)
                return {"device": device}, [device]
            case 1:
                some = self._rng.sample(self._devices, min(3, len(self._devices)))
                return {"device": some}, some
            case _:
                return {"topic": TOPIC}, self._devices


class Crowd:
    """All devices, and what they were shown."""

    def __init__(self, processes: list[DeviceProcess]) -> None:
        self.processes = processes

    @property
    def devices(self) -> list[str]:
        return [device for process in self.processes for device in process.devices]

    def missing(self, answered: dict[str, list[str]]) -> list[tuple[str, str]]:
        """Notes and devices they were for that they did not come to."""
        given = {d: process.given(d) for process in self.processes for d in process.devices}
        return [(note, d) for note, to in answered.items() for d in to if note not in given[d]]

    def twice(self) -> list[tuple[str, str]]:
        """What a device was shown more than once."""
        return [
            (note, device)
            for process in self.processes
            for device in process.devices
            for note, count in process.printed(device).items()
            if count > 1
        ]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
