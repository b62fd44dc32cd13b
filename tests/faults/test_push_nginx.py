"""The example deployment of push: devices behind nginx, processes under supervisor (P14)."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from chappe.device import Device, DeviceOptions, Note
from tests.faults.test_push_deployment import DEPLOYMENT, Deployment
from tests.loop import on_loop
from tests.servers import RedisServer

LIMIT_S = 60.0
DEVICES = 24


class Growing(Deployment):
    """The example, and more of it."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self._served_by = redis
        super().__init__(folder, redis)

    def comet(self, outside: str) -> str:
        """What devices of a comet are told to connect to."""
        return f"tls://127.0.0.1:{self._port(outside)}"

    def pids(self) -> dict[str, str]:
        """The processes that run, by name."""
        told = self.control("status").splitlines()
        found = (re.match(r"(\S+)\s+RUNNING\s+pid (\d+)", line) for line in told)
        return {each[1]: each[2] for each in found if each}

    def grow(self) -> None:
        """Add a comet as the README says."""
        etc = self.folder / "etc"
        told = self._here((DEPLOYMENT / "README.md").read_text(), self._served_by)
        ((section,), (server,)) = (_blocks(told, kind) for kind in ("ini", "nginx"))
        with (etc / "supervisord.conf").open("a") as file:
            file.write(f"\n{section}")
        conf = etc / "nginx.conf"
        before = conf.read_text()
        last = re.findall(r"^    server {.*}\n", before, re.MULTILINE)[-1]
        conf.write_text(before.replace(last, f"{last}    {server}"))
        reload = ["nginx", "-c", str(conf), "-s", "reload"]
        subprocess.run(reload, check=True, cwd=self.folder, capture_output=True)
        self.control("update")


def _blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Growing]:
    redis = RedisServer(tmp_path / "redis")
    try:
        made = Growing(tmp_path, redis)
        with made.running():
            yield made
    finally:
        redis.kill()


class Phone:
    """A device that remembers what it was shown."""

    def __init__(self, deployment: Growing, app: str, name: str, tls: ssl.SSLContext) -> None:
        options = DeviceOptions(backoff_first_s=0.05, backoff_max_s=0.5)
        self.name = name
        self.device = Device(app=app, device=name, web=deployment.http, tls=tls, options=options)
        self.shown: list[bytes] = []

    async def live(self) -> None:
        async for note in self.device:
            assert isinstance(note, Note)
            self.shown.append(note.content)


class Town:
    """An app on the deployment, its server, and devices that live in the background."""

    def __init__(self, deployment: Growing) -> None:
        self.deployment = deployment
        self.tls = ssl.create_default_context(cafile=deployment.ca)
        self.http = httpx.AsyncClient(verify=self.tls, timeout=LIMIT_S)
        self.app = deployment.answer("app", "create", "shop", "--open")["key"]
        self._headers = {
            "Authorization": f"Bearer {deployment.token.read_text().strip()}",
            "X-Chappe-App": self.app,
        }
        self.phones: list[Phone] = []
        self._lives: list[asyncio.Task[None]] = []

    async def connect(self, name: str) -> Phone:
        phone = Phone(self.deployment, self.app, name, self.tls)
        self.phones.append(phone)
        await phone.device.__aenter__()
        self._lives.append(asyncio.create_task(phone.live()))
        async with asyncio.timeout(LIMIT_S):
            await phone.device.wait_connected()
        return phone

    async def comet_of(self, name: str) -> str:
        """The comet that the web gives a device."""
        body = {"app": self.app, "device": name}
        answer = await self.http.post(f"{self.deployment.http}/v1/push/devices", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["comet"])

    async def push(self, content: str) -> None:
        """To all devices that there are."""
        names = [phone.name for phone in self.phones]
        body = {"device": names, "data64": b64encode(content.encode()).decode()}
        url = f"{self.deployment.http}/v1/push/send"
        answer = await self.http.post(url, json=body, headers=self._headers)
        assert answer.status_code == 200, answer.text

    async def all_have(self, *contents: str) -> None:
        """Each has each of them once."""
        wanted = Counter(content.encode() for content in contents)
        async with asyncio.timeout(LIMIT_S):
            for phone in self.phones:
                while len(phone.shown) < len(wanted):
                    await asyncio.sleep(0.05)
        assert [Counter(phone.shown) for phone in self.phones] == [wanted] * len(self.phones)

    async def end(self) -> None:
        for phone in self.phones:
            await phone.device.close()
        await asyncio.gather(*self._lives)
        await self.http.aclose()


@on_loop
async def test_a_comet_is_added_behind_nginx_while_notes_go_on(deployment, monkeypatch):  # P14
    # The web is trusted by what this machine trusts.
    monkeypatch.setenv("SSL_CERT_FILE", str(deployment.ca))
    town = Town(deployment)
    try:
        for number in range(DEVICES):
            await town.connect(f"device-{number}")
        before = {phone.name: await town.comet_of(phone.name) for phone in town.phones}
        assert set(before.values()) == {deployment.comet("7451"), deployment.comet("7452")}
        await town.push("first")
        await town.all_have("first")

        # As the README says, while an app goes on sending.
        pids = deployment.pids()
        sent = ["first"]

        async def go_on() -> None:
            while True:
                sent.append(f"note {len(sent)}")
                await town.push(sent[-1])
                await asyncio.sleep(0.1)

        going_on = asyncio.create_task(go_on())
        await asyncio.to_thread(deployment.grow)
        new = await _first_on(town, deployment.comet("7453"))
        going_on.cancel()
        await asyncio.gather(going_on, return_exceptions=True)
        # What was under way when it was cancelled may have been sent, or not.
        await _settle(town, sent)
        # The others were left alone.
        assert pids.items() <= deployment.pids().items()

        # By the ring: who moves goes to the new one, nobody between the old ones.
        after = {name: await town.comet_of(name) for name in before}
        moved = {name for name in before if after[name] != before[name]}
        assert moved
        assert {after[name] for name in moved} == {deployment.comet("7453")}

        # New logins go there, and are reached there.
        for phone in town.phones:
            phone.shown.clear()
        await town.connect(new)
        await town.push("last")
        await town.all_have("last")
    finally:
        await town.end()


async def _first_on(town: Town, comet: str) -> str:
    """A new device that belongs to a comet, once the web knows of it."""
    async with asyncio.timeout(LIMIT_S):
        for number in range(100_000):
            name = f"new-{number}"
            if await town.comet_of(name) == comet:
                return name
            await asyncio.sleep(0.02)
    raise AssertionError("nobody belongs to the new comet")


async def _settle(town: Town, sent: list[str]) -> None:
    """All that was answered is there once; the last, which was cut off, may be there or not."""
    sure, last = [text.encode() for text in sent[:-1]], sent[-1].encode()
    async with asyncio.timeout(LIMIT_S):
        while any(len(set(phone.shown) - {last}) < len(sure) for phone in town.phones):
            await asyncio.sleep(0.05)
    for phone in town.phones:
        counted = Counter(phone.shown)
        counted.pop(last, None)
        assert counted == Counter(sure)
