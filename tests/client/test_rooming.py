"""Rooms from the client's side: joined, joined again, left, published to, asked about."""

from __future__ import annotations

import asyncio

import pytest

from chappe.client import ClientOptions, Stopped, connect
from chappe.errors import BadRequest, Forbidden, Overload, Unreachable
from chappe.wire.ops import Delivery, Join, Leave, Members, Publish

from .conftest import QUICK, Notices
from .peer import Peer, Port, peering


def dial(port: Port, **named):
    options = ClientOptions(**{**QUICK, **named.pop("options", {})})
    return connect(port.url, as_="user:a", options=options, **named)


async def answered(peer: Peer, kind, **fields):
    """The next op, which is of that kind, and was answered."""
    op = await peer.next(kind)
    peer.answer(op, **fields)
    return op


async def joined(client, peer: Peer, room: str) -> None:
    joining = asyncio.create_task(client.join(room))
    assert (await answered(peer, Join)).to == room
    await joining


def test_a_room_is_joined_and_what_comes_is_iterated_over_with_all_else(run):
    async def test():
        async with peering() as port, dial(port) as alice:
            await joined(alice, port.peer, "room:7")
            assert alice.rooms == ("room:7",)
            assert alice.subscriptions == ()
            for n, to in ((1, "room:7"), (2, "user:a"), (3, "room:7")):
                data = {"data": b"%d" % n, "data64": True}
                port.peer.say(Delivery(message=n, from_="user:b", to=to, ts=n, **data))
            got = [await alice.receive() for _ in range(3)]
            assert [(m.id, m.to) for m in got] == [(1, "room:7"), (2, "user:a"), (3, "room:7")]

    run(test())


def test_rooms_are_joined_again_on_a_new_connection_and_those_left_are_not(run):
    async def test():
        async with peering() as port, dial(port) as alice:
            for room in ("room:7", "room:8"):
                await joined(alice, port.peer, room)
            leaving = asyncio.create_task(alice.leave("room:8"))
            assert (await answered(port.peer, Leave)).to == "room:8"
            await leaving
            peer = await port.cut()
            join = await peer.next(Join)
            # What is asked for meanwhile waits until the room is joined.
            publishing = asyncio.create_task(alice.publish("room:7", 1))
            await asyncio.sleep(0.02)
            assert peer.ops == []
            peer.answer(join)
            await answered(peer, Publish, message=5)
            assert (await publishing).message == "5"
            assert alice.rooms == ("room:7",)

    run(test())


def test_a_room_whose_brokers_are_away_is_asked_for_again(run):
    async def test():
        async with peering() as port, dial(port) as alice:
            await joined(alice, port.peer, "room:7")
            peer = await port.cut()
            for _ in range(3):
                await answered(peer, Join, ok=False, error="unreachable", reason="no broker")
                assert alice.rooms == ("room:7",)
            await answered(peer, Join)
            # Nothing else is asked for: what follows is the user's.
            asking = asyncio.create_task(alice.presence("user:b"))
            (op,) = await peer.heard(1)
            peer.answer(op)
            await asking

    run(test())


def test_a_room_left_while_it_is_asked_for_again_is_asked_for_no_more(run):
    async def test():
        async with peering() as port, dial(port) as alice:
            await joined(alice, port.peer, "room:7")
            peer = await port.cut()
            join = await peer.next(Join)
            leaving = asyncio.create_task(alice.leave("room:7"))
            await asyncio.sleep(0)
            assert alice.rooms == ()
            peer.answer(join, ok=False, error="unreachable", reason="no broker")
            await answered(peer, Leave)
            await leaving
            await asyncio.sleep(0.1)
            assert peer.ops == []

    run(test())


def test_a_room_that_may_not_be_joined_again_is_told_and_given_up(run):
    async def test():
        notices = Notices()
        async with peering() as port, dial(port, on_notice=notices) as alice:
            await joined(alice, port.peer, "room:7")
            peer = await port.cut()
            await answered(peer, Join, ok=False, error="forbidden", reason="not you")
            told = await notices.wait(Stopped)
            assert (told.address, told.error.reason) == ("room:7", "not you")
            assert isinstance(told.error, Forbidden)
            assert alice.rooms == ()

    run(test())


