"""Notes that are taken back while they are on their way: nobody is left with one (P7)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from chappe.push.comets import Handed
from chappe.push.note import RETRACT, Note
from chappe.wire.push import GetMessageList
from chappe.wire.pushlink import Withdraw
from tests.loop import on_loop
from tests.push.comet.rig import APP, Device, Rig
from tests.push.comet.test_topics import subscriber


async def stored(rig: Rig, topic: str, aimed: int) -> Note:
    """A topic's note that is not handed to anybody yet."""
    note = rig.note(topic=topic)
    await rig.job(note, aimed)
    position = await rig.states.topic.append(
        APP, topic, note.id, rig.clock.wall_ms(), note.expires_ms, None, 10_000
    )
    note = msgspec.structs.replace(note, position=position)
    await rig.states.message.put(note)
    return note


async def cancel(rig: Rig, note: Note) -> None:
    """Take a note back, as admin does."""
    await rig.states.message.cancel(note.id)
    if note.topic is not None:
        await rig.states.topic.take_out(APP, note.topic, note.id)
    for comet in rig.comets:
        comet.withdraw(Withdraw(APP, note.id, [], note.topic))


def keeps(device: Device, note: Note) -> bool:
    """Whether a device shows a note, going by what it read since it was asked last."""
    shown = False
    for message, content in device.read():
        if message.id == note.id:
            shown = True
        elif message.type == RETRACT and content == note.id.encode():
            shown = False
    return shown


@on_loop
async def test_a_note_that_is_taken_back_while_it_goes_to_many_stays_with_nobody() -> None:
    rig = Rig()
    devices = [await subscriber(rig) for _ in range(200)]
    note = await stored(rig, "news", 200)
    handed = await rig.broadcast(1, note)
    await rig.states.meta.count({note.job: {"sent": handed.taken}})
    await asyncio.sleep(0)
    (comet,) = rig.comets
    assert len(comet.handings) == 1
    await cancel(rig, note)
    assert len(comet.handings) == 0
    await rig.rest()
    reached = [device for device in devices if device.sink.writes]
    assert not any(keeps(device, note) for device in devices)
    # Only those are counted to whom it went.
    assert 0 < len(reached) < 200
    assert (await rig.tally(note)).sent == len(reached)
    assert sum(row["n"] for row in rig.recorder.of("push_handed")) == len(reached)


@on_loop
async def test_a_note_that_comes_after_the_word_that_takes_it_back_is_not_handed_out() -> None:
    rig = Rig()
    device = await subscriber(rig)
    note, of_topic = rig.note(), rig.note(topic="news", position=1)
    for each in (note, of_topic):
        rig.comets[0].withdraw(Withdraw(APP, each.id, [], each.topic))
    assert await rig.deliver(1, note, [device.client]) == Handed(0)
    assert await rig.broadcast(1, of_topic) == Handed(0)
    await rig.rest()
    assert device.ids() == []
    assert len(rig.comets[0].bodies) == 0


@on_loop
async def test_a_note_that_is_taken_back_while_a_list_is_read_is_not_in_it() -> None:
    # The cache holds nothing, so bodies are read in turns, and again for each.
    rig = Rig(cache_bytes_max=1)
    client = await rig.client()
    notes = [rig.note() for _ in range(130)]
    for note in notes:
        await rig.send(note, client[0], hand=False)
    device = await rig.login(client)
    state: Any = rig.states.message
    bodies = state._state.bodies
    read: list[list[str]] = []

    async def take_back_meanwhile(ids: list[str]) -> dict[str, Note]:
        found: dict[str, Note] = await bodies(ids)
        read.append(ids)
        if len(read) == 5:
            # The first turn is taken, and is not written before all are.
            assert device.session.flights is not None
            assert notes[0].id in device.session.flights
            await cancel(rig, notes[0])
        return found

    state._state.bodies = take_back_meanwhile
    device.say(GetMessageList())
    await rig.rest()
    assert len(read) == 5
    assert not keeps(device, notes[0])
