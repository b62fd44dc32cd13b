"""Topics with a history: what was missed is asked for, what came is not delivered twice (H16)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chappe.client import (
    Client,
    ClientOptions,
    Missed,
    Position,
    Reconnected,
    Renewed,
    Unsubscribed,
    connect,
)
from chappe.errors import BadRequest, Forbidden
from chappe.wire import ops
from chappe.wire.ops import PACKED, Subscribe, Unsubscribe

from .conftest import QUICK, Notices
from .peer import Peer, Port, peering

TOPIC = "topic:t"


def published(offset: int, topic: str = TOPIC) -> ops.Op:
    return PACKED[ops.Delivery](
        message=offset, from_="user:b", to=topic, ts=1, data=b"%d" % offset, offset=offset
    )


class Talk:
    """A client, its notices, and the hub's side of it."""

    def __init__(self, port: Port, client: Client, notices: Notices) -> None:
        self.port = port
        self.client = client
        self.notices = notices

    @property
    def peer(self) -> Peer:
        return self.port.peer

    async def subscribe(self, *, answer: dict[str, Any], topic: str = TOPIC, **named: Any) -> bool:
        asking = asyncio.create_task(self.client.subscribe(topic, **named))
        self.peer.answer(await self.peer.next(Subscribe), **answer)
        return await asking

    async def came(self, count: int) -> list[Any]:
        return [(await self.client.receive()).data for _ in range(count)]

    async def cut(self) -> Subscribe:
        """Break the connection and wait for the subscribe on the next one."""
        return await (await self.port.cut()).next(Subscribe)


@contextlib.asynccontextmanager
async def talking() -> AsyncIterator[Talk]:
    notices = Notices()
    async with (
        peering() as port,
        connect(
            port.url, as_="user:a", options=ClientOptions(**QUICK), on_notice=notices
        ) as client,
    ):
        yield Talk(port, client, notices)


def test_a_reconnect_says_the_last_position_and_delivers_nothing_twice(run):  # H16
    async def test():
        async with talking() as talk:
            assert await talk.subscribe(answer={"epoch": "e", "offset": 5})
            assert talk.client.position(TOPIC) == Position("e", 5)
            talk.peer.say(published(6), published(7))
            assert await talk.came(2) == [6, 7]
            again = await talk.cut()
            assert (again.epoch, again.offset) == ("e", 7)
            talk.peer.say(*(published(n) for n in (6, 7, 8, 9)))
            talk.peer.answer(again, epoch="e", offset=9, recovered=True)
            talk.peer.say(published(9), published(10))
            assert await talk.came(3) == [8, 9, 10]
            await talk.notices.wait(Reconnected)
            assert not [told for told in talk.notices if isinstance(told, Missed | Renewed)]
            assert talk.client.position(TOPIC) == ("e", 10)

    run(test())


def test_what_could_not_be_recovered_is_told_and_the_position_goes_on(run):
    async def test():
        async with talking() as talk:
            await talk.subscribe(answer={"epoch": "e", "offset": 5})
            again = await talk.cut()
            talk.peer.say(published(90))
            talk.peer.answer(again, epoch="e", offset=95, recovered=False)
            assert (await talk.notices.wait(Missed)).topic == TOPIC
            assert await talk.came(1) == [90]
            again = await talk.cut()
            assert (again.epoch, again.offset) == ("e", 95)
            talk.peer.answer(again, epoch="f", offset=2, recovered=False)
            await talk.notices.wait(Missed)
            # In another epoch, small offsets are new again.
            talk.peer.say(published(3))
            assert await talk.came(1) == [3]
            assert talk.client.position(TOPIC) == ("f", 3)

    run(test())


def test_a_history_that_begins_anew_resets_the_position(run):
    async def test():
        async with talking() as talk:
            await talk.subscribe(answer={"epoch": "e", "offset": 5})
            talk.peer.say(published(6), ops.Position(to=TOPIC, epoch="f", offset=0), published(1))
            assert (await talk.notices.wait(Renewed)).topic == TOPIC
            assert talk.client.position(TOPIC) == ("e", 5)
            assert await talk.came(1) == [6]
            assert talk.client.position(TOPIC) == ("f", 0)
            assert await talk.came(1) == [1]
            again = await talk.cut()
            assert (again.epoch, again.offset) == ("f", 1)

    run(test())


