"""Ops whose answers come later: each request gets its own, and nothing else is disturbed."""

from __future__ import annotations

import asyncio

import pytest

from chappe.edge.http.options import HttpOptions
from chappe.errors import CloseCode
from chappe.hub.options import HubOptions
from chappe.wire.ops import Reply, Request


class Later:
    """Serves requests to services by leaving them for the test to answer."""

    def __init__(self, service):
        self.service = service
        self.asked = []
        service.hub.serve({Request: lambda session, op: self.asked.append((session, op))})

    async def arrive(self, number):
        await self.service.until(lambda: len(self.asked) >= number)

    def answer(self, index, **fields):
        session, op = self.asked[index]
        self.service.hub.answer(session, Reply(id=op.id, ok=True, **fields))


def op_on(service, session, **fields):
    return asyncio.create_task(service.post(f"/v1/poll/{session}/ops", fields))


def test_answers_find_their_requests_in_whatever_order_they_come(serve, run):
    async def main():
        async with serve() as service:
            later = Later(service)
            session = await service.open_poll("user:bob", "topic:t")
            asking = []
            for number in range(3):
                # One id for all of them: a poller's ids are its own affair.
                asking.append(op_on(service, session, op="request", id=1, to="service:s", data=1))
                await later.arrive(number + 1)
            await service.post("/v1/publish", {"to": "topic:t", "data": "between"})
            for number in (2, 0, 1):
                later.answer(number, n=number)
            await service.post("/v1/publish", {"to": "topic:t", "data": "after"})
            answers = [(await each).json() for each in asking]
            assert answers == [{"ok": True, "n": number} for number in range(3)]
            # Replies went to their requests, messages to the poll.
            got = await service.poll(session)
            assert [item["data"] for item in got["messages"]] == ["between", "after"]

    run(main)


def test_an_answer_during_a_waiting_poll_does_not_end_it(serve, run):
    async def main():
        async with serve() as service:
            later = Later(service)
            session = await service.open_poll("user:bob", "topic:t")
            polling = asyncio.create_task(service.poll(session, wait_ms=20_000))
            await service.until(lambda: not service.hub.sessions[session].paused)
            asking = op_on(service, session, op="request", to="service:s", data=1)
            await later.arrive(1)
            later.answer(0, n=7)
            assert (await asking).json()["n"] == 7
            assert not polling.done()
            await service.post("/v1/publish", {"to": "topic:t", "data": "now"})
            assert [item["data"] for item in (await polling)["messages"]] == ["now"]

    run(main)


def test_an_answer_that_does_not_come_is_overload_of_unknown_outcome(serve, run):  # H5
    async def main():
        options = HttpOptions(answer_timeout_s=0.05)
        async with serve(options=options) as service:
            later = Later(service)
            session = await service.open_poll("user:bob")
            ask = {"op": "request", "to": "service:s", "data": 1, "timeout_ms": 0}
            answer = await service.post(f"/v1/poll/{session}/ops", ask)
            assert answer.status_code == 503
            assert (answer.json()["error"], answer.json()["outcome"]) == ("overload", "unknown")
            # Late, it is nobody's: neither the next op's nor something to poll.
            asking = op_on(service, session, **ask | {"timeout_ms": 20_000})
            await later.arrive(2)
            later.answer(0, n=0)
            later.answer(1, n=1)
            assert (await asking).json()["n"] == 1
            assert (await service.poll(session))["messages"] == []

    run(main)


def test_a_closed_session_ends_the_wait_for_its_answers(serve, run):
    async def main():
        async with serve() as service:
            later = Later(service)
            session = await service.open_poll("user:bob")
            asking = op_on(service, session, op="request", to="service:s", data=1)
            await later.arrive(1)
            service.hub.close(service.hub.sessions[session], CloseCode.REVOKED, "gone")
            async with asyncio.timeout(5):
                answer = await asking
            assert (answer.status_code, answer.json()["outcome"]) == (503, "unknown")

    run(main)


def test_a_request_that_waits_is_not_taken_for_silent(serve, run):  # H4
    options = HubOptions(heartbeat_s=0.02, heartbeats_missed_max=2)

    async def main():
        async with serve(hub_options=options) as service:
            later = Later(service)
            asking = asyncio.create_task(service.post("/v1/services/s/request", {"data": 1}))
            await later.arrive(1)
            session, _ = later.asked[0]
            changes, last = 0, 0

            def beaten():
                nonlocal changes, last
                changes += session.beats_missed != last
                last = session.beats_missed
                return session.closed or changes > 10

            await service.until(beaten)
            assert not session.closed
            later.answer(0, data64="AAE=")
            assert (await asking).json() == {"ok": True, "data64": "AAE="}
            assert session.closed
            assert not service.hub.sessions

    run(main)


@pytest.mark.parametrize("ops", [1, 50])
def test_answers_leave_nothing_behind_in_a_session_that_is_not_polled(serve, run, ops):
    async def main():
        async with serve() as service:
            polled = await service.open_poll("user:bob", "topic:t")
            session = service.hub.sessions[polled]
            for _ in range(ops):
                await service.post(f"/v1/poll/{polled}/ops", {"op": "ping"})
            assert (session.backlog, session.outbox) == (None, [])
            assert not service.hub.outboxes.held
            await service.post("/v1/publish", {"to": "topic:t", "data": 1})
            for _ in range(ops):
                await service.post(f"/v1/poll/{polled}/ops", {"op": "ping"})
            assert len(session.backlog) == 1

    run(main)
