"""What waits and what comes: each note once a session, until it is acknowledged (P7, P8)."""

from __future__ import annotations

import asyncio

import pytest

from chappe.errors import Overload
from chappe.push.comet.session import State
from chappe.push.note import RETRACT
from chappe.wire.push import (
    GetMessageList,
    Heartbeat,
    Message,
    MessageList,
    Ok,
    PushError,
    Subscribe,
)
from chappe.wire.pushlink import Withdraw
from tests.loop import on_loop
from tests.push.comet.rig import APP, DAY_MS, Rig, codes


@on_loop
async def test_a_note_is_handed_live_encrypted_and_settled_when_it_is_acknowledged() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    note = rig.note(b"hello")
    await rig.send(note, device.client)
    ((message, content),) = device.read()
    assert (message.id, message.job_id, message.type, message.timestamp, content) == (
        note.id,
        note.job,
        1,
        note.ts_ms,
        b"hello",
    )
    assert await rig.waiting(device.client) == [note.id]
    device.ack(note.id)
    await rig.rest()
    assert device.heard() == [Ok()]
    assert await rig.waiting(device.client) == []
    tally = await rig.tally(note)
    assert (tally.aimed, tally.sent, tally.arrived) == (1, 1, 1)
    assert device.session.flights is None


@on_loop
async def test_nothing_is_sent_before_the_key_nor_live_before_the_list_is_asked_for() -> None:
    rig = Rig()
    device = await rig.login()
    note = rig.note()
    await rig.send(note, device.client)
    assert device.heard() == []
    device.say(GetMessageList())
    await rig.rest()
    assert device.ids() == [note.id]


@on_loop
async def test_what_waits_comes_in_a_list_what_is_urgent_first_and_only_once() -> None:
    rig = Rig()
    client = await rig.client()
    notes = [rig.note(priority=priority) for priority in (0, 1, 2, 1)]
    for note in notes:
        await rig.send(note, client[0])
        rig.clock.now_s += 1
    device = await rig.login(client)
    device.say(GetMessageList(), GetMessageList())
    await rig.rest()
    low, one, high, two = notes
    assert device.ids() == [high.id, one.id, two.id, low.id]
    await rig.pass_s(2)
    assert (await rig.tally(low)).sent == 1


@on_loop
async def test_an_empty_list_is_an_answer() -> None:
    rig = Rig()
    device = await rig.login()
    device.say(GetMessageList())
    await rig.rest()
    assert device.heard() == [MessageList(())]


@on_loop
async def test_a_list_that_one_frame_does_not_hold_comes_in_several() -> None:
    rig = Rig()
    client = await rig.client()
    notes = [rig.note(bytes(30_000)) for _ in range(5)]
    for note in notes:
        await rig.send(note, client[0])
    device = await rig.login(client)
    device.say(GetMessageList())
    await rig.rest()
    lists = device.heard()
    assert [len(each.messages) for each in lists if isinstance(each, MessageList)] == [2, 2, 1]


@on_loop
async def test_more_than_the_outbox_takes_comes_bit_by_bit_without_acknowledgements() -> None:
    rig = Rig()
    client = await rig.client()
    notes = [rig.note(bytes(60_000)) for _ in range(20)]
    for note in notes:
        await rig.send(note, client[0])
    device = await rig.login(client)
    device.say(GetMessageList())
    await rig.rest()
    assert device.ids() == [note.id for note in notes]


@on_loop
async def test_a_device_that_acknowledges_nothing_is_handed_so_many_and_more_when_it_does() -> None:
    rig = Rig(flights_max=5)
    client = await rig.client()
    notes = [rig.note() for _ in range(12)]
    for note in notes:
        await rig.send(note, client[0])
    device = await rig.live(client)
    first = device.ids()
    assert first == [note.id for note in notes[:5]]
    device.ack(*first[:4])
    await rig.rest()
    assert device.ids() == [note.id for note in notes[5:9]]
    await rig.send(rig.note(), client[0])
    assert device.ids() == []


@on_loop
async def test_what_expired_or_was_cancelled_is_not_handed_and_waits_no_more() -> None:
    rig = Rig()
    client = await rig.client()
    expired = rig.note(expires_ms=rig.clock.wall_ms() + 1000)
    cancelled, good = rig.note(), rig.note()
    for note in (expired, cancelled, good):
        await rig.send(note, client[0])
    await rig.states.message.cancel(cancelled.id)
    await rig.pass_s(2)
    device = await rig.live(client)
    assert device.ids() == [good.id]
    await rig.rest()
    assert await rig.waiting(client[0]) == [good.id]


