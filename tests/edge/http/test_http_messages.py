"""Sending, publishing and asking by request, and what each verdict's status is."""

from __future__ import annotations

import asyncio
import base64

import pytest

from chappe.hub.options import HubOptions, Rate
from chappe.wire.limits import Limits


def test_a_send_reaches_the_user_and_answers_with_the_message_id(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob")
            sent = await service.post("/v1/send", {"as": "user:al", "to": "user:bob", "data": [1]})
            assert sent.status_code == 200
            got = await service.poll(session)
            assert sent.json() == {"ok": True, "message": got["messages"][0]["message"]}
            assert got["messages"][0]["from"] == "user:al"
            assert got["messages"][0]["data"] == [1]

    run(main)


def test_a_payload_passes_unchanged(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob")
            # Beyond a float's precision and a 64-bit integer: decoding would change it.
            body = (
                b'{"to":"user:bob","data":{"n":1.00000000000000000001,"i":123456789012345678901}}'
            )
            assert (await service.client.post("/v1/send", content=body)).status_code == 200
            answer = await service.post("/v1/poll", {"session": session})
            assert b'{"n":1.00000000000000000001,"i":123456789012345678901}' in answer.content

            binary = base64.b64encode(bytes(range(256))).decode()
            await service.post("/v1/send", {"to": "user:bob", "data64": binary})
            got = await service.poll(session, ack=1)
            assert got["messages"][0]["data64"] == binary

    run(main)


def test_each_verdict_has_its_status(serve, run):  # H5
    async def main():
        async with serve() as service:
            offline = await service.post("/v1/send", {"to": "user:nobody", "data": 1})
            assert offline.status_code == 404
            assert offline.json()["error"] == "unreachable"
            for body in (
                {"to": "user:a b", "data": 1},
                {"to": "user:bob"},
                {"to": "user:bob", "data64": "%"},
                {"to": 7, "data": 1},
                {"data": 1},
                {"to": [], "data": 1},
                [],
            ):
                wrong = await service.post("/v1/send", body)
                assert wrong.status_code == 400, body
                assert wrong.json()["error"] == "protocol"
            assert "to" in (await service.post("/v1/send", {"to": 7})).json()["reason"]

    run(main)


def test_a_full_outbox_answers_overload_and_when_to_come_back(serve, run):  # H5
    options = HubOptions(outbox_bytes_max=2000)

    async def main():
        async with serve(hub_options=options, limits=Limits(message_bytes_max=1000)) as service:
            await service.open_poll("user:bob")
            answers = [
                await service.post("/v1/send", {"to": "user:bob", "data": "x" * 500})
                for _ in range(5)
            ]
            assert [a.status_code for a in answers[:2]] == [200, 200]
            assert answers[-1].status_code == 503
            assert answers[-1].json()["error"] == "overload"
            assert int(answers[-1].headers["retry-after"]) > 0

    run(main)


def test_a_send_to_a_list_tells_each_verdict(serve, run):
    async def main():
        async with serve() as service:
            await service.open_poll("user:bob")
            answer = await service.post("/v1/send", {"to": ["user:bob", "user:no"], "data": 1})
            assert answer.status_code == 404
            assert answer.json()["verdicts"] == {"user:bob": "ok", "user:no": "unreachable"}

    run(main)


def test_publishing_answers_how_many_nodes_took_it(serve, run):  # H16
    async def main():
        async with serve() as service:
            nobody = await service.post("/v1/publish", {"to": "topic:t", "data": 1})
            assert (nobody.status_code, nobody.json()["nodes"]) == (200, 0)
            session = await service.open_poll("user:bob", "topic:t")
            somebody = await service.post("/v1/publish", {"to": "topic:t", "data": 2})
            assert somebody.json()["nodes"] == 1
            got = await service.poll(session)
            assert [m["data"] for m in got["messages"]] == [2]

    run(main)


def test_who_only_sends_is_not_online_and_swallows_nothing(serve, run):  # H5, H8
    async def main():
        async with serve() as service:
            body = {"as": "user:al", "to": "user:al", "data": 1}
            assert (await service.post("/v1/send", body)).status_code == 404
            seen = await service.get("/v1/presence?to=user:al&as=user:al")
            assert seen.json() == {"ok": True, "online": False}
            await service.open_poll("user:al")
            seen = await service.get("/v1/presence?to=user:al&as=user:al")
            assert seen.json() == {"ok": True, "online": True}
            assert len(service.hub.sessions) == 1

    run(main)


def test_a_rate_goes_on_from_one_request_to_the_next(serve, run):
    options = HubOptions(rate=Rate(messages_per_s=5))

    async def main():
        async with serve(hub_options=options) as service:
            body = {"as": "user:al", "to": "topic:t", "data": 1}
            answers = await asyncio.gather(*(service.post("/v1/publish", body) for _ in range(20)))
            assert 503 in {answer.status_code for answer in answers}
            other = await service.post("/v1/publish", body | {"as": "user:else"})
            assert other.status_code == 200

    run(main)


def test_a_token_is_required_outside_development(serve, run, bearer):
    async def main():
        async with serve(dev=False) as service:
            for path in ("/v1/send", "/v1/publish"):
                refused = await service.post(path, {"as": "user:al", "to": "user:al", "data": 1})
                assert refused.status_code == 401
                assert refused.headers["www-authenticate"] == "Bearer"
            for path in ("/v1/presence?to=user:a", "/v1/status", "/v1/sessions", "/v1/events"):
                assert (await service.get(path)).status_code == 401, path
            assert (await service.post("/v1/poll", {"as": "user:al"})).status_code == 401
            for header in ("Bearer nonsense", "Basic YTpi", "Bearer", ""):
                headers = {"authorization": header}
                refused = await service.get("/v1/presence?to=user:a", headers=headers)
                assert refused.status_code == 401, header

    run(main)


def test_a_token_is_held_to_what_it_grants(serve, run, bearer):
    async def main():
        async with serve(dev=False) as service:
            token = bearer("user:al", send=["user:bob"], publish=["topic:a.*"])
            outside = await service.post("/v1/send", {"to": "user:eve", "data": 1}, headers=token)
            assert (outside.status_code, outside.json()["error"]) == (403, "forbidden")
            inside = await service.post("/v1/send", {"to": "user:bob", "data": 1}, headers=token)
            assert inside.status_code == 404
            inside = await service.post(
                "/v1/publish", {"to": "topic:a.b", "data": 1}, headers=token
            )
            assert inside.status_code == 200
            body = {"as": "user:bob", "to": "topic:a.b", "data": 1}
            assert (await service.post("/v1/publish", body, headers=token)).status_code == 401

    run(main)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"to":"\xff"}',
        b"[" * 5000,
        b"null",
        b'{"to":"topic:t","data":nul}',
    ],
)
def test_malformed_bodies_are_refused_and_counted(serve, run, body):
    async def main():
        async with serve() as service:
            answer = await service.client.post("/v1/publish", content=body)
            assert answer.status_code == 400
            assert answer.json()["error"] == "protocol"
            assert answer.json()["reason"].startswith("body: ")
            status = (await service.get("/v1/status")).json()
            assert status["counters"]["refusals"]["protocol"] == 1

    run(main)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/send", {"to": "user:bob", "data": 1}),
        ("POST", "/v1/publish", {"to": "topic:t", "data": 1}),
        ("POST", "/v1/services/s/request", {"data": 1}),
        ("POST", "/v1/poll", {}),
        ("POST", "/v1/tokens/revoke", {"jti": "a", "exp": 1}),
        ("PUT", "/v1/topics/t", {}),
        ("PUT", "/v1/avatars/a", {"user": "user:bob"}),
        ("PUT", "/v1/queues/q", {}),
        ("POST", "/v1/queues/q/send", {"data": 1}),
    ],
)
def test_a_field_that_nobody_knows_is_refused_by_its_name(serve, run, method, path, body):
    async def main():
        async with serve() as service:
            wrong = await service.client.request(method, path, json=body | {"tpo": 1})
            assert wrong.status_code == 400
            assert "tpo" in wrong.json()["reason"]
            assert not service.hub.sessions

    run(main)