def test_a_topic_without_a_history_knows_no_positions(run):
    async def test():
        async with talking() as talk:
            await talk.subscribe(answer={})
            assert talk.client.position(TOPIC) is None
            again = await talk.cut()
            assert (again.epoch, again.offset) == (None, None)
            talk.peer.answer(again)
            await talk.notices.wait(Reconnected)
            assert not [told for told in talk.notices if isinstance(told, Missed)]

    run(test())


def test_a_history_that_is_gone_was_missed(run):
    async def test():
        async with talking() as talk:
            await talk.subscribe(answer={"epoch": "e", "offset": 5})
            again = await talk.cut()
            talk.peer.answer(again, recovered=False)
            await talk.notices.wait(Missed)
            assert talk.client.position(TOPIC) is None
            again = await talk.cut()
            assert again.epoch is None
            talk.peer.answer(again)
            await talk.notices.wait(Reconnected)
            assert not [told for told in talk.notices if isinstance(told, Missed)]

    run(test())


@pytest.mark.parametrize("recovered", [True, False])
def test_an_application_may_keep_its_position_itself(run, recovered):
    async def test():
        async with talking() as talk:
            asking = asyncio.create_task(talk.client.subscribe(TOPIC, since=("e", 3)))
            op = await talk.peer.next(Subscribe)
            assert (op.epoch, op.offset) == ("e", 3)
            talk.peer.say(published(3), published(4))
            talk.peer.answer(op, epoch="e", offset=4, recovered=recovered)
            assert await asking is recovered
            assert await talk.came(1) == [4]
            assert talk.client.position(TOPIC) == ("e", 4)
            if not recovered:
                await talk.notices.wait(Missed)
            with pytest.raises(BadRequest, match="since"):
                await talk.client.subscribe(TOPIC, since=("e", 1))

    run(test())


def test_a_refused_subscribe_leaves_no_position_behind(run):
    async def test():
        async with talking() as talk:
            with pytest.raises(Forbidden):
                await talk.subscribe(
                    answer={"ok": False, "error": "forbidden", "reason": "no"}, since=("e", 3)
                )
            assert talk.client.position(TOPIC) is None
            assert talk.client.subscriptions == ()

    run(test())


def test_what_was_unsubscribed_can_be_read_again_from_an_older_place(run):
    async def test():
        async with talking() as talk:
            client = talk.client
            await talk.subscribe(answer={"epoch": "e", "offset": 0})
            talk.peer.say(published(1), published(2))
            parting = asyncio.create_task(client.unsubscribe(TOPIC))
            talk.peer.answer(await talk.peer.next(Unsubscribe))
            await parting
            asking = asyncio.create_task(client.subscribe(TOPIC, since=("e", 0)))
            op = await talk.peer.next(Subscribe)
            talk.peer.say(published(1), published(2))
            talk.peer.answer(op, epoch="e", offset=2, recovered=True)
            assert await asking
            # Twice, because it was asked for twice.
            assert await talk.came(3) == [1, 2, 1]
            assert client.position(TOPIC) == ("e", 1)
            assert await talk.came(1) == [2]
            parting = asyncio.create_task(client.unsubscribe(TOPIC))
            talk.peer.answer(await talk.peer.next(Unsubscribe))
            await parting
            assert client.position(TOPIC) is None

    run(test())


def test_who_wants_only_what_is_new_asks_for_no_recovery(run):
    async def test():
        async with talking() as talk:
            await talk.subscribe(answer={"epoch": "e", "offset": 5}, recover=False)
            again = await talk.cut()
            assert (again.epoch, again.offset) == (None, None)
            talk.peer.answer(again, epoch="e", offset=50)
            talk.peer.say(published(51))
            assert await talk.came(1) == [51]
            assert not [told for told in talk.notices if isinstance(told, Missed)]

    run(test())