def test_a_join_that_is_refused_is_none(run):
    async def test():
        async with peering() as port, dial(port) as alice:
            joining = asyncio.create_task(alice.join("room:7"))
            await answered(port.peer, Join, ok=False, error="unreachable", reason="too late")
            with pytest.raises(Unreachable, match="too late"):
                await joining
            assert alice.rooms == ()
            peer = await port.cut()
            await asyncio.sleep(0.05)
            assert peer.ops == []

    run(test())


def test_a_join_that_is_cancelled_or_timed_out_is_taken_back(run):
    async def test():
        options = {"request_timeout_s": 0.1}
        async with peering() as port, dial(port, options=options) as alice:
            joining = asyncio.create_task(alice.join("room:7"))
            await port.peer.next(Join)
            joining.cancel()
            assert (await port.peer.next(Leave)).to == "room:7"
            with pytest.raises(Overload) as caught:
                await alice.join("room:8")
            assert caught.value.outcome_unknown
            assert (await port.peer.heard(2))[1].to == "room:8"
            # One that the hub refused for a bound has come to nothing by itself.
            port.peer.ops.clear()
            joining = asyncio.create_task(alice.join("room:9"))
            await answered(port.peer, Join, ok=False, error="overload", reason="too many")
            with pytest.raises(Overload):
                await joining
            await asyncio.sleep(0.02)
            assert port.peer.ops == []

    run(test())


def test_a_join_that_is_cancelled_takes_back_nothing_while_another_of_the_room_waits(run):
    async def test():
        async with peering() as port, dial(port) as alice:
            one, other = (asyncio.create_task(alice.join("room:7")) for _ in range(2))
            _, second = await port.peer.heard(2)
            port.peer.ops.clear()
            one.cancel()
            await asyncio.sleep(0.02)
            assert port.peer.ops == []
            port.peer.answer(second)
            await other
            assert alice.rooms == ("room:7",)
            # Nor does one of a room that was joined before.
            again = asyncio.create_task(alice.join("room:7"))
            await port.peer.next(Join)
            again.cancel()
            await asyncio.sleep(0.02)
            assert port.peer.ops == []

    run(test())


@pytest.mark.parametrize("refused", [True, False])
def test_the_last_of_several_joins_takes_back_what_another_may_have_come_to(run, refused):
    async def test():
        async with peering() as port, dial(port) as alice:
            one, other = (asyncio.create_task(alice.join("room:7")) for _ in range(2))
            _, second = await port.peer.heard(2)
            port.peer.ops.clear()
            one.cancel()
            await asyncio.sleep(0.02)
            if refused:
                port.peer.answer(second, ok=False, error="overload", reason="too many")
                with pytest.raises(Overload):
                    await other
            else:
                other.cancel()
            assert (await port.peer.next(Leave)).to == "room:7"
            assert port.peer.ops == []
            # What follows knows nothing of that.
            await joined(alice, port.peer, "room:7")
            assert alice.rooms == ("room:7",)

    run(test())


@pytest.mark.parametrize("data", [{"n": 1}, b"\x00\xff"])
def test_a_reliable_message_is_marked_so(run, data):
    async def test():
        async with peering() as port, dial(port) as alice:
            publishing = asyncio.create_task(alice.publish("room:7", data, reliable=True))
            op = await answered(port.peer, Publish, message=9)
            assert (await publishing) == ("9", 0)
            assert (op.to, op.reliable, op.data64) == ("room:7", True, isinstance(data, bytes))
            plain = asyncio.create_task(alice.publish("room:7", data))
            assert not (await answered(port.peer, Publish, message=10)).reliable
            await plain

    run(test())


def test_members_are_counted_and_named(run):
    async def test():
        async with peering() as port, dial(port) as alice:
            asking = asyncio.create_task(alice.members("room:7"))
            assert (await answered(port.peer, Members, n=12)).n == 0
            assert await asking == (12, None)
            asking = asyncio.create_task(alice.members("room:7", 5))
            op = await answered(port.peer, Members, n=2, members=["user:a", "user:b"])
            assert (op.to, op.n) == ("room:7", 5)
            attendance = await asking
            assert (attendance.members, attendance.names) == (2, ("user:a", "user:b"))
            with pytest.raises(BadRequest, match="members"):
                await alice.members("room:7", "many")

    run(test())
