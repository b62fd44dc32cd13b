"""Services from both sides: handlers answer, requesters get what they answered (H18)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chappe.client import (
    Client,
    ClientOptions,
    Disconnected,
    Reconnected,
    Stopped,
    connect,
)
from chappe.errors import BadRequest, Overload, Unreachable
from chappe.wire import ops
from chappe.wire.ops import PACKED, Provide, Request, Respond, Unprovide

from .conftest import QUICK, Notices
from .peer import Port, peering

SERVICE = "service:billing"


def call(number: str, data: bytes = b"1", *, binary: bool = False) -> ops.Op:
    return PACKED[Request](request=number, to=SERVICE, data=data, data64=binary)


@contextlib.asynccontextmanager
async def serving(on_notice: Any = None, **bounds: Any) -> AsyncIterator[tuple[Port, Client]]:
    options = ClientOptions(**{**QUICK, **bounds})
    async with (
        peering() as port,
        connect(port.url, as_="user:a", options=options, on_notice=on_notice) as client,
    ):
        yield port, client


async def provided(port: Port, client: Client, handler: Any, **named: Any) -> None:
    providing = asyncio.create_task(client.provide(SERVICE, handler, **named))
    op = await port.peer.next(Provide)
    assert op.to == SERVICE
    port.peer.answer(op)
    await providing


async def closed(port: Port, client: Client) -> None:
    closing = asyncio.create_task(client.close())
    port.peer.answer(await port.peer.next(Unprovide))
    await closing


async def answer(port: Port) -> tuple[str, Any, str | None]:
    op = await port.peer.next(Respond)
    return op.request, op.data, op.error


def test_a_handler_answers_requests_plain_or_async(run):  # H18
    async def test():
        async def double(data: int) -> int:
            await asyncio.sleep(0)
            return data * 2

        for handler in (lambda data: data * 2, double):
            async with serving() as (port, client):
                await provided(port, client, handler)
                port.peer.say(call("r1", b"21"))
                assert await answer(port) == ("r1", b"42", None)
                port.peer.say(call("r2", b"\xff\x00", binary=True))
                op = await port.peer.next(Respond)
                assert (op.data, op.data64) == (b"\xff\x00\xff\x00", True)
                await closed(port, client)

    run(test())


def test_an_exception_is_answered_as_an_error_without_its_trace(run):
    async def test():
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))

        def handler(data: int) -> Any:
            if data == 1:
                raise BadRequest("amount: missing")
            if data == 2:
                raise ValueError("secret detail")
            return object()

        async with serving() as (port, client):
            await provided(port, client, handler)
            port.peer.say(call("r1", b"1"))
            op = await port.peer.next(Respond)
            assert (op.request, op.error, op.reason) == ("r1", "protocol", "amount: missing")
            assert not told
            port.peer.say(call("r2", b"2"))
            op = await port.peer.next(Respond)
            assert (op.request, op.error, op.reason) == ("r2", "unreachable", "the provider failed")
            assert isinstance(told[0]["exception"], ValueError)
            assert SERVICE in told[0]["message"]
            port.peer.say(call("r3", b"3"))
            assert (await answer(port))[2] == "protocol"
            await closed(port, client)

    run(test())


def test_so_many_handlers_run_at_a_time_and_the_others_wait_in_order(run):
    async def test():
        gates: list[asyncio.Future[None]] = []

        async def handler(data: int) -> int:
            gates.append(asyncio.get_running_loop().create_future())
            await gates[-1]
            return data

        async with serving(calls_waiting_max=2) as (port, client):
            await provided(port, client, handler, concurrency=2)
            port.peer.say(*(call(f"r{n}", b"%d" % n) for n in range(5)))
            # Two run, two wait, the fifth is too many.
            assert (await answer(port))[::2] == ("r4", "overload")
            assert len(gates) == 2
            for n in range(4):
                gates[n].set_result(None)
                assert await answer(port) == (f"r{n}", b"%d" % n, None)
                assert len(gates) <= min(n + 3, 4)
            await closed(port, client)

    run(test())


def test_a_service_is_provided_again_after_a_reconnect_and_old_answers_are_not_said(run):
    async def test():
        notices, gate = Notices(), asyncio.get_running_loop().create_future()
        begun: list[int] = []
        running = asyncio.Event()

        async def handler(data: int) -> int:
            begun.append(data)
            running.set()
            if data == 1:
                await gate
            return data

        async with serving(notices) as (port, client):
            await provided(port, client, handler, concurrency=1)
            port.peer.say(call("old", b"1"), call("waits", b"3"))
            await running.wait()
            await port.cut()
            op = await port.peer.next(Provide)
            port.peer.answer(op)
            await notices.wait(Reconnected)
            gate.set_result(None)
            port.peer.say(call("new", b"2"))
            assert await answer(port) == ("new", b"2", None)
            # What waited for a handler is not even begun: whoever asked has been told.
            assert begun == [1, 2]
            await closed(port, client)

    run(test())


def test_a_service_that_is_refused_after_a_reconnect_is_told(run):
    async def test():
        notices = Notices()
        async with serving(notices) as (port, client):
            await provided(port, client, lambda data: data)
            await port.cut()
            op = await port.peer.next(Provide)
            port.peer.answer(op, ok=False, error="forbidden", reason="no more")
            assert (await notices.wait(Stopped)).address == SERVICE
            # What is asked all the same is refused.
            port.peer.say(call("r1"))
            assert (await answer(port))[2] == "unreachable"

    run(test())


def test_closing_withdraws_and_lets_what_runs_finish(run):
    async def test():
        gate, running = asyncio.get_running_loop().create_future(), asyncio.Event()

        async def handler(data: int) -> int:
            running.set()
            await gate
            return data

        async with serving(close_timeout_s=10) as (port, client):
            await provided(port, client, handler)
            port.peer.say(call("r1"))
            await running.wait()
            closing = asyncio.create_task(client.close())
            op = await port.peer.next(Unprovide)
            # Handed over before the hub knew.
            port.peer.say(call("r2", b"2"))
            port.peer.answer(op)
            while not client._services._retired:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            gate.set_result(None)
            assert await answer(port) == ("r1", b"1", None)
            assert await answer(port) == ("r2", b"2", None)
            await closing

    run(test())


def test_closing_does_not_wait_for_a_handler_for_ever(run):
    async def test():
        running, cancelled = asyncio.Event(), asyncio.Event()

        async def handler(data: int) -> None:
            running.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async with serving(close_timeout_s=0.05) as (port, client):
            await provided(port, client, handler)
            port.peer.say(call("r1"))
            await running.wait()
            await closed(port, client)
            assert cancelled.is_set()

    run(test())


def test_a_draining_hub_is_left_once_its_requests_are_answered(run):
    async def test():
        notices, gate = Notices(), asyncio.get_running_loop().create_future()

        async def handler(data: int) -> int:
            await gate
            return data

        async with serving(notices, close_timeout_s=10) as (port, client):
            await provided(port, client, handler)
            first = port.peer
            first.say(call("r1"), ops.Reconnect(reason="upgrade", after_ms=1))
            op = await first.next(Unprovide)
            assert (op.to, op.id) == (SERVICE, None)
            gate.set_result(None)
            assert await answer(port) == ("r1", b"1", None)
            await first.gone
            second = await port.connected(2)
            second.answer(await second.next(Provide))
            await notices.wait(Reconnected)
            await closed(port, client)

    run(test())


def test_unprovide_ends_it_and_a_service_is_provided_once(run):
    async def test():
        async with serving() as (port, client):
            await provided(port, client, lambda data: data)
            with pytest.raises(BadRequest, match=SERVICE):
                await client.provide(SERVICE, lambda data: data)
            with pytest.raises(BadRequest, match="concurrency"):
                await client.provide("service:other", lambda data: data, concurrency=0)
            ending = asyncio.create_task(client.unprovide(SERVICE))
            port.peer.answer(await port.peer.next(Unprovide))
            await ending
            with pytest.raises(BadRequest, match=SERVICE):
                await client.unprovide(SERVICE)
            await provided(port, client, lambda data: data)
            await closed(port, client)

    run(test())


def test_a_refused_provide_raises_and_leaves_nothing(run):
    async def test():
        async with serving() as (port, client):
            providing = asyncio.create_task(client.provide(SERVICE, lambda data: data))
            port.peer.answer(await port.peer.next(Provide), ok=False, error="overload")
            with pytest.raises(Overload):
                await providing
            assert not client._conversation.providers

    run(test())


@pytest.mark.parametrize("data", [{"a": [1, None]}, b"\xff\x00", None, "é"])
def test_a_request_returns_the_data_of_its_response(run, data):
    async def test():
        async with serving() as (port, client):
            asking = asyncio.create_task(
                client.request(SERVICE, data, timeout_s=2.5, idempotent=True)
            )
            op = await port.peer.next(Request)
            assert (op.to, op.timeout_ms, op.idempotent) == (SERVICE, 2500, True)
            port.peer.say(
                PACKED[ops.Reply](id=op.id, ok=True, data=op.data, data64=bool(op.data64))
            )
            assert await asking == data

    run(test())


def test_a_request_that_may_have_been_carried_out_says_so(run):
    async def test():
        async with serving() as (port, client):
            asking = asyncio.create_task(client.request(SERVICE, 1))
            op = await port.peer.next(Request)
            assert (op.timeout_ms, op.idempotent) == (None, False)
            port.peer.answer(op, ok=False, error="unreachable", reason="it died", outcome="unknown")
            with pytest.raises(Unreachable, match="it died") as caught:
                await asking
            assert caught.value.outcome_unknown

    run(test())


def test_a_request_whose_connection_is_lost_fails_at_once(run):
    async def test():
        async with serving() as (port, client):
            asking = asyncio.create_task(client.request(SERVICE, 1, timeout_s=60))
            await port.peer.next(Request)
            port.peer.transport.abort()
            with pytest.raises(Overload, match="lost") as caught:
                await asking
            assert caught.value.outcome_unknown

    run(test())


def test_a_request_has_a_time_limit_of_its_own(run):
    async def test():
        async with serving() as (port, client):
            with pytest.raises(Overload) as caught:
                await client.request(SERVICE, 1, timeout_s=0.02)
            assert caught.value.outcome_unknown
            assert client.pending == 0
            asking = asyncio.create_task(client.request(SERVICE, 1, timeout_s=60))
            await port.peer.heard(2)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert client.pending == 0

    run(test())


def test_what_is_withdrawn_without_a_connection_is_gone_at_once(run):
    async def test():
        notices = Notices()
        async with serving(notices, request_timeout_s=60) as (port, client):
            await provided(port, client, lambda data: data)
            ending = asyncio.create_task(client.unprovide(SERVICE))
            await port.peer.next(Unprovide)
            port.greets = False
            port.peer.transport.abort()
            # The connection that was lost has ended it, too.
            await ending
            await notices.wait(Disconnected)
            with pytest.raises(BadRequest, match=SERVICE):
                await client.unprovide(SERVICE)
            port.greets = True

    run(test())


def test_a_provide_that_nobody_waits_for_is_taken_back(run):
    async def test():
        async with serving() as (port, client):
            providing = asyncio.create_task(client.provide(SERVICE, lambda data: data))
            await port.peer.next(Provide)
            providing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await providing
            assert (await port.peer.next(Unprovide)).to == SERVICE
            assert not client._conversation.providers

    run(test())


def test_data_that_no_value_stands_for_is_the_requesters_fault(run):
    async def test():
        async with serving() as (port, client):
            await provided(port, client, lambda data: data)
            port.peer.say(call("r1", b"1e999"))
            assert (await answer(port))[2] == "protocol"
            await closed(port, client)

    run(test())


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), float("nan")])
def test_a_time_limit_that_makes_no_sense_is_refused(run, timeout_s):
    async def test():
        async with serving() as (_, client):
            with pytest.raises(BadRequest, match="timeout_s"):
                await client.request(SERVICE, 1, timeout_s=timeout_s)

    run(test())
