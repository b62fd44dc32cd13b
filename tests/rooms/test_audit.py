from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from chappe.rooms.audit import Audit
from chappe.rooms.book import Book
from chappe.rooms.options import RoomsOptions
from chappe.rooms.row import ROWS, row_key, write_row
from chappe.rooms.rows import audit_rows
from chappe.simulation import Simulation
from chappe.store.memory import MemoryStore
from chappe.wire.rooms import Card, Entry

OPTIONS = RoomsOptions(refresh_s=4.0)
G1 = Card("g1", 10, "g1", 7404)
# Longer than anything is waited for.
LATE = 10 * OPTIONS.expire_s


def entry(room: str, seq: int = 1, members: int = 1) -> Entry:
    return Entry("chat", room, int(room), seq, members)


def row(card: Card, one: Entry) -> tuple[str, bytes]:
    return row_key(one.number, one.app, one.room, card.name), write_row(card, one)


class Rig:
    """A router's book and its audit; it owns the rooms that are even."""

    def __init__(self) -> None:
        self.book = Book(OPTIONS)
        self.book.owns = lambda number: number % 2 == 0
        self.audit = Audit(self.book, OPTIONS)
        self.audit.see((1, 2), 0.0)

    def tell(self, card: Card, *entries: Entry, at: float) -> None:
        """A gateway tells of rooms, and what was news by that is written."""
        known = self.book.hear(card, at)
        assert known is not None
        self.book.take(known, entries, at, write=True)
        self.book.changes()

    def look(self, *rows: tuple[str, bytes], at: float) -> tuple[list[str], list[str]]:
        """Which rows go, and which are written again."""
        self.audit.begin()
        over = [key for key, _ in self.audit.over(rows, at)]
        for _ in self.audit.missing(at):
            pass
        puts, _ = self.book.changes()
        return over, list(puts)


# R10
def test_a_row_that_another_router_removed_by_mistake_is_written_again():
    rig = Rig()
    rig.tell(G1, entry("2"), entry("3"), at=LATE)
    kept, lost = row(G1, entry("2")), row(G1, entry("3"))
    assert rig.look(kept, at=LATE + 1) == ([], [lost[0]])
    assert rig.look(kept, lost, at=LATE + 2) == ([], [])


def test_a_row_that_is_not_told_of_any_more_is_not_written_again():
    rig = Rig()
    rig.tell(G1, entry("3"), at=LATE)
    assert rig.look(at=LATE + 2 * OPTIONS.refresh_s) == ([], [])


def test_a_row_of_a_life_that_is_over_goes_whoever_finds_it():
    rig = Rig()
    rig.tell(msgspec.structs.replace(G1, epoch=11), entry("2"), at=LATE)
    old = [row(G1, entry(room)) for room in ("2", "3", "4")]
    over, _ = rig.look(*old, at=LATE + 1)
    assert over == [key for key, _ in old]


def test_an_audit_half_way_writes_nothing_of_a_life_that_is_over_meanwhile():
    rig = Rig()
    rooms = [str(number) for number in range(200)]
    rig.tell(G1, *map(entry, rooms), at=LATE)
    rig.audit.begin()
    missing = rig.audit.missing(LATE + 1)
    for _ in range(100):
        next(missing)
    puts, _ = rig.book.changes()
    assert set(puts.values()) <= {value for _, value in (row(G1, entry(room)) for room in rooms)}
    assert len(puts) >= 99
    rig.tell(msgspec.structs.replace(G1, epoch=11), *map(entry, rooms), at=LATE + 1)
    assert list(missing) == []
    assert rig.book.changes() == ({}, [])


def test_a_row_of_a_life_that_is_not_known_here_yet_stays():
    rig = Rig()
    rig.tell(G1, entry("2"), at=LATE)
    newer = row(msgspec.structs.replace(G1, epoch=11), entry("4"))
    assert rig.look(newer, row(G1, entry("2")), at=LATE + 1) == ([], [])


def test_a_room_that_a_gateway_is_in_no_more_goes_by_the_router_that_would_be_told():
    rig = Rig()
    rig.tell(G1, entry("6"), at=LATE)
    left = [row(G1, entry(room)) for room in ("2", "3")]
    over, _ = rig.look(*left, row(G1, entry("6")), at=LATE + 1)
    assert over == [left[0][0]]


def test_a_room_that_was_left_here_goes():
    rig = Rig()
    rig.tell(G1, entry("3"), at=LATE)
    rig.tell(G1, entry("3", seq=2, members=0), at=LATE + 1)
    late = row(G1, entry("3"))
    assert rig.look(late, at=LATE + 2) == ([late[0]], [])


def test_rows_of_a_gateway_that_nobody_hears_go():
    rig = Rig()
    rows = [row(G1, entry(room)) for room in ("2", "3")]
    assert rig.look(*rows, at=LATE) == ([rows[0][0]], [])


def test_nothing_goes_while_routers_have_just_changed():
    rig = Rig()
    rig.audit.see((1, 2, 3), LATE)
    rig.tell(G1, entry("6"), at=LATE)
    rows = [row(G1, entry("2")), row(msgspec.structs.replace(G1, name="g2"), entry("4"))]
    assert rig.look(*rows, row(G1, entry("6")), at=LATE + 1) == ([], [])


def test_an_audit_removes_only_what_is_still_what_it_looked_at():
    """And goes on with the rest."""
    rig = Rig()
    old, new = row(G1, entry("2")), row(msgspec.structs.replace(G1, epoch=11), entry("2"))
    other = row(G1, entry("4"))

    class Racing(MemoryStore):
        async def swap(self, table: str, key: str, expected: Any, value: Any) -> bool:
            if key == old[0]:
                await self.change(ROWS, dict([new]))
            return await super().swap(table, key, expected, value)

    async def story(simulation: Simulation) -> None:
        store = Racing()
        await store.change(ROWS, dict([old, other]))
        rig.tell(msgspec.structs.replace(G1, epoch=11), at=0.0)
        auditing = asyncio.create_task(audit_rows(store, rig.audit, simulation.clock, 5.0))
        await asyncio.sleep(6)
        auditing.cancel()
        assert await store.get(ROWS, [old[0], other[0]]) == dict([new])

    play(story)


def play(story: Callable[[Simulation], Coroutine[Any, Any, None]]) -> None:
    simulation = Simulation(1)
    simulation.run(story(simulation))
