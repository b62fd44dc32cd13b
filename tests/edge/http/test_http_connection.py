"""Connections that misbehave: slow heads, slow bodies, oversize, garbage; and stopping."""

from __future__ import annotations

import asyncio
import json

from chappe.edge.http.options import HttpOptions
from chappe.wire.limits import Limits

QUICK = HttpOptions(header_timeout_s=0.2, body_timeout_s=0.2, keep_alive_s=1)


async def connect(service):
    return await asyncio.open_connection("127.0.0.1", service.port)


async def drip(writer, data):
    """Send byte by byte until the other side has had enough."""
    try:
        for byte in data:
            writer.write(bytes((byte,)))
            await writer.drain()
            await asyncio.sleep(0.02)
    except ConnectionError:
        pass


async def read_to_end(reader):
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""


def test_a_head_sent_byte_by_byte_is_cut_off(serve, run):
    async def main():
        async with serve(options=QUICK) as service:
            reader, writer = await connect(service)
            sending = asyncio.create_task(
                drip(writer, b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 9999)
            )
            answer = await read_to_end(reader)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["ok"] is False
            writer.close()
            sending.cancel()
            assert (await service.get("/healthz")).status_code == 200

    run(main)


def test_a_connection_that_says_nothing_is_cut_off(serve, run):
    async def main():
        async with serve(options=QUICK) as service:
            reader, writer = await connect(service)
            assert (await read_to_end(reader)).startswith(b"HTTP/1.1 408 ")
            writer.close()

    run(main)


def test_a_second_head_on_a_kept_connection_has_no_more_time(serve, run):
    async def main():
        async with serve(options=QUICK) as service:
            reader, writer = await connect(service)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b'{"ok":true}')).startswith(b"HTTP/1.1 200 ")
            sending = asyncio.create_task(
                drip(writer, b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 9999)
            )
            assert (await read_to_end(reader)).startswith(b"HTTP/1.1 408 ")
            writer.close()
            sending.cancel()

    run(main)


def test_a_body_that_does_not_come_is_cut_off(serve, run):
    async def main():
        async with serve(options=QUICK) as service:
            reader, writer = await connect(service)
            writer.write(
                b"POST /v1/send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
            )
            assert await read_to_end(reader) == b""
            writer.close()
            await service.until(lambda: not service.edge._state.tasks)

    run(main)


def test_an_oversize_body_is_refused_before_it_is_read(serve, run):
    async def main():
        async with serve(limits=Limits(message_bytes_max=1000)) as service:
            reader, writer = await connect(service)
            writer.write(
                b"POST /v1/send HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
            )
            async with asyncio.timeout(10):
                assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
            writer.close()

            async def chunks():
                for _ in range(100):
                    yield b" " * 100

            for content in (b" " * 2001, chunks()):
                refused = await service.client.post("/v1/publish", content=content)
                assert refused.status_code == 413
                assert refused.json()["error"] == "protocol"
            # The rest of the body was thrown away; the connection still serves.
            assert (await service.get("/healthz")).status_code == 200

    run(main)


def test_what_is_not_http_is_refused_in_the_same_form(serve, run):
    async def main():
        async with serve() as service:
            for garbage in (
                b"\x16\x03\x01garbage\r\n\r\n",
                b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000,
            ):
                reader, writer = await connect(service)
                writer.write(garbage)
                answer = await read_to_end(reader)
                assert answer.startswith(b"HTTP/1.1 400 "), garbage[:20]
                assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "protocol"
                writer.close()

    run(main)


def test_connections_above_the_bound_are_turned_away(serve, run):
    async def main():
        async with serve(options=HttpOptions(connections_max=2)) as service:
            kept = [await connect(service) for _ in range(2)]
            await service.until(lambda: len(service.edge._state.connections) == 2)
            reader, writer = await connect(service)
            assert (await read_to_end(reader)).startswith(b"HTTP/1.1 503 ")
            for each in (writer, *(w for _, w in kept)):
                each.close()
            await service.until(lambda: not service.edge._state.connections)
            assert (await service.get("/healthz")).status_code == 200

    run(main)


def test_stopping_closes_idle_connections_and_ends_polls_and_streams(serve, run):
    async def main():
        async with serve() as service:
            _, idle = await connect(service)
            session = await service.open_poll("user:bob")
            polling = asyncio.create_task(service.poll(session, wait_ms=20_000))
            await service.until(lambda: not service.hub.sessions[session].paused)
            async with service.client.stream("GET", "/v1/events?as=user:eve") as response:
                lines = response.aiter_lines()
                await anext(lines)
                async with asyncio.timeout(3):
                    await service.edge.stop()
                    assert (await polling)["messages"][-1]["op"] == "closed"
                    assert "closed" in "".join([line async for line in lines])
            assert not service.edge._state.connections
            idle.close()
            await service.edge.start()

    run(main)


def test_a_request_with_two_lengths_is_refused_and_nothing_behind_it_is_answered(serve, run):
    async def main():
        async with serve() as service:
            reader, writer = await connect(service)
            writer.write(
                b"POST /v1/poll HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            )
            answer = await read_to_end(reader)
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert answer.count(b"HTTP/1.1") == 1
            writer.close()

    run(main)


def test_headers_above_the_bound_are_refused_also_when_they_come_at_once(serve, run):
    async def main():
        async with serve(options=HttpOptions(header_bytes_max=4096)) as service:
            small = await service.get("/healthz", headers={"x": "x" * 3000})
            assert small.status_code == 200
            large = await service.get("/healthz", headers={"x": "x" * 5000})
            assert large.status_code in (400, 431)

    run(main)
