"""Acknowledgements when the store does what it is asked and does not answer (P7, P9)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.errors import StorageError
from chappe.push.note import RETRACT
from tests.loop import on_loop
from tests.push.comet.rig import Device, Rig


def settle_without_an_answer(rig: Rig, *times: int) -> None:
    """Let the store settle and fail to say so, when it is asked for these times."""
    state: Any = rig.states.message
    settle, asked = state._state.settle, [0]

    async def ask(settled: Any) -> Any:
        asked[0] += 1
        outcome = await settle(settled)
        if asked[0] in times:
            raise StorageError("settle: no answer")
        return outcome

    state._state.settle = ask


async def sent_to(rig: Rig, *devices: Device, **fields: Any) -> Any:
    note = rig.note(**fields)
    await rig.send(note, *[device.client for device in devices])
    return note


@on_loop
async def test_what_was_settled_without_an_answer_has_arrived_and_counts_once() -> None:
    rig = Rig()
    device = await rig.live()
    note = await sent_to(rig, device)
    settle_without_an_answer(rig, 1, 2)
    device.ack(note.id)
    await rig.rest()
    assert (await rig.tally(note)).arrived == 0
    # It comes back meanwhile, and says so once more.
    device.comet.lost(device.session)
    again = await rig.live((device.client, device.token))
    again.ack(note.id)
    for _ in range(3):
        await rig.pass_s(2)
    again.ack(note.id)
    await rig.pass_s(2)
    assert (await rig.tally(note)).arrived == 1
    assert len(rig.recorder.of("push_acked")) == 1
    assert len(rig.comets[0].ledger) == 0


# The first settles what was acknowledged, the second what is taken back.
@pytest.mark.parametrize("times", [(1,), (2,), (1, 3), (1, 2, 3)])
@on_loop
async def test_a_once_note_is_taken_back_though_the_store_did_not_answer(
    times: tuple[int, ...],
) -> None:
    rig = Rig()
    phone = await rig.live(await rig.client(user="ann"))
    tablet = await rig.live(await rig.client(user="ann"))
    note = await sent_to(rig, phone, tablet, user="ann", once=True)
    assert tablet.ids()[-1:] == [note.id]
    settle_without_an_answer(rig, *times)
    phone.ack(note.id)
    for _ in range(4):
        await rig.pass_s(2)
    retracted = [content for message, content in tablet.read() if message.type == RETRACT]
    assert retracted == [note.id.encode()]
    assert await rig.waiting(tablet.client) == []
    tally = await rig.tally(note)
    assert (tally.arrived, tally.dropped) == (1, 1)
