"""Sessions that are polled: buffering, acknowledgement, waiting, leases (H3, H4)."""

from __future__ import annotations

import asyncio

import pytest

from chappe.errors import CloseCode
from chappe.hub.options import HubOptions


def data_of(batch):
    return [item["data"] for item in batch["messages"]]


async def publish(service, data, to="topic:t"):
    answer = await service.post("/v1/publish", {"to": to, "data": data})
    assert answer.status_code == 200


def test_what_comes_between_polls_is_kept_in_order(serve, run):  # H3
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob", "topic:t")
            for number in range(5):
                await publish(service, number)
            got = await service.poll(session)
            assert (got["batch"], data_of(got)) == (1, [0, 1, 2, 3, 4])

    run(main)


def test_a_batch_is_given_again_until_it_is_acknowledged(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob", "topic:t")
            await publish(service, 1)
            first = await service.poll(session)
            await publish(service, 2)
            assert await service.poll(session) == first
            assert await service.poll(session, ack=0) == first
            second = await service.poll(session, ack=1)
            assert (second["batch"], data_of(second)) == (2, [2])
            empty = await service.poll(session, ack=2)
            assert empty == {"ok": True, "batch": 2, "messages": []}

    run(main)


def test_a_waiting_poll_wakes_up_when_something_comes(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob", "topic:t")
            polling = asyncio.create_task(service.poll(session, wait_ms=20_000))
            await service.until(lambda: not service.hub.sessions[session].paused)
            await publish(service, "now")
            async with asyncio.timeout(5):
                assert data_of(await polling) == ["now"]
            assert service.hub.sessions[session].paused

    run(main)


def test_a_poll_without_anything_to_give_ends_empty(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob")
            assert (await service.poll(session))["messages"] == []
            assert (await service.poll(session, wait_ms=20))["messages"] == []
            assert service.hub.sessions[session].paused

    run(main)


def test_a_second_poll_ends_the_first_one_empty(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob", "topic:t")
            first = asyncio.create_task(service.poll(session, wait_ms=20_000))
            await service.until(lambda: not service.hub.sessions[session].paused)
            second = asyncio.create_task(service.poll(session, wait_ms=20_000))
            async with asyncio.timeout(5):
                assert (await first)["messages"] == []
                await publish(service, 1)
                assert data_of(await second) == [1]

    run(main)


def test_a_large_backlog_comes_in_several_batches_and_whole(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob", "topic:t")
            for number in range(10):
                await publish(service, f"{number}" + "x" * 30_000)
            got, batch = [], None
            while chunk := await service.poll(session, ack=batch):
                if not chunk["messages"]:
                    break
                batch = chunk["batch"]
                assert sum(map(len, data_of(chunk))) <= 64 * 1024 + 31_000
                got += [text[0] for text in data_of(chunk)]
            assert got == list("0123456789")
            assert batch > 1

    run(main)


def test_a_slow_poller_loses_the_oldest_of_a_topic_and_is_told(serve, run):
    options = HubOptions(outbox_bytes_max=4000)

    async def main():
        async with serve(hub_options=options) as service:
            session = await service.open_poll("user:bob", "topic:t")
            for number in range(20):
                await publish(service, f"{number:02}" + "x" * 500)
            got = await service.poll(session)
            assert got["messages"][0]["op"] == "dropped"
            assert got["messages"][0]["n"] + len(got["messages"]) - 1 == 20
            assert got["messages"][-1]["data"].startswith("19")

    run(main)


def test_every_op_of_a_session_is_answered(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob")

            async def op(**fields):
                return await service.post(f"/v1/poll/{session}/ops", fields)

            assert (await op(op="ping")).json() == {"ok": True}
            assert (await op(op="subscribe", to="topic:t")).json() == {"ok": True}
            assert (await op(op="presence", to="topic:t")).json() == {"ok": True, "online": True}
            published = await op(op="publish", id=9, to="topic:t", data=1)
            assert published.json()["nodes"] == 1
            assert (await op(op="send", to="user:bob", data=2)).status_code == 200
            assert (await op(op="unsubscribe", to="topic:t")).json() == {"ok": True}
            assert (await op(op="publish", to="topic:t", data=3)).json()["nodes"] == 0
            assert (await op(op="send", to="user:no", data=2)).status_code == 404
            assert (await op(op="subscribe", to="user:no")).status_code == 400
            assert (await op(op="hello")).status_code == 400
            # Replies went to their requests; only messages are left to poll.
            assert data_of(await service.poll(session)) == [1, 2]

    run(main)


def test_ops_during_a_waiting_poll_do_not_end_it(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob")
            polling = asyncio.create_task(service.poll(session, wait_ms=20_000))
            await service.until(lambda: not service.hub.sessions[session].paused)
            path = f"/v1/poll/{session}/ops"
            assert (await service.post(path, {"op": "ping"})).status_code == 200
            assert not polling.done()
            await service.post(path, {"op": "send", "to": "user:bob", "data": "me"})
            async with asyncio.timeout(5):
                assert data_of(await polling) == ["me"]

    run(main)


def test_a_session_that_is_not_polled_ends_with_its_lease(serve, run):  # H4
    options = HubOptions(heartbeat_s=0.02, heartbeats_missed_max=2, poll_lease_s=0.2)

    async def main():
        async with serve(hub_options=options) as service:
            session = await service.open_poll("user:bob")
            for _ in range(20):  # twice the lease: each poll is a beat
                assert (await service.poll(session, wait_ms=20))["messages"] == []
            # A poll that waits past the lease keeps the session as well.
            await service.poll(session, wait_ms=500)
            await service.until(lambda: session not in service.hub.sessions)
            late = await service.post("/v1/poll", {"session": session})
            assert late.status_code == 404
            assert late.json()["reason"].startswith("session: ")
            seen = await service.get("/v1/presence?to=user:bob")
            assert seen.json()["online"] is False

    run(main)


def test_unknown_sessions_and_those_of_other_edges_are_not_found(serve, run):
    async def main():
        async with serve() as service:
            for path, body in (
                ("/v1/poll", {"session": "no"}),
                ("/v1/poll/no/ops", {"op": "ping"}),
            ):
                assert (await service.post(path, body)).status_code == 404
            assert (await service.client.delete("/v1/poll/no")).status_code == 404
            assert (await service.get("/v1/events?session=no")).status_code == 404

    run(main)


def test_a_deleted_session_is_gone_and_its_poll_is_told(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob")
            polling = asyncio.create_task(service.poll(session, wait_ms=20_000))
            await service.until(lambda: not service.hub.sessions[session].paused)
            assert (await service.client.delete(f"/v1/poll/{session}")).json() == {"ok": True}
            async with asyncio.timeout(5):
                last = (await polling)["messages"][-1]
            assert (last["op"], last.get("code", 1000)) == ("closed", CloseCode.NORMAL)
            assert (await service.post("/v1/poll", {"session": session})).status_code == 404

    run(main)


def test_a_client_that_leaves_its_poll_loses_nothing(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob", "topic:t")
            polling = asyncio.create_task(service.poll(session, wait_ms=20_000))
            await service.until(lambda: not service.hub.sessions[session].paused)
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            await publish(service, "kept")
            assert data_of(await service.poll(session, wait_ms=1000)) == ["kept"]

    run(main)


def test_draining_tells_pollers_to_go_and_takes_nobody_new(serve, run):
    async def main():
        async with serve() as service:
            session = await service.open_poll("user:bob")
            service.hub.drain("going", 100)
            got = await service.poll(session, wait_ms=1000)
            assert got["messages"][0]["op"] == "reconnect"
            assert (await service.post("/v1/poll", {"as": "user:eve"})).status_code == 503
            refused = await service.post("/v1/publish", {"to": "topic:t", "data": 1})
            assert refused.status_code == 503

    run(main)