@on_loop
async def test_what_was_not_acknowledged_comes_again_at_the_next_login() -> None:
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    kept, done = rig.note(), rig.note()
    await rig.send(kept, client[0])
    await rig.send(done, client[0])
    device.ack(done.id)
    rig.comets[0].lost(device.session)
    await rig.rest()
    assert (await rig.live(client)).ids() == [kept.id]
    await rig.pass_s(2)
    # It was handed twice, and sent to one client.
    assert (await rig.tally(kept)).sent == 1
    assert [row["reason"] for row in rig.recorder.of("push_handed")] == ["live", "live", "again"]


@on_loop
async def test_what_was_not_acknowledged_comes_again_after_half_an_hour() -> None:
    rig = Rig(idle_s=7200, heartbeat_s=3600)
    device = await rig.live()
    device.heard()
    note, done = rig.note(), rig.note()
    await rig.send(note, device.client)
    await rig.send(done, device.client)
    assert device.ids() == [note.id, done.id]
    device.ack(done.id)
    await rig.pass_s(1799)
    assert device.ids() == []
    await rig.pass_s(2)
    assert device.ids() == [note.id]
    await rig.pass_s(1700)
    assert device.ids() == []
    await rig.pass_s(110)
    assert device.ids() == [note.id]
    assert (await rig.tally(note)).sent == 1
    again = [row for row in rig.recorder.of("push_handed") if row["reason"] == "again"]
    assert len(again) == 2


@on_loop
async def test_a_note_that_expired_in_the_hands_of_a_device_does_not_come_again() -> None:
    rig = Rig(idle_s=7200, heartbeat_s=3600)
    device = await rig.live()
    note = rig.note(expires_ms=rig.clock.wall_ms() + 1_000_000)
    await rig.send(note, device.client)
    device.heard()
    await rig.pass_s(1810)
    assert device.heard() == []
    assert not device.session.flights
    assert await rig.waiting(device.client) == []


@on_loop
async def test_deliver_says_who_is_not_here() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    note = rig.note()
    handed = rig.comets[0].deliver(note, [device.client, "c0000000000000000"])
    assert handed == (1, ("c0000000000000000",))
    other = rig.comets[0].deliver(rig.note(app="another"), [device.client])
    assert other == (0, (device.client,))
    await rig.rest()
    assert device.ids() == [note.id]
    assert [row["n"] for row in rig.recorder.of("push_absent")] == [1, 1]


@on_loop
async def test_a_note_that_is_delivered_twice_is_handed_once() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    note = rig.note()
    await rig.send(note, device.client)
    rig.comets[0].deliver(note, [device.client])
    await rig.rest()
    assert device.ids() == [note.id]
    device.ack(note.id)
    rig.comets[0].deliver(note, [device.client])
    await rig.rest()
    assert device.ids() == []


@on_loop
async def test_a_tick_is_one_write() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    for _ in range(10):
        rig.comets[0].deliver(rig.note(), [device.client])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(device.sink.writes) == 1
    assert len(device.ids()) == 10


# Devices that do not read.


@on_loop
async def test_a_device_that_does_not_read_is_ended_and_gets_what_waits_when_it_is_back() -> None:
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    device.heard()
    rig.comets[0].pause(device.session)
    notes = [rig.note(bytes(60_000)) for _ in range(5)]
    for note in notes[:4]:
        await rig.send(note, client[0])
    assert not device.sink.ended
    assert not device.sink.writes
    await rig.send(notes[4], client[0])
    assert device.sink.ended == "aborted"
    assert rig.comets[0].counters.closed["slow"] == 1
    assert (await rig.live(client)).ids() == [note.id for note in notes]


@on_loop
async def test_a_device_that_reads_again_gets_what_waited_in_its_outbox() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    rig.comets[0].pause(device.session)
    note = rig.note()
    await rig.send(note, device.client)
    assert device.heard() == []
    rig.comets[0].resume(device.session)
    await rig.rest()
    assert device.ids() == [note.id]


# The store is away.


