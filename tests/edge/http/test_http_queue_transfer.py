"""Queues written down as JSON lines, and read again (Q12)."""

from __future__ import annotations

import json

import httpx
import pytest
from msgspec import Raw

from chappe.edge.http.options import HttpOptions
from chappe.errors import Overload
from chappe.wire.limits import Limits
from chappe.wire.ops import Inspect, Reply, Send
from tests.edge.http.test_http_queues import fetch, make, send, settle, shown


async def export(service, name="q"):
    answer = await service.get(f"/v1/queues/{name}/export")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


async def import_(service, lines, name="q", **query):
    content = lines if isinstance(lines, bytes) else b"".join(_line(line) for line in lines)
    answer = await service.client.post(f"/v1/queues/{name}/import", content=content, params=query)
    return answer.status_code, answer.json()


def _line(value):
    return json.dumps(value).encode() + b"\n"


def messages(*data, **fields):
    return [{"message": {"data": each, **fields}} for each in data]


def kinds(lines):
    return [next(iter(line)) for line in lines]


QUEUE = {"queue": {"options": {"volatile": True}}}


def test_what_was_exported_is_imported_as_it_was(serve, run):  # Q12
    async def main():
        async with serve() as service:
            await make(service, lanes=2, attempts_max=1)
            register = {"name": "al", "group": "g", "tags": ["t"]}
            await service.post("/v1/queues/q/consumers", register)
            await send(service, "dies", tags=["t"])
            await settle(service, "nack", await fetch(service, group="g"))
            said = {"headers": {"h": "v"}, "tags": ["t"], "num": 3, "type": 0, "key": "k"}
            for number in range(150):
                await send(service, number, **said)
            await service.post("/v1/queues/q/send", {"data64": "AAH/", "tags": ["t"]})
            await send(service, "later", delay_ms=600_000)
            lines = await export(service)
            assert kinds(lines) == ["queue", "group", *["message"] * 151, "delayed", "dead", "end"]
            assert lines[-1]["end"] == {"groups": 1, "messages": 151, "delayed": 1, "dead": 1}
            assert lines[-2]["dead"]["death"]["group"] == "g"

            status, answer = await import_(service, lines, "copy", dead="true")
            assert status == 200, answer
            counts = {"groups": 1, "messages": 151, "delayed": 1, "dead": 1, "skipped": 0}
            assert answer == {"ok": True, "done": len(lines), **counts}
            copied, first = await shown(service, "copy"), await shown(service, "q")
            assert copied["options"] == first["options"]
            assert [group["consumers"] for group in copied["groups"]] == [["al"]]
            assert [group["tags"] for group in copied["groups"]] == [["t"]]
            assert copied["delayed"] == 1
            got = [m["message"] for m in await export(service, "copy") if "message" in m]
            keyed = [message for message in got if message.get("key") == "k"]
            assert [message["data"] for message in keyed] == list(range(150))
            assert all(message.items() >= said.items() for message in keyed)
            assert [m["data64"] for m in got if "data64" in m] == ["AAH/"]
            assert [m["data"] for m in got if m.get("data") == "dies"] == ["dies"]

    run(main)


def test_an_import_is_taken_line_by_line_however_it_is_cut(serve, run):  # Q12
    async def main():
        async with serve() as service:
            content = b"".join(map(_line, [QUEUE, *messages(0, 1, 2)])) + b"\n\n"
            content += b'{"message": {"data": 3}}'

            async def pieces():
                for at in range(0, len(content), 7):
                    yield content[at : at + 7]

            answer = await service.client.post("/v1/queues/q/import", content=pieces())
            assert (answer.json()["messages"], answer.json()["done"]) == (4, 7)
            got = await fetch(service, n=9)
            assert [item["data"] for item in got["messages"]] == [0, 1, 2, 3]

    run(main)


def test_a_wrong_line_is_named_and_all_before_it_went_in(serve, run):  # Q12
    async def main():
        async with serve() as service:
            for number, (wrong, why) in enumerate(
                [
                    (b"{", "truncated"),
                    (b"[]", "Expected `object`"),
                    (b"{}", "one of queue, group, message"),
                    (b'{"message": {}, "end": {}}', "here are 2"),
                    (b'{"message": {"kee": 1}}', "`kee`"),
                    (b'{"message": {"num": "x"}}', "$.message.num"),
                    (b'{"queue": {"options": {"lane": 1}}}', "a queue has no 'lane'"),
                    (b'{"queue": {"options": {"lanes": "x"}}}', "$.lanes"),
                    (b'{"message": {"data": 1, "data64": "AA=="}}', "data"),
                    (b'{"queue": {"version": 2, "options": {}}}', "$.queue.version"),
                ]
            ):
                name = f"q{number}"
                before = b"".join(map(_line, [QUEUE, *messages(0, 1)]))
                status, answer = await import_(service, before + wrong + b"\n" + before, name)
                assert (status, answer["error"]) == (400, "protocol"), wrong
                assert answer["reason"].startswith("line 4: "), answer
                assert why in answer["reason"], answer
                assert (answer["done"], answer["messages"]) == (3, 2)
                got = await fetch(service, name, n=9)
                assert [item["data"] for item in got["messages"]] == [0, 1]

    run(main)


