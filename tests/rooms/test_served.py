"""Rooms on a node that is alone: all roles in one process, clients on every edge."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from chappe import Client, blocking, connect
from chappe.access.token import Key
from chappe.client import ClientOptions, Reconnected
from chappe.errors import BadRequest, Forbidden, Overload
from chappe.hub.options import AppQuota, HubOptions
from chappe.node.node import Node
from chappe.node.options import Access
from chappe.rooms.options import RoomsOptions
from tests.loop import on_loop
from tests.node.running import running

SECRET = b"a secret of more than thirty-two bytes, for tests"
FORMS = ("websocket-packed", "websocket-text", "tcp")


def dial(node: Node, name: str, edge: str = "tcp", **named: Any) -> Any:
    """Connect to a node by one of its edges."""
    form = "text" if edge.endswith("text") else "packed"
    options = ClientOptions(form=form, backoff_first_s=0.01, backoff_max_s=0.05)
    url = node.addresses()[edge.partition("-")[0]]
    return connect(url, as_=f"user:{name}", options=options, **named)


@asynccontextmanager
async def asking(node: Node, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """Ask a node over HTTP."""
    url = node.addresses()["http"]
    async with httpx.AsyncClient(
        base_url=url, timeout=20, trust_env=False, headers=headers
    ) as http:
        yield http


async def data_of(client: Client, count: int) -> list[Any]:
    return [(await client.receive()).data for _ in range(count)]


async def settled(node: Node, *clients: Client) -> None:
    """Wait until whatever was published to rooms before this has come to everybody."""
    for client in clients:
        await client.join("room:settled")
    await clients[0].publish("room:settled", "settled")
    for client in clients:
        while client.waiting == 0:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("edge", FORMS)
@on_loop
async def test_members_hear_in_order_what_anybody_says_until_they_leave(
    tmp_path: Path, edge: str
) -> None:  # R14
    async with (
        running(tmp_path) as node,
        dial(node, "alice", edge) as alice,
        dial(node, "bob", edge) as bob,
        dial(node, "carol", edge) as carol,
    ):
        for client in (alice, bob):
            await client.join("room:7")
        for n in range(50):
            carol.post("room:7", n)
        for n in range(50, 60):
            await carol.publish("room:7", n)
        assert await data_of(alice, 60) == await data_of(bob, 60) == list(range(60))
        await bob.leave("room:7")
        await carol.publish("room:7", b"\x00\xff")
        message = await alice.receive()
        assert (message.data, message.sender, message.to) == (b"\x00\xff", "user:carol", "room:7")
        assert (bob.waiting, carol.waiting) == (0, 0)


@on_loop
async def test_a_reliable_message_comes_once_to_each_session(tmp_path: Path) -> None:  # R2, R13
    async with (
        running(tmp_path) as node,
        dial(node, "alice", "websocket-text") as phone,
        dial(node, "alice") as laptop,
        dial(node, "bob") as bob,
    ):
        for client in (phone, laptop):
            await client.join("room:lobby")
        sent = [(await bob.publish("room:lobby", n, reliable=True)).message for n in range(5)]
        await settled(node, phone, laptop)
        for client in (phone, laptop):
            got = [await client.receive() for _ in range(5)]
            assert sorted(str(message.id) for message in got) == sorted(sent)
            assert (await client.receive()).data == "settled"


@on_loop
async def test_a_room_of_the_same_name_in_another_app_hears_nothing(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as node,
        dial(node, "a", app="red") as red,
        dial(node, "a", app="blue") as blue,
    ):
        for client in (red, blue):
            await client.join("room:7")
        await red.publish("room:7", "red", reliable=True)
        assert (await red.receive()).data == "red"
        assert await red.members("room:7", 9) == (1, ("user:a",))
        await settled(node, blue)
        assert (await blue.receive()).data == "settled"


@on_loop
async def test_members_are_counted_and_few_are_named(tmp_path: Path) -> None:
    async with (
        running(tmp_path, rooms=RoomsOptions(who_max=3)) as node,
        dial(node, "alice") as alice,
        dial(node, "alice") as laptop,
        dial(node, "bob") as bob,
    ):
        assert await bob.members("room:7", 3) == (0, ())
        assert await bob.presence("room:7") is False
        for client in (alice, laptop, bob):
            await client.join("room:7")
        assert await bob.members("room:7") == (3, None)
        count, names = await bob.members("room:7", 3)
        assert (count, sorted(names or ())) == (3, ["user:alice", "user:alice", "user:bob"])
        assert await bob.members("room:7", 2) == (3, None)
        assert await bob.presence("room:7") is True
        with pytest.raises(BadRequest, match="n: must be between 0 and 3"):
            await bob.members("room:7", 4)


@on_loop
async def test_a_room_is_joined_again_after_a_reconnect(tmp_path: Path) -> None:
    back = asyncio.Event()

    def notice(told: object) -> None:
        if isinstance(told, Reconnected):
            back.set()

    async with (
        running(tmp_path) as node,
        dial(node, "alice", on_notice=notice) as alice,
        dial(node, "bob") as bob,
    ):
        await alice.join("room:7")
        node.hub.sessions[alice.session].sink.abort()
        await back.wait()
        await bob.publish("room:7", "again")
        assert (await alice.receive()).data == "again"
        assert await bob.members("room:7") == (1, None)


@on_loop
async def test_threads_join_and_leave_as_well(tmp_path: Path) -> None:
    def talk(url: str) -> None:
        with (
            blocking.connect(url, as_="user:alice") as alice,
            blocking.connect(url, as_="user:bob") as bob,
        ):
            alice.join("room:7")
            assert alice.rooms == ("room:7",)
            assert bob.members("room:7", 5) == (1, ("user:alice",))
            bob.publish("room:7", "hello", reliable=True)
            assert alice.receive(10).data == "hello"
            alice.leave("room:7")
            assert alice.rooms == ()
            assert bob.members("room:7").names is None

    async with running(tmp_path) as node:
        await asyncio.to_thread(talk, node.addresses()["tcp"])


@on_loop
async def test_what_a_session_leaves_behind_is_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as node, dial(node, "bob") as bob:
        async with dial(node, "alice") as alice:
            await asyncio.gather(*(alice.join(f"room:{n}") for n in range(30)))
            await alice.publish("room:3", 1)
            assert (await alice.receive()).to == "room:3"

        async def empty() -> bool:
            return (await bob.members("room:3")).members == 0

        while not await empty():
            await asyncio.sleep(0.01)
        assert len(node.hub.apps["default"].rooms) == 0
        await bob.publish("room:3", "to nobody")


@on_loop
async def test_bounds_and_quotas_hold(tmp_path: Path) -> None:
    rooms = RoomsOptions(joins_max=2, message_bytes_max=1000)
    quota = HubOptions(quotas={"metered": AppQuota(messages_per_s=5)})
    async with (
        running(tmp_path, rooms=rooms, hub=quota) as node,
        dial(node, "alice") as alice,
        dial(node, "bob", app="metered") as bob,
    ):
        await alice.join("room:1")
        await alice.join("room:2")
        with pytest.raises(Overload, match="2 rooms"):
            await alice.join("room:3")
        await alice.publish("room:1", "x" * 998)
        with pytest.raises(BadRequest, match=r"data: 1001 bytes, .*rooms\.message_bytes_max"):
            await alice.publish("room:1", "x" * 999)
        for n in range(5):
            await bob.publish("room:1", n)
        with pytest.raises(Overload):
            await asyncio.gather(*(bob.publish("room:1", n) for n in range(5)))


def token(**claims: Any) -> str:
    scopes = {"send": [], "publish": [], "subscribe": [], **claims}
    told = {"app": "shop", "aud": "chappe", "sub": "user:a", "exp": 4e9, **scopes}
    return jwt.encode(told, SECRET, algorithm="HS256", headers={"kid": "k"})


@on_loop
async def test_a_token_says_which_rooms(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(SECRET)
    (tmp_path / "key").chmod(0o600)
    access = Access(keys=[Key(id="k", file=str(tmp_path / "key"), app="shop")])
    allowed = token(subscribe=["room:in.*"], publish=["room:out.*"])
    async with (
        running(tmp_path, dev=False, access=access) as node,
        connect(node.addresses()["tcp"], token=allowed) as alice,
    ):
        await alice.join("room:in.1")
        await alice.publish("room:out.1", 1)
        with pytest.raises(Forbidden, match=r"to: .* may not join room:out\.1"):
            await alice.join("room:out.1")
        with pytest.raises(Forbidden, match=r"to: .* may not publish to room:in\.1"):
            await alice.publish("room:in.1", 1)
        with pytest.raises(Forbidden):
            await alice.members("room:out.1")


@on_loop
async def test_http_publishes_counts_and_refuses_by_the_name_of_the_field(tmp_path: Path) -> None:
    async with running(tmp_path) as node, dial(node, "alice") as alice, asking(node) as http:
        await alice.join("room:links")
        body = {"as": "user:h", "to": "room:links", "data": [1]}
        answer = await http.post("/v1/publish", json=body)
        assert (answer.status_code, answer.json()["ok"]) == (200, True)
        reliable = (await http.post("/v1/publish", json={**body, "reliable": True})).json()
        got = [await alice.receive() for _ in range(2)]
        assert [m.data for m in got] == [[1], [1]]
        assert [str(m.id) for m in got] == [answer.json()["message"], reliable["message"]]
        counted = await http.get("/v1/rooms/links/members")
        assert counted.json() == {"ok": True, "n": 1}
        named = await http.get("/v1/rooms/links/members", params={"who": 5})
        assert named.json() == {"ok": True, "n": 1, "members": ["user:alice"]}
        for path, field in (
            ("/v1/rooms/a*/members", "to:"),
            ("/v1/rooms/links/members?who=-1", "who:"),
            ("/v1/rooms/links/members?who=100000", "who: must be between 0 and"),
        ):
            refused = await http.get(path)
            assert (refused.status_code, refused.json()["error"]) == (400, "protocol"), path
            assert refused.json()["reason"].startswith(field)
        refused = await http.post("/v1/publish", json={**body, "reliable": 1})
        assert "reliable" in refused.json()["reason"]


@on_loop
async def test_a_stream_and_a_poll_hear_what_is_said_in_their_rooms(tmp_path: Path) -> None:
    async with running(tmp_path) as node, dial(node, "bob") as bob, asking(node) as http:
        session = (await http.post("/v1/poll", json={"as": "user:p"})).json()["session"]
        join = {"op": "join", "to": "room:7"}
        assert (await http.post(f"/v1/poll/{session}/ops", json=join)).json() == {"ok": True}
        query = {"as": "user:s", "join": ["room:7", "room:8"], "subscribe": "topic:t"}
        async with http.stream("GET", "/v1/events", params=query) as stream:
            lines = stream.aiter_lines()
            assert (await anext(lines)).startswith("retry")
            await bob.publish("room:7", "both")
            await bob.publish("room:8", "stream", reliable=True)
            await bob.publish("topic:t", "topic")
            heard = []
            async for line in lines:
                if line.startswith("data: "):
                    heard.append(json.loads(line[6:])["data"])
                    if len(heard) == 3:
                        break
            assert sorted(heard) == ["both", "stream", "topic"]
            assert (await bob.members("room:7")).members == 2
        polled = (await http.post("/v1/poll", json={"session": session, "wait_ms": 5000})).json()
        assert [item["data"] for item in polled["messages"]] == ["both"]
        refused = await http.get("/v1/events", params={"as": "user:s", "join": "topic:t"})
        assert (refused.status_code, refused.json()["error"]) == (400, "protocol")
        # Neither a stream that ended nor one that was refused stays in a room.
        while (await bob.members("room:7")).members != 1:
            await asyncio.sleep(0.01)