@on_loop
async def test_live_notes_go_on_and_acknowledgements_wait_while_the_store_is_away() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    note = rig.note()
    await rig.send(note, device.client, hand=False)
    rig.away(True)
    rig.comets[0].deliver(note, [device.client])
    await rig.rest()
    assert device.ids() == [note.id]
    device.ack(note.id)
    await rig.pass_s(5)
    assert device.heard() == [Ok()]
    rig.away(False)
    assert await rig.waiting(device.client) == [note.id]
    await rig.pass_s(2)
    assert await rig.waiting(device.client) == []
    assert (await rig.tally(note)).arrived == 1


@on_loop
async def test_acknowledgements_above_the_bound_are_not_taken_and_come_again() -> None:
    rig = Rig(acks_max=2)
    device = await rig.live()
    device.heard()
    notes = [rig.note() for _ in range(3)]
    for note in notes:
        await rig.send(note, device.client)
    rig.away(True)
    device.ack(*[note.id for note in notes])
    await rig.rest()
    rig.away(False)
    await rig.pass_s(2)
    assert await rig.waiting(device.client) == [notes[2].id]
    assert rig.comets[0].counters.acks_dropped == 1
    assert list(device.session.flights or ()) == [notes[2].id]


@on_loop
async def test_who_acknowledges_what_it_never_had_leaves_room_for_others() -> None:
    rig = Rig()
    liar, device = await rig.live(), await rig.live()
    note = rig.note()
    await rig.send(note, device.client)
    rig.away(True)
    for some in range(5):
        liar.ack(*[f"p07{some * 255 + at:05x}00000000" for at in range(255)])
    device.ack(note.id)
    await rig.rest()
    assert rig.comets[0].counters.acks_dropped > 0
    rig.away(False)
    await rig.pass_s(2)
    assert await rig.waiting(device.client) == []


@on_loop
async def test_a_list_that_the_store_did_not_give_is_error_3_and_comes_when_it_is_back() -> None:
    rig = Rig()
    client = await rig.client()
    note = rig.note()
    await rig.send(note, client[0])
    device = await rig.login(client)
    rig.away(True)
    device.say(GetMessageList())
    await rig.rest()
    assert codes(device.heard()) == [PushError.SERVER]
    rig.away(False)
    await rig.pass_s(2)
    assert device.ids() == [note.id]


@on_loop
async def test_an_acknowledgement_on_a_later_connection_counts() -> None:
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    note = rig.note()
    await rig.send(note, client[0])
    rig.comets[0].lost(device.session)
    await rig.rest()
    back = await rig.login(client)
    back.ack(note.id)
    await rig.rest()
    assert await rig.waiting(client[0]) == []
    assert (await rig.tally(note)).arrived == 1


@on_loop
async def test_what_was_acknowledged_a_moment_ago_is_not_listed_though_it_is_not_settled() -> None:
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    note = rig.note()
    await rig.send(note, client[0])
    rig.away(True, "message")
    device.ack(note.id)
    await rig.rest()
    rig.comets[0].lost(device.session)
    await rig.rest()
    rig.away(False)
    assert await rig.waiting(client[0]) == [note.id]
    assert (await rig.live(client)).ids() == []


@on_loop
async def test_many_acknowledgements_are_settled_in_few_round_trips() -> None:
    rig = Rig()
    devices = [await rig.live() for _ in range(20)]
    for _ in range(5):
        await rig.send(rig.note(), *[device.client for device in devices])
    before = rig.states.message.asked["settle"]  # type: ignore[attr-defined]
    for device in devices:
        device.ack(*device.ids())
    await rig.rest()
    assert rig.states.message.asked["settle"] - before <= 2  # type: ignore[attr-defined]
    assert [await rig.waiting(device.client) for device in devices] == [[]] * 20
    assert len(rig.recorder.of("push_acked")) == 100


# Notes that are taken back.


@on_loop
async def test_a_note_that_is_withdrawn_is_taken_back_from_who_has_it_unacknowledged() -> None:
    rig = Rig()
    has, done, never = await rig.live(), await rig.live(), await rig.live()
    note = rig.note()
    await rig.send(note, has.client, done.client)
    assert has.ids() == [note.id]
    done.ack(*done.ids())
    never.heard()
    await rig.rest()
    done.heard()
    rig.comets[0].withdraw(Withdraw(APP, note.id))
    await rig.rest()
    ((message, content),) = has.read()
    assert (message.type, content, message.job_id) == (RETRACT, note.id.encode(), note.job)
    assert done.heard() == never.heard() == []
    assert rig.comets[0].counters.retracted == 1


