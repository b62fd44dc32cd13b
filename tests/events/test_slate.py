"""The slate: what a node that is killed had told and not written is known, once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chappe.blocking
from chappe.errors import Overload
from chappe.events.eventlog import EventLog
from chappe.events.lives import Lives
from chappe.events.record import AT, MESSAGE, decode_chunks, rows_of
from chappe.events.slate import LAST_BYTES, Slate
from chappe.node.sealing import seal
from chappe.node.slates import left_slates, open_slate, remove_slate
from tests.events.tables import check_serials, of
from tests.events.tables import rows as table_of
from tests.events.test_eventlog import KeptLog, StepTimer
from tests.faults.process import NodeProcess


class Life:
    """A node's life: what its log has, what is on its slate."""

    def __init__(self, room: int = 1 << 16) -> None:
        self.log, self.timer = KeptLog(), StepTimer()
        self.records: list[bytes] = []
        append = self.log.append

        def keep(record: bytes, done: Any, *, idle: bool) -> None:
            append(record, done, idle=idle)
            self.records.append(record)

        self.log.append = keep  # type: ignore[method-assign]
        self.memory = bytearray(room)
        self.events = EventLog("a", self.log, self.timer, lambda: 1_000_000)
        self.events.slate = Slate(self.memory)
        self.events.start()
        self.kept = 0

    def keep(self, count: int = 1) -> None:
        for _ in range(count):
            self.kept += 1
            self.events.keep(("lent", 1, {AT: 5, MESSAGE: self.kept}, {}))

    def after_a_kill(self, written: int | None = None) -> list[dict[str, Any]]:
        """All that is known when no more records than so many reached the log."""
        lives = Lives()
        records = self.records[:written]
        for record in records:
            lives.take(b"\x91" + record)
        left = lives.left(bytes(self.memory))
        records += left.records if left is not None else []
        chunks = [chunk for record in records for chunk in decode_chunks(b"\x91" + record)]
        return [row for chunk in chunks for row in rows_of(chunk)]


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["message"] for row in rows if "message" in row]


def test_what_the_log_never_got_is_on_the_slate() -> None:
    life = Life()
    life.keep(3)
    assert ids(life.after_a_kill()) == [1, 2, 3]


def test_what_the_log_has_is_not_told_again() -> None:
    life = Life()
    life.keep(3)
    life.timer.ring()
    life.keep(2)
    rows = life.after_a_kill()
    assert ids(rows) == [1, 2, 3, 4, 5]
    serials = [row["serial"] for row in rows]
    assert serials == list(range(1, len(rows) + 1))


def test_what_was_on_its_way_to_the_log_stays_until_it_is_there() -> None:
    life = Life()
    life.keep(2)
    life.timer.ring()
    life.keep(2)
    life.timer.ring()
    life.keep(1)
    assert ids(life.after_a_kill(written=0)) == [1, 2, 3, 4, 5]
    assert ids(life.after_a_kill(written=1)) == [1, 2, 3, 4, 5]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12), st.data())
def test_nothing_is_lost_or_doubled_wherever_the_kill_is(
    turns: list[tuple[int, bool]], data: st.DataObject
) -> None:
    life = Life()
    arrived = 0
    for kept, settled in turns:
        life.keep(kept)
        life.timer.ring()
        if settled:
            arrived = len(life.records)
            life.log.settle()
    life.keep(2)
    written = data.draw(st.integers(arrived, len(life.records)))
    rows = life.after_a_kill(written)
    assert ids(rows) == list(range(1, life.kept + 1))
    assert all(after["serial"] == one["serial"] + 1 for one, after in pairwise(rows))


# Some records, and the one that says how many found no room.
SMALL = 2 * (LAST_BYTES + 200)


def test_a_slate_that_is_full_has_what_was_before_written_down() -> None:
    life = Life(room=SMALL)
    for _ in range(40):
        life.keep()
        life.log.settle()
    assert len(life.records) > 2
    assert ids(life.after_a_kill()) == list(range(1, 41))
    assert life.events.uncovered == 0


@pytest.mark.parametrize("rings", [0, 1, 3])
def test_what_finds_no_room_on_a_full_slate_is_told_as_missed_if_a_kill_takes_it(
    rings: int,
) -> None:
    life = Life(room=SMALL)
    # The log takes records, and does not say that they have arrived.
    life.keep(40)
    for _ in range(rings):
        life.timer.ring()
        life.keep(5)
    assert life.events.uncovered > 0
    rows = life.after_a_kill(written=0)
    (missed,) = [row for row in rows if row["kind"] == "missed"]
    assert missed["n"] == life.events.uncovered == life.kept - len(ids(rows))
    assert "slate" in missed["reason"]
    assert [row["serial"] for row in rows] == list(range(1, len(rows) + 1))


def test_nothing_is_missed_that_the_log_has_by_then() -> None:
    life = Life(room=SMALL)
    life.keep(40)
    uncovered = life.events.uncovered
    life.timer.ring()
    life.log.settle()
    rows = life.after_a_kill()
    assert ids(rows) == list(range(1, 41))
    assert not [row for row in rows if row["kind"] == "missed"]
    # There is room again.
    life.keep(2)
    assert ids(life.after_a_kill()) == list(range(1, 43))
    assert life.events.uncovered == uncovered


def test_a_log_that_is_full_keeps_the_slate() -> None:
    life = Life()
    append = life.log.append

    def refuse(record: bytes, done: Any, *, idle: bool) -> None:
        raise Overload("disk full")

    life.log.append = refuse  # type: ignore[method-assign]
    life.keep(2)
    life.timer.ring()
    life.log.append = append  # type: ignore[method-assign]
    life.keep(1)
    assert ids(life.after_a_kill()) == [1, 2, 3]


@pytest.mark.parametrize("at", [0, 4, 8, 20])
def test_half_a_record_is_none(at: int) -> None:
    life = Life()
    life.keep(1)
    assert ids(life.after_a_kill()) == [1]
    # The first half has what is on its way since the start.
    life.memory[len(life.memory) // 2 + at] ^= 0xFF
    assert ids(life.after_a_kill(written=0)) == []


def test_a_slate_is_a_file_that_a_life_in_order_takes_away(tmp_path: Path) -> None:
    slate = open_slate(tmp_path, 7)
    assert slate.put(b"no chunk") is True
    assert [path.name for path in left_slates(tmp_path)] == ["slate-7"]
    remove_slate(tmp_path, 7)
    assert left_slates(tmp_path) == []


ALL = "[events]\nenabled = true\nshare = 1.0\nseal_s = 3600\n"


def test_of_a_node_that_is_killed_all_that_anybody_was_told_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CHAPPE_EVENTS_ENABLED")
    node = NodeProcess(tmp_path, ALL)
    events = node.data / "events"
    log = events / "_log" / "node"
    told: list[list[int]] = []
    try:
        for _ in range(2):
            with chappe.blocking.connect(node.addresses["websocket"], as_="user:a") as client:
                client.create("queue:jobs")
                sent = [int(client.send("queue:jobs", n)) for n in range(50)]
                # At once: less than an interval after the last of them.
                node.kill()
            told.append(sent)
            assert len(left_slates(log)) == 1
            node.start()
        node.stop()
        assert left_slates(log) == []
        node.start()
        with chappe.blocking.connect(node.addresses["websocket"], as_="user:a") as client:
            told.append([int(client.send("queue:jobs", n)) for n in range(50)])
            node.kill()
    finally:
        node.kill()
    seal(events)
    assert left_slates(log) == []
    table = table_of(events)
    check_serials(table)
    assert [row["message"] for row in of(table, "stored")] == [one for each in told for one in each]
