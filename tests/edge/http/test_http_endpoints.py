"""Queues, services, topics and avatars over HTTP: by single requests, and as a polled session."""

from __future__ import annotations

import asyncio

import pytest

from chappe.hub.options import HubOptions

ADMIN = {"admin": ["*"]}


async def op_on(service, session, **fields):
    answer = await service.post(f"/v1/poll/{session}/ops", fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def make_queue(service, name="q", **fields):
    made = await service.client.put(f"/v1/queues/{name}", json={"volatile": True, **fields})
    assert (made.status_code, made.json()["ok"]) == (200, True)


async def fetch(service, name="q", **fields):
    answer = await service.post(f"/v1/queues/{name}/fetch", fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def data_of(answer):
    return [item["data"] for item in answer["messages"]]


def ids_of(answer):
    return [item["message"] for item in answer["messages"]]


def test_work_is_sent_fetched_and_acknowledged_by_requests(serve, run):  # H17
    async def main():
        async with serve() as service:
            await make_queue(service)
            for number in range(3):
                sent = await service.post("/v1/queues/q/send", {"data": number})
                assert sent.status_code == 200
            first = await fetch(service, n=2)
            assert data_of(first) == [0, 1]
            body = {"session": first["session"], "message": ids_of(first)}
            assert (await service.post("/v1/queues/q/ack", body)).json() == {"ok": True, "n": 2}
            again = await service.post("/v1/queues/q/ack", body)
            assert (again.status_code, again.json()["error"]) == (400, "protocol")
            second = await fetch(service, session=first["session"])
            assert (second["session"], data_of(second)) == (first["session"], [2])
            empty = await fetch(service)
            assert empty == {"ok": True, "session": None, "messages": []}
            assert len(service.hub.sessions) == 1

    run(main)


def test_a_fetch_waits_for_work(serve, run):  # H17
    async def main():
        async with serve() as service:
            await make_queue(service)
            fetching = asyncio.create_task(fetch(service, wait_ms=20_000))
            await service.until(lambda: service.hub.sessions)
            assert not fetching.done()
            await service.post("/v1/queues/q/send", {"data": "work"})
            async with asyncio.timeout(5):
                assert data_of(await fetching) == ["work"]

    run(main)


def test_a_fetch_that_is_to_wait_for_longer_than_a_request_may_is_refused(serve, run):  # H17
    async def main():
        async with serve() as service:
            await make_queue(service)
            session = await service.open_poll("user:bob")
            for path, more in (
                ("/v1/queues/q/fetch", {}),
                (f"/v1/poll/{session}/ops", {"op": "fetch", "to": "queue:q"}),
            ):
                wrong = await service.post(path, {"wait_ms": 30_001, **more})
                assert wrong.status_code == 400
                assert wrong.json()["reason"] == "wait_ms: must be between 0 and 30000 over HTTP"
            assert list(service.hub.sessions) == [session]

    run(main)


@pytest.mark.parametrize("way", ["leave", "nack", "lease"])
def test_work_that_was_not_done_goes_to_the_next(serve, run, way):  # H17
    options = HubOptions(heartbeat_s=0.02, poll_lease_s=0.1) if way == "lease" else None

    async def main():
        async with serve(hub_options=options) as service:
            await make_queue(service)
            for number in range(2):
                await service.post("/v1/queues/q/send", {"data": number})
            first = await fetch(service, n=2)
            body = {"session": first["session"], "message": ids_of(first)[1]}
            if way == "leave":
                await service.post("/v1/queues/q/ack", body | {"leave": True})
            elif way == "nack":
                await service.post("/v1/queues/q/nack", body | {"message": ids_of(first)[0]})
            left = [0, 1] if way == "lease" else [0]
            second = await fetch(service, n=2, wait_ms=5000)
            assert data_of(second) == left

    run(main)


def test_one_fetch_at_a_time_in_a_session(serve, run):
    async def main():
        async with serve() as service:
            await make_queue(service)
            await service.post("/v1/queues/q/send", {"data": 0})
            session = (await fetch(service))["session"]
            waiting = asyncio.create_task(fetch(service, session=session, wait_ms=20_000))
            await service.until(lambda: service.hub.sessions[session].sink.busy)
            other = await service.post("/v1/queues/q/fetch", {"session": session})
            assert other.status_code == 503
            await service.post("/v1/queues/q/send", {"data": 1})
            assert data_of(await waiting) == [1]

    run(main)


def test_a_fetch_that_is_refused_leaves_no_session(serve, run):
    async def main():
        async with serve() as service:
            refused = await service.post("/v1/queues/none/fetch", {})
            assert refused.status_code in (400, 404)
            assert not refused.json()["ok"]
            assert not service.hub.sessions

    run(main)


def test_a_consumer_that_fetches_is_not_online_for_it(serve, run):  # H8
    async def main():
        async with serve() as service:
            await make_queue(service)
            await service.post("/v1/queues/q/send", {"data": 0})
            assert (await fetch(service, **{"as": "user:al"}))["session"]
            seen = await service.get("/v1/presence?to=user:al")
            assert seen.json()["online"] is False

    run(main)


def test_a_polled_session_consumes_a_queue(serve, run):  # H3, H17
    async def main():
        async with serve() as service:
            await make_queue(service)
            session = await service.open_poll("user:bob")
            await op_on(service, session, op="consume", to="queue:q", credit=1)
            for number in range(3):
                await service.post("/v1/queues/q/send", {"data": number})
            got, batch = [], None
            while len(got) < 3:
                answer = await service.poll(session, ack=batch, wait_ms=5000)
                batch = answer["batch"]
                (item,) = answer["messages"]
                got.append(item["data"])
                await op_on(service, session, op="ack", message=item["message"])
            assert got == [0, 1, 2]
            await service.post("/v1/queues/q/send", {"data": "last"})
            await service.client.delete(f"/v1/poll/{session}")
            assert data_of(await fetch(service)) == ["last"]

    run(main)


def test_a_fetch_of_a_polled_session_brings_its_work_to_the_poll(serve, run):  # H17
    async def main():
        async with serve() as service:
            await make_queue(service)
            session = await service.open_poll("user:bob")
            asking = asyncio.create_task(
                op_on(service, session, op="fetch", to="queue:q", wait_ms=20_000)
            )
            # Another op meanwhile is not kept waiting.
            assert await op_on(service, session, op="ping") == {"ok": True}
            await service.post("/v1/queues/q/send", {"data": "work"})
            assert (await asking)["n"] == 1
            assert data_of(await service.poll(session, wait_ms=1000)) == ["work"]

    run(main)


def test_a_polled_session_provides_a_service(serve, run):  # H3, H18
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob")
            await op_on(service, session, op="provide", to="service:s")
            ask = {"as": "user:al", "data": {"n": 1.50}}
            asking = asyncio.create_task(service.post("/v1/services/s/request", ask))
            (request,) = (await service.poll(session, wait_ms=5000))["messages"]
            assert (request["op"], request["data"]) == ("request", {"n": 1.5})
            await op_on(service, session, op="respond", request=request["request"], data=[2])
            answer = await asking
            assert (answer.status_code, answer.json()) == (200, {"ok": True, "data": [2]})

            asking = asyncio.create_task(service.post("/v1/services/s/request", ask))
            assert (await service.poll(session, ack=1, wait_ms=5000))["messages"]
            await service.client.delete(f"/v1/poll/{session}")
            async with asyncio.timeout(5):
                assert (await asking).status_code == 404
            assert (await service.post("/v1/services/s/request", ask)).status_code == 404

    run(main)


def test_a_request_that_nobody_answers_ends_with_its_time(serve, run):  # H18
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob")
            await op_on(service, session, op="provide", to="service:s")
            answer = await service.post("/v1/services/s/request", {"data": 1, "timeout_ms": 50})
            assert (answer.status_code, answer.json()["error"]) == (503, "overload")

    run(main)


def test_a_topic_is_made_with_a_history_that_a_poller_recovers_from(serve, run):
    async def main():
        async with serve() as service:
            made = await service.client.put("/v1/topics/t", json={"history": 10, "anonymous": True})
            assert (made.status_code, made.json()) == (200, {"ok": True})
            session = await service.open_poll("user:bob")
            start = await op_on(service, session, op="subscribe", to="topic:t")
            await service.client.delete(f"/v1/poll/{session}")
            assert (await service.get("/v1/topics/t")).json()["online"] is False
            for number in range(3):
                await service.post(
                    "/v1/publish", {"as": "user:al", "to": "topic:t", "data": number}
                )
            session = await service.open_poll("user:bob")
            since = {"epoch": start["epoch"], "offset": start["offset"]}
            back = await op_on(service, session, op="subscribe", to="topic:t", **since)
            assert back["recovered"] is True
            missed = await service.poll(session, wait_ms=1000)
            assert data_of(missed) == [0, 1, 2]
            assert "user:al" not in str(missed)
            assert (await service.get("/v1/topics/t")).json()["online"] is True
            assert (await service.client.delete("/v1/topics/t")).json() == {"ok": True}

    run(main)


def test_an_avatar_is_given_to_a_user_and_taken_away(serve, run):  # H14, H15
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob")
            made = await service.client.put("/v1/avatars/support", json={"user": "user:bob"})
            assert made.status_code == 200, made.text
            sent = await service.post("/v1/send", {"to": "avatar:support", "data": "hello"})
            assert sent.status_code == 200
            assert data_of(await service.poll(session, wait_ms=1000)) == ["hello"]
            gone = await service.client.delete("/v1/avatars/support?user=user:bob")
            assert gone.status_code == 200, gone.text
            sent = await service.post("/v1/send", {"to": "avatar:support", "data": "hello"})
            assert sent.status_code == 404

    run(main)


def test_only_administrators_make_and_remove(serve, run, bearer):  # H15, H17
    async def main():
        async with serve(dev=False) as service:
            user, admin = bearer("user:al", send=["*"]), bearer("user:root", **ADMIN)
            put, delete = service.client.put, service.client.delete
            for path, body in (
                ("/v1/topics/t", {"history": 1}),
                ("/v1/queues/q", {"volatile": True}),
                ("/v1/avatars/a", {"user": "user:bob"}),
            ):
                assert (await put(path, json=body)).status_code == 401
                assert (await put(path, json=body, headers=user)).status_code == 403, path
                assert (await delete(path, headers=user)).status_code in (403, 404), path
            for path, body in (
                ("/v1/topics/t", {"history": 1}),
                ("/v1/queues/q", {"volatile": True}),
            ):
                made = await put(path, json=body, headers=admin)
                assert made.status_code == 200, made.text
                assert (await delete(path, headers=admin)).status_code == 200

    run(main)


def test_a_name_may_hold_a_slash_and_must_be_one(serve, run):
    async def main():
        async with serve() as service:
            await make_queue(service, "a/b")
            sent = await service.post("/v1/queues/a/b/send", {"data": 1})
            assert sent.status_code == 200, sent.text
            assert data_of(await fetch(service, "a/b")) == [1]
            wrong = await service.client.put("/v1/queues/a*", json={})
            assert (wrong.status_code, wrong.json()["error"]) == (400, "protocol")
            wrong = await service.client.put("/v1/topics/t", json={"history": "many"})
            assert "history" in wrong.json()["reason"]

    run(main)


def test_probes_may_ask_without_a_body(serve, run):
    async def main():
        async with serve() as service:
            for path in ("/healthz", "/readyz"):
                answer = await service.client.head(path)
                assert (answer.status_code, answer.content) == (200, b"")
            service.hub.drain("going", 100)
            assert (await service.client.head("/readyz")).status_code == 503

    run(main)