@on_loop
async def test_ids_that_are_none_are_ignored_among_those_that_are_acknowledged() -> None:
    rig = Rig()
    device = await rig.live()
    notes = [rig.note(), rig.note()]
    for note in notes:
        await rig.send(note, device.client)
    device.heard()
    device.ack(notes[0].id, "nosuch", "", "x" * 16, "p0000000ffffffff", notes[1].id)
    await rig.rest()
    assert device.heard() == [Ok()]
    assert await rig.waiting(device.client) == []
    assert [(await rig.tally(note)).arrived for note in notes] == [1, 1]


@on_loop
async def test_a_once_note_acknowledged_on_one_device_is_taken_back_on_the_others() -> None:
    rig = Rig(comets=2)
    clients = [await rig.client(user="ann") for _ in range(3)]
    here, there = await rig.live(clients[0]), await rig.live(clients[1], comet=2)
    note = rig.note(user="ann", once=True)
    await rig.send(note, *[client for client, _ in clients])
    assert here.ids() == there.ids() == [note.id]
    here.ack(note.id)
    await rig.rest()
    ((message, content),) = there.read()
    assert (message.type, content) == (RETRACT, note.id.encode())
    assert [await rig.waiting(client) for client, _ in clients] == [[], [], []]
    tally = await rig.tally(note)
    assert (tally.aimed, tally.arrived, tally.dropped) == (3, 1, 2)
    dropped = {row["client"]: row["reason"] for row in rig.recorder.of("push_dropped")}
    assert dropped == {client: "withdrawn" for client, _ in clients[1:]}
    assert (await rig.live(clients[2])).ids() == []


# Bodies and many.


@on_loop
async def test_bodies_are_asked_for_once_however_many_log_in() -> None:
    rig = Rig()
    clients = [await rig.client() for _ in range(10)]
    note = rig.note()
    await rig.send(note, *[client for client, _ in clients])
    before = rig.states.message.asked["bodies"]  # type: ignore[attr-defined]
    for client in clients:
        assert (await rig.live(client)).ids() == [note.id]
    assert rig.states.message.asked["bodies"] - before == 1  # type: ignore[attr-defined]


@on_loop
async def test_the_cache_keeps_to_its_bytes() -> None:
    rig = Rig(cache_bytes_max=10_000)
    comet = rig.comets[0]
    client = await rig.client()
    for _ in range(20):
        await rig.send(rig.note(bytes(1000)), client[0])
    device = await rig.live(client)
    assert len(device.ids()) == 20
    assert comet.bodies.size <= 10_000


@pytest.mark.parametrize(("passes_s", "handed"), [(29, 1), (31, 0)])
@on_loop
async def test_a_cancelled_note_that_nobody_told_of_goes_out_for_half_a_minute(
    passes_s: int, handed: int
) -> None:
    rig = Rig(cache_s=30)
    client = await rig.client()
    note = rig.note()
    await rig.send(note, client[0])
    rig.comets[0].bodies.keep(note)
    await rig.states.message.cancel(note.id)
    await rig.pass_s(passes_s)
    assert len((await rig.live(client)).ids()) == handed


@on_loop
async def test_a_note_that_expires_while_its_body_is_kept_is_not_handed() -> None:
    rig = Rig()
    client = await rig.client()
    note = rig.note(expires_ms=rig.clock.wall_ms() + 5000)
    await rig.send(note, client[0])
    rig.comets[0].bodies.keep(note)
    await rig.pass_s(6)
    assert (await rig.live(client)).ids() == []


@on_loop
async def test_tallies_that_could_not_be_told_are_told_later() -> None:
    rig = Rig()
    device = await rig.live()
    note = rig.note()
    await rig.send(note, device.client)
    rig.away(True, "meta")
    device.ack(note.id)
    await rig.pass_s(3)
    rig.away(False)
    assert (await rig.tally(note)).arrived == 0
    await rig.pass_s(2)
    assert (await rig.tally(note)).arrived == 1


