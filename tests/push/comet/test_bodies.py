"""Bodies that are kept: bounded by bytes, never handed out when they have expired (P8)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.push.comet.bodies import FETCH_MAX, Bodies, in_turns
from chappe.push.comet.counters import Counters
from chappe.push.note import Note
from tests.loop import on_loop
from tests.push.comet.rig import Rig


def bodies_of(rig: Rig, bytes_max: int = 1 << 20) -> Bodies:
    return Bodies(rig.states.message, rig.clock, Counters(), bytes_max=bytes_max, age_s=3600)


@on_loop
async def test_a_body_that_expired_while_it_was_kept_is_not_handed_out() -> None:
    rig = Rig()
    bodies = bodies_of(rig)
    note = rig.note(expires_ms=rig.clock.wall_ms() + 1000)
    bodies.keep(note)
    assert list(await bodies.fetch([note.id])) == [note.id]
    rig.clock.now_s += 2
    assert await bodies.fetch([note.id]) == {}


@on_loop
async def test_what_was_used_longest_ago_goes_first() -> None:
    rig = Rig()
    bodies = bodies_of(rig, bytes_max=3500)
    notes = [rig.note(bytes(1000)) for _ in range(3)]
    for note in notes:
        bodies.keep(note)
    await bodies.fetch([notes[0].id])
    bodies.keep(rig.note(bytes(1000)))
    found = await bodies.fetch([note.id for note in notes])
    assert set(found) == {notes[0].id, notes[2].id}


@on_loop
async def test_one_that_is_kept_twice_counts_once_and_one_that_is_dropped_not_at_all() -> None:
    rig = Rig()
    bodies = bodies_of(rig)
    note = rig.note()
    first = bodies.keep(note)
    bodies.keep(note)
    assert bodies.size == first.size
    bodies.drop(note.id)
    bodies.drop(note.id)
    assert (bodies.size, len(bodies)) == (0, 0)


@on_loop
async def test_a_body_that_is_taken_back_while_it_is_read_is_neither_handed_out_nor_kept() -> None:
    rig = Rig()
    bodies = bodies_of(rig)
    kept, read = rig.note(), rig.note()
    bodies.keep(kept)
    await rig.states.message.put(read)
    state: Any = rig.states.message
    stored = state._state.bodies

    async def take_back_meanwhile(ids: list[str]) -> dict[str, Note]:
        found: dict[str, Note] = await stored(ids)
        bodies.withdraw(kept.id)
        bodies.withdraw(read.id)
        return found

    state._state.bodies = take_back_meanwhile
    assert await bodies.fetch([kept.id, read.id]) == {}
    assert (bodies.size, len(bodies)) == (0, 0)


def test_of_what_was_taken_back_the_latest_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chappe.push.comet.bodies.WITHDRAWN_MAX", 2)
    bodies = bodies_of(Rig())
    for note_id in ("p1", "p2", "p1", "p3"):
        bodies.withdraw(note_id)
    assert [bodies.withdrawn(note_id) for note_id in ("p1", "p2", "p3")] == [True, False, True]


def test_many_are_asked_for_in_turns() -> None:
    ids = [str(at) for at in range(2 * FETCH_MAX + 1)]
    turns = list(in_turns(ids))
    assert [len(turn) for turn in turns] == [FETCH_MAX, FETCH_MAX, 1]
    assert [each for turn in turns for each in turn] == ids
