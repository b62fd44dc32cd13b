"""Lists while the store fails: what was taken is written, and the rest comes later (P7)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.errors import StorageError
from chappe.push.note import Note
from chappe.wire.push import GetMessageList, PushError
from tests.loop import on_loop
from tests.push.comet.rig import Device, Rig, codes


def fail_once(rig: Rig, at: int) -> None:
    """Let the store fail to read bodies when it is asked for that time."""
    state: Any = rig.states.message
    bodies, asked = state._state.bodies, [0]

    async def read(ids: list[str]) -> dict[str, Note]:
        asked[0] += 1
        if asked[0] == at:
            raise StorageError("bodies: away")
        found: dict[str, Note] = await bodies(ids)
        return found

    state._state.bodies = read


async def backlog(rig: Rig, count: int) -> tuple[Device, list[str]]:
    """A device that is logged in, and what waits for it."""
    client = await rig.client()
    notes = [rig.note() for _ in range(count)]
    for note in notes:
        await rig.send(note, client[0], hand=False)
    return await rig.login(client), [note.id for note in notes]


@pytest.mark.parametrize("at", range(1, 6))
@on_loop
async def test_a_list_that_fails_half_way_brings_all_of_it_once_the_store_is_back(at: int) -> None:
    # The cache holds nothing, as with a backlog that is larger than it.
    rig = Rig(cache_bytes_max=1)
    device, ids = await backlog(rig, 200)
    fail_once(rig, at)
    device.say(GetMessageList())
    await rig.rest()
    assert rig.comets[0].counters.store_failures["lists"] == 1
    await rig.pass_s(2)
    assert sorted(device.ids()) == sorted(ids)


@on_loop
async def test_whoever_asked_is_told_that_the_store_is_away_behind_what_was_taken() -> None:
    rig = Rig(cache_bytes_max=1)
    device, ids = await backlog(rig, 200)
    fail_once(rig, at=5)
    device.say(GetMessageList())
    await rig.rest()
    heard = device.heard()
    assert codes(heard[-1:]) == [PushError.SERVER]
    assert len(heard) == 1 + 128
    assert len(rig.recorder.of("push_handed")) == 128 < len(ids)
