"""Topics: subscribed by devices, handed to all who are here, marks that lose nothing (P6, P8)."""

from __future__ import annotations

import pytest

from chappe.push.comet.progress import LocalTopic, Progress
from chappe.push.note import RETRACT
from chappe.push.state.topic import Mark
from chappe.wire.push import (
    Error,
    GetMessageList,
    GetTopicList,
    Ok,
    PushError,
    Subscribe,
    TopicList,
    Unsubscribe,
)
from chappe.wire.pushlink import Subscribed, Withdraw
from tests.loop import on_loop
from tests.push.comet.rig import APP, Device, Rig, codes


async def subscriber(rig: Rig, *topics: str, comet: int = 1) -> Device:
    device = await rig.live(comet=comet)
    device.say(Subscribe(topics or ("news",)))
    await rig.rest()
    assert device.heard()[-1] == Ok()
    return device


@on_loop
async def test_a_device_subscribes_reads_its_topics_and_unsubscribes() -> None:
    rig = Rig()
    device = await subscriber(rig, "news", "sport", "news")
    device.say(GetTopicList(), Unsubscribe(("news",)), GetTopicList())
    await rig.rest()
    assert device.heard() == [TopicList(("news", "sport")), Ok(), TopicList(("sport",))]
    await rig.publish("news")
    assert device.heard() == []


@pytest.mark.parametrize("names", [(), ("a", ""), ("a*",), ("#",), ("x" * 256,), ("a b",)])
@on_loop
async def test_a_name_that_is_none_is_error_4_and_names_the_field(names: tuple[str, ...]) -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    device.say(Subscribe(names))
    await rig.rest()
    (error,) = device.heard()
    assert isinstance(error, Error)
    assert error.code == PushError.BAD_ARGUMENTS
    assert error.reason.startswith("topics: ")
    assert not device.sink.ended


@on_loop
async def test_a_topics_notes_come_to_the_comet_that_a_client_moved_to() -> None:  # P3, P8
    rig = Rig(2)
    client = await rig.client()
    before = await rig.live(client)
    before.say(Subscribe(("news",)))
    await rig.rest()
    after = await rig.live(client, comet=2)
    assert codes(before.heard())[-1:] == [PushError.DUPLICATE]
    after.heard()
    note = await rig.publish("news")
    assert after.ids() == [note.id]


@on_loop
async def test_a_client_has_so_many_topics_at_most() -> None:
    rig = Rig(topics_max=2)
    device = await subscriber(rig, "a", "b")
    device.say(Subscribe(("c",)), GetTopicList())
    await rig.rest()
    refusal, topics = device.heard()
    assert codes([refusal]) == [PushError.BAD_ARGUMENTS]
    assert topics == TopicList(("a", "b"))


@on_loop
async def test_topics_are_error_3_while_the_store_is_away() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    rig.away(True)
    device.say(Subscribe(("a",)))
    await rig.rest()
    assert codes(device.heard()) == [PushError.SERVER]
    assert not device.sink.ended


@on_loop
async def test_a_topics_note_comes_to_all_who_subscribe_and_counts_when_acknowledged() -> None:
    rig = Rig()
    devices = [await subscriber(rig) for _ in range(150)]
    other = await rig.live()
    other.heard()
    note = await rig.publish("news")
    assert all(device.ids() == [note.id] for device in devices)
    assert other.heard() == []
    for device in devices:
        device.ack(note.id)
    await rig.rest()
    tally = await rig.tally(note)
    assert (tally.sent, tally.arrived) == (150, 150)
    (row,) = rig.recorder.of("push_handed")
    assert row["n"] == 150
    marks = [await rig.states.topic.topics_of(APP, device.client) for device in devices]
    assert marks == [{"news": Mark(note.position)}] * 150
    # One look at what there is serves all of them.
    assert rig.states.topic.asked["since"] <= 1  # type: ignore[attr-defined]


