"""Notes to users of the hub, through a real node: live, stored, shown once (P7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import websockets

from chappe.device import Device
from tests.loop import on_loop
from tests.node.running import running

APP = "news"


class Hub:
    """A node, its app of push, and users who connect to it."""

    def __init__(self, addresses: dict[str, str], http: httpx.AsyncClient) -> None:
        self.addresses = addresses
        self.http = http
        self.key = ""

    async def open_app(self, name: str = APP) -> None:
        answer = await self.http.post("/v1/push/apps", json={"name": name, "open": True})
        self.key = answer.json()["key"]

    async def ask(self, path: str, **body: Any) -> dict[str, Any]:
        headers = {"x-chappe-app": self.key}
        answer = await self.http.post(f"/v1/push/{path}", json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def tally(self, job: str) -> tuple[int, int, int]:
        answer = await self.http.get(f"/v1/push/jobs/{job}", headers={"x-chappe-app": self.key})
        told = answer.json()["job"]
        return told["aimed"], told["sent"], told["arrived"]

    @asynccontextmanager
    async def user(self, name: str, app: str = APP) -> AsyncIterator[User]:
        async with websockets.connect(self.addresses["websocket"]) as socket:
            user = User(socket)
            await user.ask(op="hello", as_=f"user:{name}", app=app)
            yield user

    async def seated(self, name: str) -> None:
        """Wait until a user is a client: what is sent before that has nobody to wait for."""
        async with asyncio.timeout(10):
            while True:
                answer = await self.http.get(
                    "/v1/push/users", params={"user": name}, headers={"x-chappe-app": self.key}
                )
                if answer.status_code == 200 and answer.json()["clients"]:
                    return
                await asyncio.sleep(0.02)


class User:
    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self._asked = 0

    async def ask(self, **op: Any) -> dict[str, Any]:
        self._asked += 1
        if "as_" in op:
            op["as"] = op.pop("as_")
        await self._socket.send(json.dumps({"id": self._asked, **op}))
        return await self._heard()

    async def note(self) -> dict[str, Any]:
        """The next note, as its data says."""
        message = await self._heard()
        assert (message["op"], message["from"]) == ("message", "service:push")
        return dict(message["data"])

    async def silent(self) -> bool:
        """Whether nothing came before an answer that is asked for now."""
        return (await self.ask(op="presence", to="user:nobody"))["op"] == "reply"

    async def _heard(self) -> dict[str, Any]:
        async with asyncio.timeout(10):
            return dict(json.loads(await self._socket.recv()))


@asynccontextmanager
async def hub(folder: Path) -> AsyncIterator[Hub]:
    async with running(folder) as node:
        addresses = node.addresses()
        async with httpx.AsyncClient(base_url=addresses["http"]) as http:
            made = Hub(addresses, http)
            await made.open_app()
            yield made


async def counted(hub: Hub, job: str, wanted: tuple[int, int, int]) -> None:
    async with asyncio.timeout(10):
        while await hub.tally(job) != wanted:
            await asyncio.sleep(0.02)


@on_loop
async def test_a_user_with_a_session_gets_a_note_at_once_and_says_that_it_was_shown(tmp_path: Path):
    async with hub(tmp_path) as node, node.user("bob") as bob:
        await node.seated("bob")
        sent = await node.ask("send", user="bob", data={"hi": [1, None]}, type=7)
        assert sent["sent"] == 1
        note = await bob.note()
        assert note == {
            "note": sent["note"],
            "job": sent["job"],
            "type": 7,
            "data": {"hi": [1, None]},
        }
        assert (await bob.ask(op="shown", notes=[sent["note"]]))["ok"]
        await counted(node, sent["job"], (1, 1, 1))
        # Said twice, it counts once.
        assert (await bob.ask(op="shown", notes=[sent["note"], "p-nonsense"]))["ok"]
        await counted(node, sent["job"], (1, 1, 1))


@on_loop
async def test_what_is_no_json_comes_as_base64(tmp_path: Path):
    async with hub(tmp_path) as node, node.user("bob") as bob:
        await node.seated("bob")
        await node.ask("send", user="bob", data64="AP8=")
        assert (await bob.note())["data64"] == "AP8="


@on_loop
async def test_without_a_session_a_note_waits_for_the_next_hello_and_comes_until_it_is_shown(
    tmp_path: Path,
):
    async with hub(tmp_path) as node:
        async with node.user("bob"):
            await node.seated("bob")
        async with asyncio.timeout(10):
            while True:
                sent = await node.ask("send", user="bob", data="later")
                if sent["offline"]:
                    break
        async with node.user("bob") as bob:
            got = [await bob.note()]
            while got[-1]["note"] != sent["note"]:
                got.append(await bob.note())
        # Not shown: it comes again, and is not counted twice.
        async with node.user("bob") as bob:
            again = [await bob.note() for _ in got]
            assert again == got
            await bob.ask(op="shown", notes=[each["note"] for each in got])
            await counted(node, sent["job"], (1, 1, 1))
        async with node.user("bob") as bob:
            await node.seated("bob")
            assert await bob.silent()


@on_loop
async def test_users_of_an_app_without_push_and_of_another_app_get_nothing(tmp_path: Path):
    async with hub(tmp_path) as node, node.user("bob", "other") as other:
        async with node.user("bob") as bob:
            await node.seated("bob")
            sent = await node.ask("send", user="bob", data=1)
            assert (await bob.note())["note"] == sent["note"]
        # Though it says so, what it never got stays.
        await other.ask(op="shown", notes=[sent["note"]])
        assert await other.silent()
        await counted(node, sent["job"], (1, 1, 0))


@on_loop
async def test_shown_in_one_place_it_is_taken_back_in_the_others(tmp_path: Path):
    async with hub(tmp_path) as node, node.user("bob") as bob:
        web = node.addresses["http"]
        async with Device(app=node.key, device="phone", web=web, cache=tmp_path / "phone") as phone:
            await phone.subscribe("any")  # so that it is connected, and has a client
            await node.seated("bob")
            await node.ask("users/bind", user="bob", device="phone")
            # First on the phone: the session is told.
            sent = await node.ask("send", user="bob", data=1, once=True)
            assert sent["aimed"] == 2
            assert (await bob.note())["note"] == sent["note"]
            shown = await anext(aiter(phone))
            assert shown.id == sent["note"]
            assert await bob.note() == {"retract": sent["note"]}
            # First in the session: the phone never shows it, and the next one is the next.
            sent = await node.ask("send", user="bob", data=2, once=True)
            await bob.note()
            await bob.ask(op="shown", notes=[sent["note"]])
            await counted(node, sent["job"], (2, 2, 1))
            async with asyncio.timeout(10):
                while not await taken_back(node):
                    await asyncio.sleep(0.02)
            last = await node.ask("send", user="bob", data=3)
            assert (await anext(aiter(phone))).id == last["note"]


@on_loop
async def test_each_session_of_a_user_gets_what_was_not_shown_and_loses_what_was_shown_once(
    tmp_path: Path,
):
    async with hub(tmp_path) as node, node.user("bob") as first:
        await node.seated("bob")
        sent = await node.ask("send", user="bob", data=1, once=True)
        assert (await first.note())["note"] == sent["note"]
        async with node.user("bob") as second, node.user("bob") as third:
            assert (await second.note())["note"] == sent["note"]
            assert (await third.note())["note"] == sent["note"]
            assert (await second.ask(op="shown", notes=[sent["note"]]))["ok"]
            assert await first.note() == {"retract": sent["note"]}
            assert await third.note() == {"retract": sent["note"]}
            assert await first.silent()
            assert await second.silent()


async def taken_back(node: Hub) -> bool:
    """Whether a device was told to take a note back."""
    told = (await node.http.get("/metrics")).text
    return "chappe_push_retracted_total 1.0" in told


@on_loop
async def test_a_client_may_not_be_called_like_a_users(tmp_path: Path):
    async with hub(tmp_path) as node:
        body = {"app": node.key, "device": "user bob"}
        answer = await node.http.post("/v1/push/devices", json=body)
        assert answer.status_code == 400
        assert answer.json()["reason"].startswith("device:")


@on_loop
async def test_too_many_notes_shown_at_once_are_refused(tmp_path: Path):
    async with hub(tmp_path) as node, node.user("bob") as bob:
        answer = await bob.ask(op="shown", notes=["p"] * 1001)
        assert (answer["ok"], answer["error"]) == (False, "protocol")
        assert answer["reason"].startswith("notes:")
