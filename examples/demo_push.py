"""Push for the demo: devices of some users, and an app's server that sends them notes.

The devices come back by themselves when the node is killed that they are on; what was sent to them
meanwhile waits.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import httpx

from chappe import ChappeError
from chappe.device import Device, Note

DEVICES = 12
TOPIC = "weather"
# The hub's own app: its users get notes as well, where they have a session.
APP = "default"
# Notes in a burst, and what part of those that are shown is clicked.
BURST = 4
CLICKED = 0.3

# Not secret, only mixed.
_random = random.Random(11)


class PushTraffic:
    """Devices, and who sends to them, until they are told to stop."""

    def __init__(self, urls: list[str], folder: Path, counts: Counter[str]) -> None:
        # Any node is web and admin; one of them will be killed, and it is the last.
        self._web = urls[0]
        self._folder = folder
        self._counts = counts

    async def start(self, stack: AsyncExitStack) -> list[asyncio.Task[None]]:
        """Connect the devices, and begin."""
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=self._web, timeout=10))
        app = await http.post("/v1/push/apps", json={"name": APP, "open": True})
        key = app.raise_for_status().json()["key"]
        http.headers["X-Chappe-App"] = key
        devices = [self._device(key, n) for n in range(DEVICES)]
        for n, device in enumerate(devices):
            await stack.enter_async_context(device)
            await device.subscribe(TOPIC)
            bound = {"user": f"u{n // 2}", "device": f"phone-{n}"}
            (await http.post("/v1/push/users/bind", json=bound)).raise_for_status()
        steady = [self._show(device) for device in devices]
        return [asyncio.ensure_future(one) for one in (*steady, self._send(http))]

    def _device(self, key: str, number: int) -> Device:
        cache = self._folder / f"phone-{number}"
        return Device(app=key, device=f"phone-{number}", web=self._web, cache=cache)

    async def _show(self, device: Device) -> None:
        async for note in device:
            if not isinstance(note, Note):
                self._counts["taken back"] += 1
                continue
            self._counts["shown"] += 1
            if _random.random() < CLICKED:
                try:
                    await device.click(note)
                except ChappeError:
                    self._counts["clicks lost"] += 1

    async def _send(self, http: httpx.AsyncClient) -> None:
        while True:
            for _ in range(BURST):
                body = {"data": {"degrees": _random.randrange(-10, 35)}, "name": "demo"}
                if _random.random() < 0.3:
                    body["topic"] = TOPIC
                else:
                    body |= {"user": f"u{_random.randrange(DEVICES // 2)}", "once": True}
                try:
                    answer = await http.post("/v1/push/send", json=body)
                    self._counts["pushed" if answer.status_code == 200 else "not pushed"] += 1
                except httpx.HTTPError:
                    self._counts["not pushed"] += 1
            await asyncio.sleep(0.1)
