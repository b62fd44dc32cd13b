"""Slates on the disk: what they have comes to the log once, however many lives are killed on the
way, and however little room the log has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import Overload, RequestError
from chappe.events.eventlog import EventLog
from chappe.events.lives import Lives
from chappe.events.record import AT, MESSAGE, Chunk, decode_chunks, rows_of
from chappe.events.slate import Slate
from chappe.events.tail import Tail
from chappe.node.slates import SLATES_MAX, Homecoming, left_slates, leftovers, open_slate, remove
from tests.events.test_eventlog import StepTimer

Done = Callable[[RequestError | None], None]
SLATE_BYTES = 1 << 14
MUCH = 1_000


class Disk:
    """Where lives leave a log, segment by segment and batch by batch, and their slates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.segments: list[list[list[bytes]]] = []

    def chunks(self) -> Iterator[Chunk]:
        for segment in self.segments:
            for batch in segment:
                yield from (decode_chunks(b"\x91" + record)[0] for record in batch)


class Life:
    """A node's life on such a disk: it reads the last segment, and begins another."""

    def __init__(self, disk: Disk, boot: int, *, room: int = MUCH) -> None:
        self.disk, self.timer = disk, StepTimer()
        # So many records are accepted at once.
        self.room = room
        # Batches that were accepted and are not written, and who is told when they are.
        self.waiting: list[tuple[bool, list[bytes], Done]] = []
        self.rolls = True
        lives, tail = Lives(), Tail()
        for batch in disk.segments[-1] if disk.segments else []:
            for record in batch:
                lives.take(b"\x91" + record)
                tail.take(b"\x91" + record)
        left = leftovers(left_slates(disk.folder), lives)
        remove(set(left_slates(disk.folder)).difference(one.slate for one in left))
        self.homecoming = Homecoming(lives, left, self.append_all)
        self.events = EventLog("a", self, self.timer, lambda: boot)
        self.events.resume(tail, dict, dict, self.homecoming.unfinished, lives.newest)
        self.memory = bytearray(SLATE_BYTES)
        self.events.slate = Slate(self.memory)
        self.homecoming.go_on()

    def append(self, record: bytes, done: Done, *, idle: bool) -> None:
        self.append_all([record], done)
        self.homecoming.go_on()

    def append_all(self, records: Sequence[bytes], done: Done) -> None:
        if len(records) > self.room:
            raise Overload("disk full")
        opening = self.events.opening() if self.rolls else []
        self.waiting.append((self.rolls, [*opening, *records], done))
        self.rolls = False

    def write(self, batches: int, *, told: bool) -> None:
        """Let so many batches come to the disk; who waits for it is told, or had no time."""
        for begins, records, done in [self.waiting.pop(0) for _ in range(batches)]:
            if begins:
                self.disk.segments.append([])
            self.disk.segments[-1].append(records)
            if told:
                done(None)

    def settle(self) -> None:
        while self.waiting:
            self.write(1, told=True)

    def kill(self, written: int) -> None:
        """Be gone, when so many of the batches that wait are written."""
        self.write(written, told=False)
        (self.disk.folder / f"slate-{self.events.boot}").write_bytes(self.memory)


def check_once(disk: Disk, kept: int) -> None:
    rows = [row for chunk in disk.chunks() for row in rows_of(chunk)]
    told = [row["message"] for row in rows if "message" in row]
    assert len(told) == len(set(told))
    assert kept - len(told) <= sum(row["n"] for row in rows if row["kind"] == "missed")
    for boot in {row["boot"] for row in rows}:
        serials = sorted(row["serial"] for row in rows if row["boot"] == boot)
        assert serials == list(range(1, len(serials) + 1))


# What happens before a kill: so many are told that must be exact, and so many others; so much room
# the log has; whether it is written, a segment is over, and the node takes traffic.
Turn = tuple[int, int, int, bool, bool, bool]
ROOMS = st.sampled_from((0, 1, MUCH))
FEW = st.integers(0, 3)
TURN = st.tuples(FEW, FEW, ROOMS, st.booleans(), st.booleans(), st.booleans())
TURNS = st.lists(TURN, max_size=5)


