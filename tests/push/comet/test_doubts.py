"""Sessions that the store knows otherwise: replaced, revoked, moved, changed without a word."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.wire.push import GetTopicList, Heartbeat, PushError, Subscribe, TopicList
from chappe.wire.pushlink import Subscribed
from tests.loop import on_loop
from tests.push.comet.rig import APP, Device, Rig, codes
from tests.push.comet.test_topics import subscriber


def after(state: Any, name: str, then: Any) -> None:
    """Have something happen when the store has done what it is asked, and not answered yet."""
    done = getattr(state._state, name)

    async def ask(*args: Any) -> Any:
        outcome = await done(*args)
        setattr(state._state, name, done)
        await then()
        return outcome

    setattr(state._state, name, ask)


async def beat_on(rig: Rig, device: Device, seconds: int) -> None:
    """Let time pass for a device that keeps its connection."""
    for _ in range(seconds // 100):
        device.say(Heartbeat())
        await rig.pass_s(100)


@on_loop
async def test_a_lost_route_is_not_taken_from_a_login_that_came_since() -> None:  # P3
    rig = Rig(2)
    client = await rig.client()
    first = await rig.live(client)
    await rig.states.route.leave({client[0]: 1})

    async def login_elsewhere() -> None:
        await rig.states.route.move({client[0]: 2})

    after(rig.states.route, "find", login_elsewhere)
    rig.comets[0].look()
    await rig.pass_s(2)
    assert await rig.states.route.find([client[0]]) == {client[0]: 2}
    assert first.session.closed
    assert codes(first.heard())[-1:] == [PushError.DUPLICATE]


@on_loop
async def test_a_lost_route_is_written_anew_and_what_was_sent_meanwhile_comes() -> None:
    rig = Rig()
    device = await subscriber(rig)
    await rig.states.route.leave({device.client: 1})
    await rig.states.topic.leave(APP, device.client, 1)
    note, of_topic = rig.note(), await rig.publish("news")
    await rig.send(note, device.client)
    assert device.ids() == []
    rig.comets[0].look()
    await rig.pass_s(2)
    assert set(device.ids()) == {note.id, of_topic.id}
    assert await rig.states.route.find([device.client]) == {device.client: 1}
    assert await rig.states.topic.servers(APP, "news") == [1]


@on_loop
async def test_a_route_that_is_written_for_one_who_leaves_meanwhile_does_not_stay() -> None:
    rig = Rig()
    device = await subscriber(rig)
    await rig.states.route.leave({device.client: 1})

    async def leave() -> None:
        # All is told of it before the answer comes.
        device.comet.lost(device.session)
        await rig.comets[0].routes.idle()
        await rig.states.route.claim({device.client: 1})

    after(rig.states.route, "claim", leave)
    rig.comets[0].look()
    await rig.pass_s(2)
    assert await rig.states.route.find([device.client]) == {}
    assert await rig.states.topic.servers(APP, "news") == []


@on_loop
async def test_topics_that_are_elsewhere_in_the_store_come_to_where_the_client_is() -> None:
    rig = Rig(2)
    device = await subscriber(rig)
    await rig.states.topic.move(APP, device.client, -1)
    note = await rig.publish("news")
    assert device.ids() == []
    await beat_on(rig, device, 300)
    assert device.ids() == [note.id]
    assert await rig.states.topic.servers(APP, "news") == [1]


@on_loop
async def test_topics_are_not_taken_from_a_login_that_comes_meanwhile() -> None:
    rig = Rig(2)
    device = await subscriber(rig)
    await rig.states.topic.move(APP, device.client, -1)

    async def login_elsewhere() -> None:
        await rig.states.route.move({device.client: 2})

    after(rig.states.topic, "move_all", login_elsewhere)
    rig.comets[0].look()
    await rig.pass_s(2)
    assert await rig.states.topic.servers(APP, "news") == [2]
    assert device.session.closed


@on_loop
async def test_topics_of_one_who_leaves_while_logging_in_are_nowhere() -> None:
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    device.say(Subscribe(("news",)))
    await rig.rest()
    device.comet.lost(device.session)
    await rig.rest()
    device = Device(rig.comets[0], *client)
    device.auth()
    await rig.rest()

    async def leave() -> None:
        device.comet.lost(device.session)

    after(rig.states.topic, "move_all", leave)
    device.agree()
    await rig.rest()
    assert device.session.closed
    assert await rig.states.route.find([client[0]]) == {}
    assert await rig.states.topic.servers(APP, "news") == []


@pytest.mark.parametrize("fails", [False, True])
@on_loop
async def test_topics_of_one_who_leaves_while_subscribing_are_nowhere(fails: bool) -> None:
    rig = Rig()
    device = await rig.live()

    async def leave() -> None:
        device.comet.lost(device.session)
        await rig.comets[0].routes.idle()
        # Its going was told before it was written that it is here.
        await rig.states.topic.move(APP, device.client, 1)
        if fails:
            rig.away(True, "topic")

    after(rig.states.topic, "subscribe", leave)
    device.say(Subscribe(("news",)))
    await rig.rest()
    rig.away(False)
    await rig.pass_s(2)
    assert device.session.closed
    assert await rig.states.topic.servers(APP, "news") == []


@on_loop
async def test_topics_that_could_not_be_read_anew_are_read_when_the_store_is_back() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    await rig.states.topic.subscribe(APP, device.client, ["news"], 1, rig.clock.wall_ms(), 100)
    rig.away(True, "topic")
    rig.comets[0].subscribed(Subscribed(APP, device.client))
    await rig.pass_s(3)
    rig.away(False, "topic")
    # Sent before its topics are read.
    first = await rig.publish("news")
    await rig.pass_s(2)
    second = await rig.publish("news")
    assert device.ids() == [first.id, second.id]


@pytest.mark.parametrize("looks", [False, True])
@on_loop
async def test_topics_that_the_comet_was_not_told_of_are_found_when_it_looks(looks: bool) -> None:
    rig = Rig()
    device = await subscriber(rig, "old")
    await rig.states.topic.subscribe(APP, device.client, ["news"], 1, rig.clock.wall_ms(), 100)
    await rig.states.topic.unsubscribe(APP, device.client, ["old"])
    note = await rig.publish("news")
    assert device.ids() == []
    if looks:
        rig.comets[0].look()
        await rig.pass_s(2)
    else:
        await beat_on(rig, device, 300)
    assert device.ids() == [note.id]
    device.say(GetTopicList())
    await rig.rest()
    assert device.heard() == [TopicList(("news",))]
    assert rig.comets[0].audience.topic(APP, "old") is None
