"""Push: an app's server sends to a user, whoever of her devices is there; one that was away gets it
when it is back.

python examples/push.py [http://127.0.0.1:7401]
"""

import asyncio
import json
import secrets
import sys
import time
from typing import Any

import httpx

from chappe.device import Device, Grant, Note, decode_grant
from chappe.push.signing import sign


class AppServer:
    """What an app runs: it knows the app's secret, and signs what it asks."""

    def __init__(self, node: httpx.AsyncClient, key: str, secret: str) -> None:
        self._node = node
        self._key, self._secret = key, secret

    async def ask(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        content = json.dumps(body).encode() if body else b""
        nonce, now_ms = secrets.token_hex(8), time.time_ns() // 1_000_000
        signed = sign(self._key, self._secret, method, path, content, time_ms=now_ms, nonce=nonce)
        answer = await self._node.request(method, path, content=content, headers=signed)
        answer.raise_for_status()
        return dict(answer.json())

    async def grant(self, device: str) -> Grant:
        """A token for a device that has shown this server who its user is."""
        answer = await self.ask("POST", "/v1/push/tokens", device=device)
        return decode_grant(json.dumps(answer).encode())

    async def arrived(self, job: str, count: int) -> dict[str, Any]:
        """How a job does, once it arrived at so many."""
        while True:
            told = (await self.ask("GET", f"/v1/push/jobs/{job}"))["job"]
            if told["arrived"] >= count:
                return dict(told)
            await asyncio.sleep(0.05)

    def device(self, web: str, name: str) -> Device:
        """A device of this app, whose tokens come from here."""
        return Device(app=self._key, device=name, web=web, grants=lambda: self.grant(name))


async def show(name: str, device: Device) -> Note:
    async for note in device:
        if isinstance(note, Note):
            print(f"{name}: {json.loads(note.content)}")
            return note
    raise SystemExit(f"{name} is over: {device.ended}")


async def main(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as node:
        made = await node.post("/v1/push/apps", json={"name": f"taxi-{secrets.token_hex(4)}"})
        made.raise_for_status()
        key = made.json()["key"]
        server = AppServer(node, key, made.json()["secret"])
        await talk(server, url)
        await node.delete(f"/v1/push/apps/{key}")


async def talk(server: AppServer, url: str) -> None:
    async with server.device(url, "phone") as phone:
        async with server.device(url, "tablet") as tablet:
            await phone.subscribe("offers")
            await tablet.wait_connected()
            for device in ("phone", "tablet"):
                await server.ask("POST", "/v1/push/users/bind", user="alice", device=device)
            sent = await server.ask("POST", "/v1/push/send", user="alice", data="your taxi is here")
            await phone.click(await show("phone", phone))
            await show("tablet", tablet)
            await server.ask("POST", "/v1/push/send", topic="offers", data="half price today")
            await show("phone", phone)
            job = await server.arrived(sent["job"], 2)
            print(f"aimed {job['aimed']}, arrived {job['arrived']}, clicked {job['clicked']}")
        await server.ask("POST", "/v1/push/send", device="tablet", data="thanks for riding")
    # The phone is off by now; the tablet comes back, as the same client.
    async with server.device(url, "tablet") as tablet:
        await show("tablet, back again", tablet)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7401"))