@given(st.lists(TURNS, min_size=2, max_size=5), st.data())
def test_nothing_is_lost_or_doubled_wherever_any_number_of_kills_are(
    many: list[list[Turn]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        disk, kept = Disk(Path(folder)), 0
        for number, turns in enumerate(many):
            life = Life(disk, 1_000 * (number + 1), room=data.draw(ROOMS))
            for exact, others, room, written, over, started in turns:
                life.room = room
                for _ in range(exact):
                    life.events.keep(("lent", 1, {AT: 5, MESSAGE: kept}, {}))
                    kept += 1
                for _ in range(others):
                    life.events.add(("user_came", 1, {AT: 5}, {}))
                if life.timer.callback is not None:
                    life.timer.ring()
                elif started:
                    life.events.start()
                life.rolls = life.rolls or over
                if written:
                    life.settle()
            life.kill(data.draw(st.integers(0, len(life.waiting))))
        last = Life(disk, 1_000_000)
        last.settle()
        assert left_slates(disk.folder) == []
        check_once(disk, kept)


def killed(folder: Path, boot: int, messages: range) -> None:
    """Leave the slate of a life that came to write nothing."""
    memory = bytearray(SLATE_BYTES)
    events = EventLog("a", Nowhere(), StepTimer(), lambda: boot)
    events.slate = Slate(memory)
    for message in messages:
        events.keep(("lent", 1, {AT: 5, MESSAGE: message}, {}))
    (folder / f"slate-{boot}").write_bytes(memory)


class Nowhere:
    """A log that takes nothing."""

    def append(self, record: bytes, done: Done, *, idle: bool) -> None:
        raise Overload("disk full")


def test_slates_come_home_one_by_one_as_a_batch_has_room_for_one(tmp_path: Path) -> None:
    for boot in (1, 2, 3):
        killed(tmp_path, boot, range(boot * 2, boot * 2 + 2))
    life = Life(Disk(tmp_path), 10)
    for left in (2, 1, 0):
        assert len(life.waiting) == 1
        life.write(1, told=True)
        assert len(left_slates(tmp_path)) == left
    assert [row["message"] for chunk in life.disk.chunks() for row in rows_of(chunk)] == [
        *range(2, 8)
    ]


def test_a_log_without_room_keeps_slates_until_it_has_some(tmp_path: Path) -> None:
    killed(tmp_path, 1, range(2))
    life = Life(Disk(tmp_path), 10, room=0)
    life.events.start()
    assert len(left_slates(tmp_path)) == 1
    life.room = MUCH
    life.events.add(("user_came", 1, {AT: 5}, {}))
    life.timer.ring()
    life.settle()
    assert left_slates(tmp_path) == []
    check_once(life.disk, 2)


def test_a_slate_stays_when_nobody_knows_whether_the_log_has_it(tmp_path: Path) -> None:
    killed(tmp_path, 1, range(2))
    life = Life(Disk(tmp_path), 10)
    ((_begins, _records, done),) = life.waiting
    done(Overload("the disk failed", outcome_unknown=True))
    life.homecoming.go_on()
    assert len(life.waiting) == 1, "it might be there twice"
    assert len(left_slates(tmp_path)) == 1


def test_there_are_no_more_slates_than_so_many(tmp_path: Path) -> None:
    for boot in range(SLATES_MAX):
        (tmp_path / f"slate-{boot}").touch()
    with pytest.raises(OSError, match="wait for room"):
        open_slate(tmp_path, 1_000)
    remove([tmp_path / "slate-0"])
    open_slate(tmp_path, 1_000)


def kept_behind_others(disk: Disk) -> None:
    """A life is killed before anything is written, that told of much between what is exact."""
    life = Life(disk, 1)
    life.events.start()
    life.events.keep(("lent", 1, {AT: 5, MESSAGE: 0}, {}))
    life.events.add(("user_came", 100, {AT: 5}, {}))
    life.timer.ring()
    life.events.keep(("lent", 1, {AT: 5, MESSAGE: 1}, {}))
    life.kill(0)


def test_what_came_home_does_not_come_again_when_the_slate_had_no_time_to_go(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    kept_behind_others(disk)
    for boot in (2, 3, 4):
        Life(disk, boot).kill(1 if boot == 2 else 0)
    Life(disk, 5).settle()
    check_once(disk, 2)


def test_what_is_to_come_home_is_numbered_as_if_it_had_come_before(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    first = Life(disk, 1)
    first.events.start()
    first.settle()
    for message in range(2):
        first.events.keep(("lent", 1, {AT: 5, MESSAGE: message}, {}))
    first.kill(0)
    # Of these the log has no more than their own segments, and no room for what was before.
    for boot in (2, 3):
        life = Life(disk, boot, room=1)
        life.events.start()
        life.kill(1)
    Life(disk, 4).settle()
    check_once(disk, 2)