@on_loop
async def test_too_many_notes_to_be_handed_to_many_are_refused() -> None:
    rig = Rig(handings_max=2)
    devices = [await rig.live() for _ in range(70)]
    clients = [device.client for device in devices]
    for device in devices:
        device.heard()
    comet = rig.comets[0]
    notes = [rig.note(), rig.note()]
    for note in notes:
        comet.deliver(note, clients)
    with pytest.raises(Overload):
        comet.deliver(rig.note(), clients)
    await rig.rest()
    assert all(device.ids() == [note.id for note in notes] for device in devices)
    comet.deliver(rig.note(), clients)
    await rig.rest()


@on_loop
async def test_a_session_forgets_what_was_acknowledged_long_ago() -> None:
    rig = Rig(heartbeat_s=10, idle_s=20)
    device = await rig.live()
    note = rig.note()
    await rig.send(note, device.client)
    device.ack(note.id)
    assert device.session.has_had(note.id)
    for _ in range(6):
        device.say()
        device.feed(b"\0\1\6")
        await rig.pass_s(10)
    assert device.session.done is None
    assert device.session.state is State.LIVE


@on_loop
async def test_messages_come_as_frames_of_their_own() -> None:
    rig = Rig()
    device = await rig.live()
    device.heard()
    await rig.send(rig.note(b"x" * 60_000, expires_ms=rig.clock.wall_ms() + DAY_MS), device.client)
    (message,) = device.heard()
    assert isinstance(message, Message)


@on_loop
async def test_what_could_not_be_handed_over_comes_when_the_comet_is_told_to_look() -> None:  # P7
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    device.say(Subscribe(("news",)))
    await rig.rest()
    device.heard()
    note = rig.note()
    await rig.send(note, client[0], hand=False)
    of_topic = await rig.publish("news", hand=False)
    await rig.pass_s(3)
    assert device.ids() == []
    rig.comets[0].look()
    rig.comets[0].look()
    await rig.pass_s(3)
    assert sorted(device.ids()) == sorted([note.id, of_topic.id])


@on_loop
async def test_what_could_not_be_handed_over_comes_after_half_an_hour_at_the_latest() -> None:  # P7
    rig = Rig(redelivery_s=30)
    client = await rig.client()
    device = await rig.live(client)
    device.heard()
    note = rig.note()
    await rig.send(note, client[0], hand=False)
    await rig.pass_s(32)
    assert device.ids() == [note.id]


@on_loop
async def test_what_a_comet_had_no_room_for_is_looked_up() -> None:
    rig = Rig(handings_max=1)
    clients = [await rig.client() for _ in range(100)]
    devices = [await rig.live(client) for client in clients]
    for device in devices:
        device.heard()
    first, second = rig.note(b"1"), rig.note(b"2")
    for note in (first, second):
        await rig.states.message.put(note)
        await rig.states.message.add(note, [client for client, _ in clients], 1000)
    names = [client for client, _ in clients]
    assert rig.comets[0].deliver(first, names).taken == 100
    with pytest.raises(Overload):
        rig.comets[0].deliver(second, names)
    await rig.pass_s(3)
    assert [sorted(device.ids()) for device in devices] == [sorted([first.id, second.id])] * 100


@on_loop
async def test_what_was_sent_while_the_store_had_lost_a_route_comes_when_it_is_found() -> None:
    rig = Rig(heartbeat_s=5, idle_s=10)
    client = await rig.client()
    device = await rig.live(client)
    device.heard()
    await rig.states.route.clear(1)
    note = rig.note()
    await rig.send(note, client[0])
    assert device.ids() == []
    for _ in range(4):
        device.say(Heartbeat())
        await rig.pass_s(4)
    assert device.ids() == [note.id]
    assert (await rig.states.route.find([client[0]])) == {client[0]: 1}


@on_loop
async def test_a_topics_note_whose_body_is_not_written_yet_is_not_given_up() -> None:  # P7
    rig = Rig()
    client = await rig.client()
    device = await rig.live(client)
    device.say(Subscribe(("news",)))
    await rig.rest()
    note = rig.note(topic="news")
    now_ms = rig.clock.wall_ms()
    position = await rig.states.topic.append(
        APP, "news", note.id, now_ms, note.expires_ms, None, 100
    )
    # Whoever sends it is killed here, and asked once more later.
    again = await rig.live(client)
    again.heard()
    await rig.rest()
    fields = {name: getattr(note, name) for name in note.__struct_fields__}
    note = rig.note(**fields | {"position": position})
    await rig.states.message.put(note)
    await rig.broadcast(1, note)
    await rig.rest()
    assert again.ids() == [note.id]
