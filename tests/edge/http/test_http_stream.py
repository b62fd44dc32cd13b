"""Server-sent events: delivery, beats, backpressure, disconnects."""

from __future__ import annotations

import asyncio
import json
import socket

from chappe.errors import CloseCode
from chappe.hub.options import HubOptions


class Events:
    """The events of an open stream."""

    def __init__(self, response):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        self._lines = response.aiter_lines()

    async def next_line(self):
        async with asyncio.timeout(10):
            while not (line := await anext(self._lines)):
                pass
            return line

    async def next(self):
        while not (line := await self.next_line()).startswith("data: "):
            pass
        return json.loads(line.removeprefix("data: "))


async def publish(service, data, to="topic:t"):
    assert (await service.post("/v1/publish", {"to": to, "data": data})).status_code == 200


def only_session(service):
    (session,) = service.hub.sessions.values()
    return session


def test_a_stream_of_its_own_brings_messages_and_ends_with_its_connection(serve, run):
    async def main():
        async with serve() as service:
            url = "/v1/events?as=user:bob&subscribe=topic:t&subscribe=topic:u"
            async with service.client.stream("GET", url) as response:
                events = Events(response)
                assert only_session(service).edge == "sse"
                for number in range(3):
                    await publish(service, {"n": number}, to="topic:" + "tu"[number % 2])
                    assert (await events.next())["data"] == {"n": number}
                await service.client.post(
                    "/v1/send", content=b'{"to":"user:bob","data":\n[1,\r\n2]}'
                )
                assert (await events.next())["data"] == [1, 2]
            await service.until(lambda: not service.hub.sessions)

    run(main)


def test_a_message_that_is_nested_as_deeply_as_one_may_be_does_not_end_a_stream(serve, run):
    async def main():
        async with serve() as service:
            url = "/v1/events?as=user:bob"
            async with service.client.stream("GET", url) as response:
                events = Events(response)
                status = 0
                depth = 1_000
                while status != 200:
                    depth -= 1
                    deep = b"[" * depth + b"]" * depth
                    body = b'{"to":"user:bob","data":' + deep + b"}"
                    answer = await service.client.post("/v1/send", content=body)
                    status = answer.status_code
                    assert status in (200, 400)
                assert depth > 900
                while not (line := await events.next_line()).startswith("data: "):
                    pass
                assert deep.decode() in line
                await service.post("/v1/send", {"to": "user:bob", "data": 1})
                assert (await events.next())["data"] == 1

    run(main)


def test_a_polled_session_can_be_streamed_from_where_its_polls_ended(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob", "topic:t")
            await publish(service, "unacknowledged")
            await service.poll(session)
            await publish(service, "waiting")
            async with service.client.stream("GET", f"/v1/events?session={session}") as response:
                events = Events(response)
                assert (await events.next())["data"] == "unacknowledged"
                assert (await events.next())["data"] == "waiting"
                await publish(service, "live")
                assert (await events.next())["data"] == "live"
            await service.until(lambda: service.hub.sessions[session].paused)
            await publish(service, "later")
            got = await service.poll(session, wait_ms=1000)
            assert [item["data"] for item in got["messages"]] == ["later"]

    run(main)


def test_a_silent_stream_gets_beats_and_stays(serve, run):  # H4
    options = HubOptions(heartbeat_s=0.02, heartbeats_missed_max=3)

    async def main():
        async with (
            serve(hub_options=options) as service,
            service.client.stream("GET", "/v1/events?as=user:bob") as response,
        ):
            events = Events(response)
            beats = [await events.next_line() for _ in range(6)]
            assert beats[1:] == [": beat"] * 5
            assert len(service.hub.sessions) == 1

    run(main)


def test_a_refused_subscription_opens_no_stream(serve, run, bearer):
    async def main():
        async with serve(dev=False) as service:
            token = bearer("user:bob", subscribe=["topic:a"])
            url = "/v1/events?subscribe=topic:a&subscribe=topic:b"
            answer = await service.get(url, headers=token)
            assert answer.status_code == 403
            assert not service.hub.sessions
            async with service.client.stream(
                "GET", "/v1/events?subscribe=topic:a", headers=token
            ) as response:
                assert response.status_code == 200
                assert only_session(service).address == "user:bob"

    run(main)


def test_a_closed_session_ends_its_stream_with_the_code(serve, run):
    async def main():
        async with (
            serve() as service,
            service.client.stream("GET", "/v1/events?as=user:bob") as response,
        ):
            events = Events(response)
            await events.next_line()
            service.hub.close(only_session(service), CloseCode.REVOKED, "gone")
            assert await events.next() == {"op": "closed", "code": 4003, "reason": "gone"}
            assert [line async for line in events._lines if line] == []

    run(main)


def test_a_reader_that_never_reads_is_bounded_and_disturbs_nobody(serve, run):
    options = HubOptions(heartbeat_s=0.1, outbox_bytes_max=200_000)

    async def main():
        async with serve(hub_options=options) as service:
            loop = asyncio.get_running_loop()
            with socket.socket() as stuck:
                stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                stuck.setblocking(False)
                await loop.sock_connect(stuck, ("127.0.0.1", service.port))
                await loop.sock_sendall(
                    stuck,
                    b"GET /v1/events?as=user:bob&subscribe=topic:t HTTP/1.1\r\n"
                    b"Host: localhost\r\n\r\n",
                )
                await service.until(lambda: service.hub.sessions)
                session = only_session(service)
                for _ in range(200):
                    await publish(service, "x" * 50_000)
                    assert session.backlog_bytes <= 300_000
                # It shows no life, so it goes; its connection does not linger.
                await service.until(lambda: not service.hub.sessions)
                await service.until(lambda: len(service.edge._state.connections) <= 1)
            assert (await service.get("/healthz")).status_code == 200

    run(main)
