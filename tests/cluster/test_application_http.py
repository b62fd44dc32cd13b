"""HTTP across nodes: a polled session may be asked for anywhere; and what nobody is shown."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from chappe.hub.options import HubOptions
from tests.cluster.intruder import Intruder
from tests.cluster.town import PATIENCE_S, Town, data, receive, town, until
from tests.loop import on_loop


class Polling:
    """Somebody who polls, each time through another node."""

    def __init__(self, session: str, nodes: list[httpx.AsyncClient]) -> None:
        self.session = session
        self._nodes = nodes
        self._turn = 0
        self._batch: int | None = None

    @classmethod
    async def open(cls, place: Town, at: int, name: str) -> Polling:
        nodes = [await place.http(one) for one in range(len(place.nodes))]
        opened = await post(nodes[at], "/v1/poll", {"as": f"user:{name}"})
        return cls(opened["session"], nodes)

    @property
    def node(self) -> httpx.AsyncClient:
        self._turn += 1
        return self._nodes[self._turn % len(self._nodes)]

    async def op(self, op: str, **fields: Any) -> dict[str, Any]:
        body = {"op": op, "id": 1, **fields}
        return await post(self.node, f"/v1/poll/{self.session}/ops", body)

    async def poll(self, wait_ms: int = 0) -> list[Any]:
        body = {"session": self.session, "wait_ms": wait_ms, "ack": self._batch}
        if self._batch is None:
            del body["ack"]
        told = await post(self.node, "/v1/poll", body)
        self._batch = told["batch"]
        return [item["data"] for item in told["messages"] if item["op"] == "message"]

    async def collect(self, n: int) -> list[Any]:
        found: list[Any] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < n:
                found += await self.poll(wait_ms=2000)
        return found


async def post(node: httpx.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    response = await node.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def events(response: httpx.Response) -> AsyncIterator[Any]:
    """What the events of a stream hold."""
    assert response.status_code == 200
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            if event.get("op") == "message":
                yield event["data"]


@on_loop
async def test_a_polled_session_is_a_full_connection_through_any_node(tmp_path: Path):  # H3, H13
    async with town(tmp_path) as place:
        bob = await Polling.open(place, 0, "bob")
        others = [await place.client(at, f"u{at}") for at in range(3)]
        await place.settle()
        # The session's id ends in its node's tag, so any other can bring a request there; its name
        # is nobody's concern.
        assert re.fullmatch("[0-9a-f]{32}[.][0-9a-f]{8}", bob.session)
        assert await others[1].presence("user:bob")
        topic, service = place.placed("topic", 1), place.placed("service", 2)
        assert (await bob.op("subscribe", to=topic))["ok"]
        for at, other in enumerate(others):
            await other.send("user:bob", at)
        await others[2].publish(topic, "topic")
        assert sorted(await bob.collect(4), key=str) == [0, 1, 2, "topic"]
        for at in range(3):
            assert (await bob.op("send", to=f"user:u{at}", data="hello"))["ok"]
            message = await receive(others[at])
            assert (message.sender, message.data) == ("user:bob", "hello")
        assert (await bob.op("publish", to=topic, data=1))["nodes"] == 1
        assert await bob.collect(1) == [1]
        assert (await bob.op("presence", to="user:u2"))["online"]
        # It may ask a service, and provide one.
        await others[1].provide(service, lambda asked: asked + 1)
        assert (await bob.op("request", to=service, data=1))["data"] == 2
        assert await bob.poll() == []


@on_loop
async def test_nothing_is_lost_between_two_polls_and_what_is_not_acknowledged_comes_again(
    tmp_path: Path,
):  # H3
    async with town(tmp_path) as place:
        bob, sender = await Polling.open(place, 0, "bob"), await place.client(1, "s")
        await place.settle()
        for n in range(50):
            await sender.send("user:bob", n)
        nodes = [await place.http(at) for at in range(3)]
        batches = [
            await post(node, "/v1/poll", {"session": bob.session, "wait_ms": 0}) for node in nodes
        ]
        assert batches[0] == batches[1] == batches[2]
        assert await bob.collect(50) == list(range(50))
        assert await bob.poll() == []


@on_loop
async def test_a_long_poll_through_another_node_ends_with_the_message(tmp_path: Path):  # H3
    async with town(tmp_path) as place:
        bob, sender = await Polling.open(place, 2, "bob"), await place.client(1, "s")
        await place.settle()
        for n in range(3):
            waiting = asyncio.create_task(bob.poll(wait_ms=8000))
            await until(lambda: not place.nodes[2].hub.sessions[bob.session].paused)
            assert not waiting.done()
            await sender.send("user:bob", n)
            async with asyncio.timeout(5):
                assert await waiting == [n]


@on_loop
async def test_a_stream_through_another_node_brings_what_comes(tmp_path: Path):  # H3
    async with town(tmp_path) as place:
        bob, sender = await Polling.open(place, 1, "bob"), await place.client(2, "s")
        await place.settle()
        topic = place.placed("topic", 0)
        node = await place.http(0)
        url = f"/v1/events?session={bob.session}&subscribe={topic}"
        async with asyncio.timeout(PATIENCE_S), node.stream("GET", url) as response:
            told = events(response)
            for n in range(5):
                await sender.publish(topic, n)
                assert await anext(told) == n
                await sender.send("user:bob", "direct")
                assert await anext(told) == "direct"
            await told.aclose()
        # A stream of its own, on a node that is not the topic's home.
        url = f"/v1/events?as=user:eve&subscribe={topic}"
        async with asyncio.timeout(PATIENCE_S), node.stream("GET", url) as response:
            told = events(response)
            await sender.publish(topic, "eve")
            assert await anext(told) == "eve"
            await told.aclose()
        await until(lambda: "user:eve" not in place.app(0).endpoints)


@on_loop
async def test_requests_of_an_app_server_work_on_any_node(tmp_path: Path):  # H5, H8, H17, H18
    async with town(tmp_path) as place:
        nodes = [await place.http(at) for at in range(3)]
        bob = await place.client(1, "bob")
        me = {"as": "user:server"}
        topic, service = place.placed("topic", 2), place.placed("service", 2)
        await bob.subscribe(topic)
        await bob.provide(service, lambda asked: asked)
        await place.settle()
        for at, node in enumerate(nodes):
            sent = await post(node, "/v1/send", {**me, "to": "user:bob", "data": at})
            message = await receive(bob)
            assert (str(message.id), message.data) == (sent["message"], at)
            published = await post(node, "/v1/publish", {**me, "to": topic, "data": at})
            assert published["nodes"] == 1
            assert await data(bob) == [at]
            asked = await node.get("/v1/presence", params={"to": "user:bob", **me})
            assert asked.json()["online"]
            name = service.partition(":")[2]
            answer = await post(node, f"/v1/services/{name}/request", {**me, "data": at})
            assert answer["data"] == at
        refused = await nodes[0].post("/v1/send", json={**me, "to": "user:nobody", "data": 1})
        assert refused.status_code == 404
        assert refused.json()["error"] == "unreachable"
        # A queue at home on the first node: sent to, fetched from and acknowledged on others.
        admin = await place.client(0, "admin")
        await admin.create("queue:jobs", volatile=True)
        await place.settle()
        await post(nodes[1], "/v1/queues/jobs/send", {**me, "data": "job"})
        fetched = await post(nodes[2], "/v1/queues/jobs/fetch", {**me, "wait_ms": 2000})
        (item,) = fetched["messages"]
        assert item["data"] == "job"
        body = {"session": fetched["session"], "message": item["message"]}
        assert (await post(nodes[1], "/v1/queues/jobs/ack", body))["ok"]
        assert await bob.fetch("queue:jobs") == []


@on_loop
async def test_a_session_ends_when_it_is_closed_through_any_node_or_not_polled(
    tmp_path: Path,
):  # H4
    async with town(tmp_path, hub=HubOptions(heartbeat_s=0.2, poll_lease_s=0.6)) as place:
        asking = await place.client(2, "asking")
        closed = await Polling.open(place, 0, "closed")
        forgotten = await Polling.open(place, 1, "forgotten")
        await place.settle()
        assert await asking.presence("user:closed")
        node = await place.http(1)
        assert (await node.delete(f"/v1/poll/{closed.session}")).status_code == 200
        await place.settle()
        assert not await asking.presence("user:closed")

        async def gone() -> bool:
            return not await asking.presence("user:forgotten")

        await until(gone, "a session that nobody polls stays")
        for session in (closed.session, forgotten.session, "nonsense", "x.n9", "x.n1"):
            answer = await node.post("/v1/poll", json={"session": session})
            assert answer.status_code == 404


@on_loop
async def test_a_poll_for_a_session_whose_node_goes_is_told_so_at_once(tmp_path: Path):  # H3
    async with town(tmp_path) as place:
        bob = await Polling.open(place, 2, "bob")
        node = await place.http(0)
        await place.settle()
        body = {"session": bob.session, "wait_ms": 8000}
        waiting = asyncio.create_task(node.post("/v1/poll", json=body))
        await until(lambda: not place.nodes[2].hub.sessions[bob.session].paused)
        await place.nodes[2].drain()
        async with asyncio.timeout(5):
            told = await waiting
            assert told.json()["messages"][0]["op"] == "reconnect"
            assert (await node.post("/v1/poll", json=body)).status_code == 404


@on_loop
async def test_nothing_of_the_cluster_is_shown_to_who_is_no_administrator(tmp_path: Path):  # H6
    async with town(tmp_path, dev=False) as place:
        node = await place.http(0)
        user = place.token("user:bob", send=["*"], publish=["*"], subscribe=["*"])
        bearer = {"authorization": f"Bearer {user}"}
        ports = {peer.mesh.me.url.rpartition(":")[2] for peer in neighbours(place)}
        for path in ("/v1/nodes", "/v1/routes", "/v1/sessions", "/v1/status"):
            assert (await node.get(path)).status_code == 401, path
            assert (await node.get(path, headers=bearer)).status_code == 403, path
        for path in ("/", "/healthz", "/readyz", "/openapi.json", "/link", "/v1/link"):
            answer = await node.get(path, headers=bearer)
            assert not any(name in answer.text for name in ("n1", "n2", *ports)), path
        assert not ports & {url.rpartition(":")[2] for url in place.nodes[0].addresses().values()}
        # Whoever administers may see it.
        admin = place.token("user:admin", admin=["*"])
        shown = await node.get("/v1/nodes", headers={"authorization": f"Bearer {admin}"})
        assert {one["name"] for one in shown.json()["nodes"]} == {"n0", "n1", "n2"}


def neighbours(place: Town) -> list[Any]:
    """The parts of nodes that link them."""
    return [node.neighbourhood for node in place.nodes]


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01 not TLS either \r\n\r\n",
    ],
)
@on_loop
async def test_a_stranger_learns_nothing_at_the_port_of_links(tmp_path: Path, said: bytes):  # H6
    async with town(tmp_path, 2) as place:
        port = int(place.nodes[0].neighbourhood.mesh.me.url.rpartition(":")[2])
        stranger = await Intruder.connect(port)
        stranger.writer.write(said)
        async with asyncio.timeout(PATIENCE_S):
            told = await stranger.hung_up()
        for word in (b"n0", b"n1", b"chappe", b"default", b"user:"):
            assert word not in told.lower()
        # And nobody noticed.
        user = await place.client(1, "u")
        await user.send("user:watch-0", 1)


@on_loop
async def test_a_stranger_who_upgrades_and_guesses_gets_no_answer(tmp_path: Path):  # H6
    async with town(tmp_path, 2) as place:
        mesh = place.nodes[0].neighbourhood.mesh
        port = int(mesh.me.url.rpartition(":")[2])
        stranger = await Intruder.upgrade(port)
        stranger.say_raw(b"\x01" + bytes(32))
        stranger.say_raw(b"\x03" + bytes(100))
        async with asyncio.timeout(PATIENCE_S):
            told = await stranger.hung_up()
        for word in (b"n0", b"n1", b"default", b"user:"):
            assert word not in told
        assert set(mesh.links) == {"n1"}