@on_loop
async def test_who_leaves_before_a_large_broadcast_comes_to_it_is_not_counted() -> None:
    rig = Rig()
    devices = [await subscriber(rig) for _ in range(150)]
    note = rig.note(topic="news", position=rig.clock.wall_ms() + 1)
    await rig.job(note, 0)
    handed = rig.comets[0].broadcast(note)
    assert handed.taken == 150
    for device in devices[140:]:
        rig.comets[0].lost(device.session)
    await rig.states.meta.count({note.job: {"sent": handed.taken}})
    await rig.rest()
    await rig.pass_s(2)
    assert (await rig.tally(note)).sent == 140


@on_loop
async def test_a_topics_note_that_is_acknowledged_twice_counts_once_and_is_not_kept() -> None:
    rig = Rig()
    device = await subscriber(rig)
    note = await rig.publish("news")
    device.ack(note.id)
    await rig.rest()
    # How far the device is in the topic says as much, and is there anyway (P13).
    assert device.session.done is None
    for _ in range(2):
        device.ack(note.id)
        await rig.rest()
    assert (await rig.tally(note)).arrived == 1
    # By whatever way it comes once more, it is not handed out again.
    device.heard()
    rig.comets[0].broadcast(note)
    await rig.rest()
    assert device.heard() == []


@on_loop
async def test_devices_that_log_in_together_and_are_as_far_share_a_look_at_their_topic() -> None:
    rig = Rig()
    clients = [await rig.client() for _ in range(20)]
    for client in clients:
        await rig.states.topic.subscribe(APP, client[0], ["news"], -1, 0, 10)
    note = await rig.publish("news")
    devices = [Device(rig.comets[0], *client) for client in clients]
    for device in devices:
        device.auth()
    await rig.rest()
    for device in devices:
        device.agree()
    await rig.rest()
    rig.states.topic.asked.clear()  # type: ignore[attr-defined]
    for device in devices:
        device.say(GetMessageList())
    await rig.rest()
    assert [device.ids() for device in devices] == [[note.id]] * 20
    assert rig.states.topic.asked["since"] == 1  # type: ignore[attr-defined]


@on_loop
async def test_who_was_away_gets_a_topics_notes_at_the_next_login_until_acknowledged() -> None:
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    device.say(Subscribe(("news",)))
    await rig.rest()
    rig.comets[0].lost(device.session)
    await rig.rest()
    assert await rig.states.topic.servers(APP, "news") in ([], [-1])
    notes = [await rig.publish("news") for _ in range(3)]
    back = await rig.live(client)
    assert back.ids() == [note.id for note in notes]
    back.ack(notes[0].id, notes[2].id)
    rig.comets[0].lost(back.session)
    await rig.rest()
    again = await rig.live(client)
    assert again.ids() == [notes[1].id]
    again.ack(notes[1].id)
    await rig.rest()
    assert (await rig.states.topic.topics_of(APP, client[0]))["news"] == Mark(notes[2].position)
    assert (await rig.live(client)).ids() == []


@on_loop
async def test_who_is_further_behind_than_the_others_catches_up() -> None:
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    device.say(Subscribe(("news",)))
    await rig.rest()
    rig.comets[0].lost(device.session)
    await rig.rest()
    notes = [await rig.publish("news") for _ in range(3)]
    # What this comet knows of the topic begins with this subscriber.
    await subscriber(rig)
    back = await rig.live(client)
    assert back.ids() == [note.id for note in notes]
    back.ack(notes[1].id)
    back.ack(notes[0].id)
    back.ack(notes[2].id)
    await rig.rest()
    assert (await rig.states.topic.topics_of(APP, client[0]))["news"] == Mark(notes[2].position)


@on_loop
async def test_a_broadcast_that_comes_late_is_not_handed_to_who_had_it_on_another_connection() -> (
    None
):
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    device.say(Subscribe(("news",)))
    await rig.rest()
    note = await rig.publish("news")
    device.ack(note.id)
    await rig.rest()
    rig.comets[0].lost(device.session)
    back = await rig.live(client)
    back.heard()
    rig.comets[0].broadcast(note)
    await rig.rest()
    assert back.heard() == []