def test_an_import_that_was_refused_half_way_goes_on_where_it_stopped(serve, run):  # Q12
    async def main():
        async with serve() as service:
            lines = [QUEUE, *messages(*range(10))]
            lines[0] = {"queue": {"options": {"volatile": True, "depth_max": 4}}}
            status, answer = await import_(service, lines, producer="me")
            assert (status, answer["error"]) == (503, "overload")
            assert (answer["done"], answer["messages"]) == (5, 4)
            assert "line 6: " in answer["reason"]
            await make(service, depth_max=100)
            status, answer = await import_(service, lines[5:], producer="me", line=6)
            assert (status, answer["done"], answer["messages"]) == (200, 11, 6)
            got = await fetch(service, n=99)
            assert [item["data"] for item in got["messages"]] == list(range(10))
            # Said again, what is there already is not stored again.
            await import_(service, lines[5:], producer="me", line=6)
            assert (await shown(service, "q"))["depth"] == 10

    run(main)


def test_dead_letters_are_passed_over_and_counted_unless_they_are_wanted(serve, run):  # Q12
    async def main():
        async with serve() as service:
            lines = [QUEUE, {"dead": {"data": 1, "death": {"reason": "x"}}}]
            _, answer = await import_(service, lines)
            assert (answer["dead"], answer["skipped"], answer["done"]) == (0, 1, 2)
            assert (await shown(service, "q"))["depth"] == 0

    run(main)


def test_an_answer_that_does_not_come_leaves_the_outcome_open(serve, run):  # Q5, Q12
    async def main():
        async with serve(options=HttpOptions(answer_timeout_s=0.05)) as service:
            await make(service)
            service.hub.serve({Send: lambda session, op: None})
            status, answer = await import_(service, messages(1, 2))
            assert (status, answer["outcome"], answer["done"]) == (503, "unknown", 0)

    run(main)


def test_a_line_has_a_bound_and_a_body_has_none(serve, run):  # Q12
    limits = Limits(message_bytes_max=2048)

    async def main():
        async with serve(limits=limits) as service:
            many = [QUEUE, *messages(*["x" * 100] * 200)]
            status, answer = await import_(service, many)
            assert (status, answer["messages"]) == (200, 200)
            status, answer = await import_(service, b'{"message": {"data": "' + b"x" * 9000)
            assert (status, answer["done"]) == (413, 0)
            assert answer["reason"] == "body: a line of more than 4096 bytes"

    run(main)


def test_a_body_that_goes_on_has_its_time_anew(serve, run):  # Q12
    async def main():
        async with serve() as service:
            await make(service)

            async def slowly():
                for number in range(3):
                    (connection,) = service.edge._state.connections
                    deadline = connection._deadline
                    yield _line({"message": {"data": number}})
                    # Each line that came is worth another wait as long as the first.
                    await service.until(lambda was=deadline, now=connection: now._deadline != was)

            answer = await service.client.post("/v1/queues/q/import", content=slowly())
            assert answer.json()["messages"] == 3

    run(main)


def test_an_export_that_breaks_off_is_cut_off_and_has_no_end(serve, run):  # Q12
    async def main():
        async with serve() as service:
            figures = {"options": {}, "lanes": [{"lane": 1}], "groups": []}

            def inspect(session, op):
                if op.n:
                    raise Overload("the disk is slow")
                told = Reply(id=op.id, ok=True, data=Raw(json.dumps(figures).encode()))
                service.hub.answer(session, told)

            service.hub.serve({Inspect: inspect})
            came = []

            async def read():
                async with service.client.stream("GET", "/v1/queues/q/export") as answer:
                    async for line in answer.aiter_lines():
                        came.append(json.loads(line))  # noqa: PERF401, it breaks off on the way

            with pytest.raises(httpx.RemoteProtocolError):
                await read()
            assert kinds(came) == ["queue"]
            assert not service.hub.sessions

    run(main)