def test_every_identity_is_subscribed_again_and_a_loss_told_once(run):  # H14
    async def test():
        async with talking() as talk:
            await talk.subscribe(answer={"epoch": "e", "offset": 5})
            await talk.subscribe(answer={"epoch": "e", "offset": 5}, as_="avatar:x")
            await talk.subscribe(answer={"epoch": "e", "offset": 5}, as_="avatar:y")
            assert talk.client.subscriptions == (TOPIC,)
            parting = asyncio.create_task(talk.client.unsubscribe(TOPIC, as_="avatar:y"))
            parted = await talk.peer.next(Unsubscribe)
            assert parted.as_ == "avatar:y"
            talk.peer.answer(parted)
            await parting
            await talk.subscribe(answer={"epoch": "e", "offset": 5}, as_="avatar:z")
            first = await talk.cut()
            second, third = [await talk.peer.next(Subscribe) for _ in range(2)]
            assert (first.as_, second.as_, third.as_) == (None, "avatar:x", "avatar:z")
            talk.peer.answer(first, epoch="e", offset=9, recovered=False)
            talk.peer.answer(second, ok=False, error="forbidden", reason="removed")
            talk.peer.answer(third, epoch="e", offset=9, recovered=False)
            await talk.notices.wait(Reconnected)
            await talk.notices.wait(Missed)
            assert (await talk.notices.wait(Unsubscribed)).as_ == "avatar:x"
            assert not [told for told in talk.notices if isinstance(told, Missed)]
            assert talk.client.subscriptions == (TOPIC,)

    run(test())


def test_a_hub_that_is_busy_after_a_reconnect_is_asked_again(run):
    async def test():
        async with talking() as talk:
            await talk.subscribe(answer={"epoch": "e", "offset": 5})
            again = await talk.cut()
            talk.peer.answer(again, ok=False, error="overload", reason="later")
            again = await talk.peer.next(Subscribe)
            assert (again.epoch, again.offset) == ("e", 5)
            talk.peer.say(published(6))
            talk.peer.answer(again, epoch="e", offset=6, recovered=True)
            assert await talk.came(1) == [6]
            assert talk.client.subscriptions == (TOPIC,)
            assert not [told for told in talk.notices if isinstance(told, Unsubscribed)]

    run(test())


def test_what_is_not_wanted_any_more_is_not_asked_for_again(run):
    async def test():
        async with talking() as talk:
            await talk.subscribe(answer={})
            again = await talk.cut()
            talk.peer.answer(again, ok=False, error="overload", reason="later")
            while not talk.client.connected:
                await asyncio.sleep(0)
            parting = asyncio.create_task(talk.client.unsubscribe(TOPIC))
            # It may have been asked for once more already: the wait before that is random.
            while not isinstance(op := await talk.peer.next(ops.AddressedOp), Unsubscribe):
                talk.peer.answer(op, ok=False, error="overload", reason="later")
            talk.peer.answer(op)
            await parting
            while talk.client._connection.retry:
                await asyncio.sleep(0.001)
            asking = asyncio.create_task(talk.client.presence(TOPIC))
            talk.peer.answer(await talk.peer.next(ops.Presence), online=False)
            await asking

    run(test())


def test_a_client_with_a_token_alone_learns_its_address(run):  # H13
    async def test():
        async with peering() as port:
            port.as_ = "user:carol"
            async with connect(port.url, token="sealed") as client:
                assert client.address == "user:carol"

    run(test())


def test_avatars_are_given_and_taken(run):  # H15
    async def test():
        async with talking() as talk:
            adding = asyncio.create_task(talk.client.add_avatar("avatar:x", "user:bob"))
            op = await talk.peer.next(ops.Avatar)
            assert (op.do, op.avatar, op.user) == ("add", "avatar:x", "user:bob")
            talk.peer.answer(op)
            await adding
            removing = asyncio.create_task(talk.client.remove_avatar("avatar:x"))
            op = await talk.peer.next(ops.Avatar)
            assert (op.do, op.avatar) == ("remove", "avatar:x")
            talk.peer.answer(op, ok=False, error="forbidden", reason="no")
            with pytest.raises(Forbidden):
                await removing

    run(test())
