"""Requests about a session of another node are answered there, whichever node they come to."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import httpx
import pytest

from chappe.edge.http.options import HttpOptions
from chappe.edge.http.relay import Relayed, RelayedPart
from chappe.errors import Unreachable
from chappe.hub.options import HubOptions
from chappe.wire.ops import Ack, Delivery, Fetch, Reply


class Nodes:
    """Joins the edges of one process: what one relays the other is handed directly."""

    def __init__(self):
        self.services = {}
        self.relayed = []
        self.open = 0

    def named(self, tag):
        return tag if tag in self.services else None

    async def relay(self, node, request):
        self.relayed.append((node, request.method, request.path))
        self.open += 1
        parts = self.services[node].edge.relayed(request)
        try:
            async for part in parts:
                yield part
        finally:
            await parts.aclose()
            self.open -= 1


@asynccontextmanager
async def two(serve, **more):
    nodes = Nodes()
    async with (
        serve(node="here", elsewhere=nodes, **more) as here,
        serve(node="there", elsewhere=nodes, **more) as there,
    ):
        nodes.services = {"here": here, "there": there}
        yield nodes, here, there


def data_of(batch):
    return [item["data"] for item in batch["messages"]]


def test_a_polled_session_works_through_any_node(serve, run):  # H2, H3
    async def main():
        async with two(serve) as (nodes, here, there):
            session = await there.open_poll("user:bob")
            assert session.endswith(".there")
            path = f"/v1/poll/{session}"
            answer = await here.post(f"{path}/ops", {"op": "subscribe", "to": "topic:t"})
            assert (answer.status_code, answer.json()) == (200, {"ok": True})
            wrong = await here.post(f"{path}/ops", {"op": "send", "to": "user:no", "data": 1})
            assert (wrong.status_code, wrong.json()["error"]) == (404, "unreachable")
            polling = asyncio.create_task(here.poll(session, wait_ms=20_000))
            await there.until(lambda: not there.hub.sessions[session].paused)
            await there.post("/v1/publish", {"to": "topic:t", "data": 1})
            first = await polling
            assert data_of(first) == [1]
            # Not acknowledged, it comes again, wherever it is asked for.
            assert await there.poll(session) == first
            assert data_of(await here.poll(session, ack=1)) == []
            assert (await here.client.delete(path)).json() == {"ok": True}
            assert not there.hub.sessions
            assert (await here.post("/v1/poll", {"session": session})).status_code == 404
            assert {node for node, _, _ in nodes.relayed} == {"there"}
            assert not nodes.open

    run(main)


def test_a_large_batch_comes_through_in_parts_and_whole(serve, run):
    async def main():
        async with two(serve) as (_, here, there):
            session = await there.open_poll("user:bob", "topic:t")
            text = "x" * 500_000
            await there.post("/v1/publish", {"to": "topic:t", "data": text})
            assert data_of(await here.poll(session, wait_ms=1000)) == [text]

    run(main)


def test_a_stream_comes_through_any_node_and_ends_with_its_reader(serve, run):
    options = HubOptions(heartbeat_s=0.05)

    async def main():
        async with two(serve, hub_options=options) as (nodes, here, there):
            session = await there.open_poll("user:bob", "topic:t")
            url = f"/v1/events?session={session}&subscribe=topic:u"
            tasks = len(asyncio.all_tasks())
            async with here.client.stream("GET", url) as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                lines = response.aiter_lines()
                for number in range(3):
                    to = "topic:" + "tu"[number % 2]
                    await there.post("/v1/publish", {"to": to, "data": number})
                    while not (line := await anext(lines)).startswith("data: "):
                        pass
                    assert json.loads(line.removeprefix("data: "))["data"] == number
                while await anext(lines) != ": beat":
                    pass
                assert nodes.open == 1
            await there.until(lambda: not nodes.open)
            await there.until(lambda: len(asyncio.all_tasks()) <= tasks)
            await there.until(lambda: there.hub.sessions[session].paused)
            await there.post("/v1/publish", {"to": "topic:t", "data": "later"})
            assert data_of(await here.poll(session, wait_ms=1000)) == ["later"]

    run(main)


def test_a_stream_whose_reader_does_not_read_is_bounded_on_the_way(serve, run):
    options = HubOptions(heartbeat_s=0.05, poll_lease_s=0.2, outbox_bytes_max=200_000)

    async def main():
        async with two(serve, hub_options=options) as (nodes, _, there):
            name = await there.open_poll("user:bob", "topic:t")
            session = there.hub.sessions[name]
            # A link that takes the head of the answer, and then no more.
            parts = there.edge.relayed(_events(name))
            assert (await anext(parts)).status == 200
            line, was_stuck = session.sink.connection, False
            for _ in range(100):
                await there.post("/v1/publish", {"to": "topic:t", "data": "x" * 50_000})
                assert session.backlog_bytes <= 300_000
                was_stuck = was_stuck or line.stuck
            assert was_stuck
            # Nobody reads it, so it shows no life.
            await there.until(lambda: session.closed)
            await parts.aclose()
            assert not nodes.relayed

    run(main)


def _events(session):
    return Relayed("GET", "/v1/events", f"session={session}".encode(), {}, b"", "127.0.0.1")


@pytest.mark.parametrize("session", ["no", "no.", "no.here", "no.nowhere", "no.there.here"])
def test_sessions_of_no_known_node_are_not_found(serve, run, session):
    async def main():
        async with two(serve) as (nodes, here, _):
            for path, body in (
                ("/v1/poll", {"session": session}),
                (f"/v1/poll/{session}/ops", {"op": "ping"}),
                ("/v1/queues/q/fetch", {"session": session}),
                ("/v1/queues/q/ack", {"session": session, "message": "1"}),
            ):
                assert (await here.post(path, body)).status_code == 404, path
            assert (await here.client.delete(f"/v1/poll/{session}")).status_code == 404
            assert (await here.get(f"/v1/events?session={session}")).status_code == 404
            assert nodes.relayed == []

    run(main)


def test_a_relayed_request_is_not_relayed_again(serve, run):
    async def main():
        async with two(serve) as (nodes, here, there):
            there.hub.tag = "elsewhere"  # two nodes that do not agree who is who
            answer = await here.post("/v1/poll", {"session": "no.there"})
            assert answer.status_code == 404
            assert len(nodes.relayed) == 1

    run(main)


class Silent:
    """A node that answers nothing, or half, or goes away."""

    def __init__(self, way):
        self.way = way
        self.closed = 0

    def named(self, tag):
        return tag

    async def relay(self, node, request):
        try:
            if self.way == "gone":
                raise Unreachable(f"{node} is gone")
            if self.way == "half":
                yield RelayedPart(200, {"content-type": "application/json"})
                yield RelayedPart(body=b'{"ok":')
                raise Unreachable(f"{node} is gone")
            if self.way == "silent":
                await asyncio.Event().wait()
        finally:
            self.closed += 1


def test_a_node_that_does_not_answer_is_not_waited_for_without_end(serve, run):
    async def main():
        options = HttpOptions(answer_timeout_s=0.02, poll_wait_ms_max=20)
        for way, status in (("silent", 503), ("empty", 503), ("gone", 404)):
            silent = Silent(way)
            async with serve(node="here", elsewhere=silent, options=options) as service:
                answer = await service.post("/v1/poll", {"session": "x.there"})
                assert answer.status_code == status, way
                assert silent.closed == 1
                assert answer.json().get("outcome") == ("unknown" if status == 503 else None)

    run(main)


def test_half_an_answer_is_not_taken_for_a_whole_one(serve, run):
    async def main():
        async with serve(node="here", elsewhere=Silent("half")) as service:
            with pytest.raises(httpx.RemoteProtocolError):
                await service.post("/v1/poll", {"session": "x.there"})

    run(main)


def test_what_was_fetched_on_one_node_is_acknowledged_through_another(serve, run):  # H17
    async def main():
        async with two(serve) as (_, here, there):
            acked = []

            def fetch(session, op):
                item = Delivery(message="7", from_="user:al", to=op.to)
                there.hub.say(session, item)
                there.hub.answer(session, Reply(id=op.id, ok=True, n=1))

            def ack(session, op):
                acked.append(op.message)
                there.hub.answer(session, Reply(id=op.id, ok=True))

            there.hub.serve({Fetch: fetch, Ack: ack})
            got = (await there.post("/v1/queues/q/fetch", {})).json()
            assert [item["message"] for item in got["messages"]] == ["7"]
            again = await here.post("/v1/queues/q/fetch", {"session": got["session"]})
            assert again.json()["session"] == got["session"]
            body = {"session": got["session"], "message": ["7", "7"], "leave": True}
            assert (await here.post("/v1/queues/q/ack", body)).json() == {"ok": True, "n": 2}
            assert acked == ["7", "7"]
            assert not there.hub.sessions

    run(main)