@on_loop
async def test_a_note_that_was_overtaken_is_not_lost() -> None:
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    device.say(Subscribe(("news",)))
    await rig.rest()
    device.heard()
    # Its broadcast never comes, that of the next one does.
    missed = await rig.publish("news", hand=False)
    note = await rig.publish("news")
    assert device.ids() == [note.id]
    device.ack(note.id)
    await rig.rest()
    rig.comets[0].lost(device.session)
    await rig.rest()
    assert (await rig.live(client)).ids() == [missed.id]


@on_loop
async def test_a_long_backlog_of_a_topic_comes_page_by_page() -> None:
    rig = Rig(list_notes_max=10)
    client = await rig.client()
    device = await rig.live(client)
    device.say(Subscribe(("news",)))
    await rig.rest()
    rig.comets[0].lost(device.session)
    await rig.rest()
    notes = [await rig.publish("news") for _ in range(35)]
    back = await rig.live(client)
    got: list[str] = []
    for _ in range(10):
        ids = back.ids()
        got += ids
        if not ids:
            break
        back.ack(*ids)
        await rig.rest()
    assert got == [note.id for note in notes]
    assert (await rig.states.topic.topics_of(APP, client[0]))["news"] == Mark(notes[-1].position)


@on_loop
async def test_somebody_else_may_change_a_clients_topics() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    now_ms = rig.clock.wall_ms()
    assert await rig.states.topic.subscribe(APP, device.client, ["news"], 1, now_ms, 100)
    rig.tell(1, Subscribed(APP, device.client))
    await rig.rest()
    note = await rig.publish("news")
    assert device.ids() == [note.id]


@on_loop
async def test_a_topics_note_that_is_withdrawn_holds_back_nobodys_mark() -> None:
    rig = Rig()
    device = await subscriber(rig)
    first, second = await rig.publish("news"), await rig.publish("news")
    assert device.ids() == [first.id, second.id]
    device.ack(second.id)
    await rig.rest()
    device.heard()
    await rig.states.message.cancel(first.id)
    await rig.states.topic.take_out(APP, "news", first.id)
    rig.comets[0].withdraw(Withdraw(APP, first.id, topic="news"))
    await rig.rest()
    ((message, content),) = device.read()
    assert (message.type, content) == (RETRACT, first.id.encode())
    mark = (await rig.states.topic.topics_of(APP, device.client))["news"]
    assert mark == Mark(second.position)


@on_loop
async def test_marks_wait_while_the_store_is_away_and_count_once() -> None:
    rig = Rig()
    device = await subscriber(rig)
    note = await rig.publish("news")
    rig.away(True)
    device.ack(note.id)
    device.ack(note.id)
    await rig.pass_s(3)
    rig.away(False)
    await rig.pass_s(2)
    assert (await rig.tally(note)).arrived == 1
    mark = (await rig.states.topic.topics_of(APP, device.client))["news"]
    assert mark == Mark(note.position)


def test_a_mark_climbs_only_over_what_is_known_to_be_all() -> None:
    progress = Progress(Mark(10, (14,)))
    assert progress.has(10)
    assert progress.has(14)
    assert not progress.has(12)
    assert progress.settle(16)
    assert not progress.settle(16)
    assert progress.mark == 10
    progress.listed([12, 14, 16, 18])
    assert progress.as_mark() == Mark(10, (14, 16))
    assert progress.settle(12)
    assert progress.as_mark() == Mark(16)
    topic = LocalTopic("news", 10)
    topic.verify([(12, "a"), (14, "b"), (16, "c"), (18, "d"), (20, "e")])
    assert progress.settle(20)
    topic.lift(progress)
    assert progress.as_mark() == Mark(16, (20,))
    topic.take_out("d")
    topic.lift(progress)
    assert progress.as_mark() == Mark(20)


def test_a_topic_remembers_so_many_positions_and_says_from_where_on() -> None:
    topic = LocalTopic("news", 0)
    topic.verify([(at, str(at)) for at in range(1, 1001)])
    assert len(topic.positions) == 512
    behind = Progress(Mark(topic.floor - 1, (topic.floor + 1,)))
    topic.lift(behind)
    assert behind.mark == topic.floor - 1
