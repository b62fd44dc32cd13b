"""Queues and services as a node serves them: joined with the rest, on the loop's own time."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from chappe.errors import CloseCode
from chappe.wire.encoding import JSON_ITEMS, STREAM, Encoding
from chappe.wire.ops import Ack, Consume, Create, Delete, Fetch, Presence, Provide, Request, Respond
from tests.hub.rig import Endpoint, Rig, payload_of, send
from tests.loop import on_loop

JOBS, BILLING = "queue:jobs", "service:billing"


async def heard(who: Endpoint, count: int = 1) -> list[Any]:
    """The next ops that an endpoint is told, as soon as there are so many."""
    ops: list[Any] = []
    while len(ops) < count:
        await asyncio.sleep(0)
        ops += who.heard()
    return ops


@pytest.mark.parametrize("encoding", [STREAM, JSON_ITEMS])
@on_loop
async def test_a_queue_from_its_making_to_its_end(encoding: Encoding) -> None:  # H17
    rig = Rig()
    admin, dying, worker = (rig.endpoint(name, encoding) for name in ("admin", "dying", "worker"))
    admin.say(Create(id=1, to=JOBS, volatile=True, ack_timeout_s=0.5))
    dying.say(Fetch(id=2, to=JOBS, n=1, wait_ms=60_000))
    worker.say(Consume(id=3, to=JOBS, credit=10))
    admin.say(*(send(JOBS, n, 10 + n) for n in range(3)), Presence(id=20, to=JOBS))
    replies = await heard(admin, 5)
    assert [(op.id, op.ok) for op in replies] == [(n, True) for n in (1, 10, 11, 12, 20)]
    assert replies[-1].online
    first, fetched = await heard(dying, 2)
    assert (payload_of(first), fetched.n) == (0, 1)
    _, *others = await heard(worker, 3)
    worker.say(*(Ack(message=op.message) for op in others))
    rig.hub.lost(dying.session)
    (again,) = await heard(worker)
    assert (payload_of(again), again.message) == (0, first.message)
    # Not acknowledged in time: to the next, who is the same one here.
    (once_more,) = await heard(worker)
    assert once_more.message == first.message
    worker.say(Ack(id=4, message=once_more.message), Fetch(id=5, to=JOBS, wait_ms=20))
    acked, over = await heard(worker, 2)
    assert (acked.ok, over.id, over.n) == (True, 5, 0)
    admin.say(Delete(id=30, to=JOBS), send(JOBS, 9, 31))
    deleted, refused = await heard(admin, 2)
    assert (deleted.ok, refused.error) == (True, "unreachable")


@pytest.mark.parametrize("encoding", [STREAM, JSON_ITEMS])
@on_loop
async def test_a_service_from_its_first_provider_to_its_last(encoding: Encoding) -> None:  # H18
    rig = Rig()
    one, two, alice = (rig.endpoint(name, encoding) for name in ("one", "two", "alice"))

    def ask(id: int, **fields: Any) -> Request:
        return Request(id=id, to=BILLING, data=msgspec.Raw(b"[1]"), **fields)

    one.say(Provide(id=1, to=BILLING))
    two.say(Provide(id=1, to=BILLING))
    assert [(await heard(each))[0].ok for each in (one, two)] == [True, True]
    alice.say(Presence(id=1, to=BILLING), ask(2), ask(3, timeout_ms=20), ask(4, idempotent=True))
    assert (await heard(alice))[0].online
    plain, repeated = await heard(one, 2)
    (silent,) = await heard(two)
    (late,) = await heard(alice)
    assert (late.id, late.error, late.outcome) == (3, "overload", "unknown")
    rig.hub.close(one.session, CloseCode.NORMAL, "gone")
    (gone,) = await heard(alice)
    assert (gone.id, gone.error) == (2, "unreachable")
    (again,) = await heard(two)
    assert again.request == repeated.request not in (plain.request, silent.request)
    two.say(Respond(request=again.request, data=msgspec.Raw(b"2")))
    (reply,) = await heard(alice)
    assert (reply.id, payload_of(reply)) == (4, 2)
    rig.hub.lost(two.session)
    alice.say(ask(5))
    assert (await heard(alice))[0].error == "unreachable"
