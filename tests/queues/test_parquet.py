"""Segments as Parquet: every field, in the hour it was written, once, whatever is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from chappe.log.parquet.order import Copied, decode_copied, encode_line
from chappe.queues.parquet.rows import Event, Message, Place
from chappe.queues.parquet.schema import MESSAGES, RECORDS
from chappe.queues.parquet.tables import queue_copier
from chappe.queues.record import (
    Death,
    Done,
    Moved,
    Registered,
    Removed,
    Snapshot,
    Stored,
    Tried,
    Unregistered,
    encode_record,
)
from tests.queues.parquet_segment import MADE, TS_MS, SegmentFile, files, rows

COMMAND = [sys.executable, "-P", "-m", "chappe.node.copier"]
FULL = Stored(
    1,
    lane=2,
    seq=7,
    id=1 << 62,
    ts_ms=TS_MS - 5,
    sender="user:ann",
    payload=b"\x00\xff",
    binary=True,
    type=0,
    num=-(1 << 63),
    key="k\u00e9y",
    headers={"b": "2", "a": "1"},
    tags=["red", "blue"],
    consumers=["c1"],
    producer="p",
    producer_seq=3,
)
BARE = Stored(1, lane=2, seq=8, id=2, ts_ms=TS_MS, sender="user:bob", payload=b'{"n":1}')


def at(ts_ms: int) -> datetime:
    return datetime.fromtimestamp(ts_ms / 1000, UTC)


def test_rows_and_tables_have_the_same_columns():
    assert tuple(MESSAGES.names) == Place._fields + Message._fields
    assert tuple(RECORDS.names) == Place._fields + Event._fields


def test_a_message_comes_back_with_every_field(tmp_path: Path):
    segment = SegmentFile(tmp_path)
    segment.add(MADE)
    lsn = segment.add(FULL, BARE)
    assert queue_copier(tmp_path).copy(segment.order) == Copied(messages=2, records=1)
    full, bare = rows(tmp_path)
    assert full == {
        "broker": "node",
        "lsn": lsn,
        "written_at": at(TS_MS),
        "app": "shop",
        "queue": "queue:jobs",
        "lane": 2,
        "seq": 7,
        "message": 1 << 62,
        "ts": at(TS_MS - 5),
        "sender": "user:ann",
        "type": 0,
        "num": -(1 << 63),
        "key": "k\u00e9y",
        "headers": [("b", "2"), ("a", "1")],
        "tags": ["red", "blue"],
        "consumers": ["c1"],
        "producer": "p",
        "producer_seq": 3,
        "payload": b"\x00\xff",
        "binary": True,
        "date": "2026-05-01",
        "hour": 13,
    }
    absent = {name for name, value in bare.items() if value is None}
    assert absent == {"num", "key", "headers", "tags", "consumers", "producer", "producer_seq"}
    assert (bare["payload"], bare["binary"], bare["type"]) == (b'{"n":1}', False, 1)


def test_what_became_of_messages_is_a_table_of_its_own(tmp_path: Path):
    death = Death("16 attempts", "g", 16, TS_MS, 2, 7)
    segment = SegmentFile(tmp_path)
    segment.add(MADE)
    segment.add(Registered(1, "g", "c1"))
    segment.add(msgspec.structs.replace(BARE, lane=-1, seq=4, due_ms=TS_MS + 1))
    segment.add(Tried(1, 2, "g", 7), Tried(1, 2, "g", 7, 3))
    segment.add(Done(1, 2, "g", [1, 5, 7, 7]))
    segment.add(msgspec.structs.replace(FULL, lane=0, seq=1, death=death))
    segment.add(Unregistered(1, "g", "c1"), Unregistered(1, "g"), Removed(1))
    queue_copier(tmp_path).copy(segment.order)
    # Neither delayed messages nor dead letters are messages of a lane.
    assert rows(tmp_path) == []
    names = ["event", "lane", "first_seq", "last_seq", "group_name"]
    names += ["consumer", "attempts", "message", "due", "place"]
    found = rows(tmp_path, "queue_records")
    assert {(row["app"], row["queue"]) for row in found} == {("shop", "queue:jobs")}
    assert [tuple(row[name] for name in names) for row in found] == [
        ("made", None, None, None, None, None, None, None, None, None),
        ("registered", None, None, None, "g", "c1", None, None, None, None),
        ("delayed", -1, 4, 4, None, None, None, 2, at(TS_MS + 1), 4),
        ("tried", 2, None, 7, "g", None, 1, None, None, None),
        ("tried", 2, 7, 7, "g", None, 3, None, None, None),
        ("done", 2, 1, 5, "g", None, None, None, None, None),
        ("done", 2, 7, 7, "g", None, None, None, None, None),
        ("dead", 2, 7, 7, "g", None, 16, 1 << 62, None, 1),
        ("unregistered", None, None, None, "g", "c1", None, None, None, None),
        ("unregistered", None, None, None, "g", None, None, None, None, None),
        ("removed", None, None, None, None, None, None, None, None, None),
    ]
    assert [row["reason"] for row in found if row["event"] == "dead"] == ["16 attempts"]


def test_a_later_segment_knows_its_queues_from_the_snapshot(tmp_path: Path):
    segment = SegmentFile(tmp_path, base=4096)
    raw = msgspec.Raw(msgspec.msgpack.encode([]))
    segment.add(Snapshot(1, "shop", "queue:jobs", MADE.options, raw), BARE)
    # What only moved is in the copy of an older segment.
    segment.add(Moved(1, 2, 7, encode_record(FULL)))
    assert queue_copier(tmp_path).copy(segment.order).messages == 1
    assert [(row["app"], row["queue"], row["seq"]) for row in rows(tmp_path)] == [
        ("shop", "queue:jobs", 8)
    ]


def test_each_hour_has_its_file_and_a_clock_that_steps_back_loses_nothing(tmp_path: Path):
    segment = SegmentFile(tmp_path)
    for seq, ts_ms in enumerate((TS_MS, TS_MS + 1_000, TS_MS, TS_MS + 36_000_000), 1):
        segment.add(msgspec.structs.replace(BARE, seq=seq), ts_ms=ts_ms)
    queue_copier(tmp_path).copy(segment.order)
    assert [name.partition("-0000")[0] for name in files(tmp_path)] == [
        "queues/date=2026-05-01/hour=13/node",
        "queues/date=2026-05-01/hour=13/node",
        "queues/date=2026-05-01/hour=14/node",
        "queues/date=2026-05-01/hour=23/node",
    ]
    assert [row["seq"] for row in rows(tmp_path)] == [1, 2, 3, 4]
    # The beginning of the segment is not there: the names are unknown, the messages are not.
    assert {row["queue"] for row in rows(tmp_path)} == {None}


def test_a_segment_is_copied_once(tmp_path: Path):
    segment = SegmentFile(tmp_path)
    segment.add(MADE, FULL)
    copier = queue_copier(tmp_path)
    assert not copier.copy(segment.order).before
    before = files(tmp_path)
    assert copier.copy(segment.order) == Copied(messages=1, records=1, before=True)
    # What its owner took away stays away.
    (tmp_path / before[0]).unlink()
    assert copier.copy(segment.order).before
    assert files(tmp_path) == []


def test_a_segment_that_was_cut_and_written_anew_replaces_its_files(tmp_path: Path):
    segment = SegmentFile(tmp_path)
    segment.add(MADE)
    segment.add(FULL, ts_ms=TS_MS + 3_600_000)
    copier = queue_copier(tmp_path)
    copier.copy(segment.order)
    first = segment.path.read_bytes()
    segment.path.write_bytes(first[: first.rindex(b"ChJ\xb5")])
    segment.add(BARE, BARE)
    assert copier.copy(segment.order).messages == 2
    assert [row["seq"] for row in rows(tmp_path)] == [8, 8]
    assert [name.partition("/node")[0] for name in files(tmp_path)] == [
        "queues/date=2026-05-01/hour=13"
    ]


def test_journals_of_one_name_and_place_keep_their_files_apart(tmp_path: Path):
    for number, ts_ms in enumerate((TS_MS, TS_MS + 1)):
        segment = SegmentFile(tmp_path / str(number))
        segment.add(MADE, BARE, ts_ms=ts_ms)
        queue_copier(tmp_path / "copies").copy(segment.order)
    assert len(files(tmp_path / "copies")) == len(rows(tmp_path / "copies")) == 2


def test_damage_is_passed_over_and_counted(tmp_path: Path):
    segment = SegmentFile(tmp_path)
    segment.add(MADE, BARE)
    flipped = segment.add(msgspec.structs.replace(BARE, seq=9))
    segment.add(msgspec.structs.replace(BARE, seq=10))
    # Whole, and yet no record of a queue.
    segment.add_raw([msgspec.msgpack.encode([99, 1])], 1)
    segment.add(msgspec.structs.replace(BARE, seq=11))
    data = bytearray(segment.path.read_bytes())
    data[flipped + 60] ^= 1
    segment.path.write_bytes(data)
    assert queue_copier(tmp_path).copy(segment.order).damaged == 2
    assert [row["seq"] for row in rows(tmp_path)] == [8, 10, 11]
    # It is told again by one who asks later.
    assert queue_copier(tmp_path).copy(segment.order) == Copied(3, 1, 2, before=True)


def test_a_row_group_is_written_before_it_grows_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("chappe.log.parquet.sheet.ROWS_MAX", 10)
    segment = SegmentFile(tmp_path)
    for seq in range(1, 26):
        segment.add(msgspec.structs.replace(BARE, seq=seq))
    queue_copier(tmp_path).copy(segment.order)
    assert [row["seq"] for row in rows(tmp_path)] == list(range(1, 26))
    assert len(files(tmp_path)) == 1


def test_a_failed_copy_leaves_nothing_behind(tmp_path: Path):
    segment = SegmentFile(tmp_path / "journal")
    segment.add(MADE, BARE)
    # Not a time that Arrow can tell.
    segment.add(msgspec.structs.replace(BARE, ts_ms=1 << 63))
    with pytest.raises(OverflowError):
        queue_copier(tmp_path / "copies").copy(segment.order)
    assert files(tmp_path / "copies") == files(tmp_path / "copies", "queue_records") == []


def ask(folder: Path, *orders: bytes) -> list[Copied]:
    done = subprocess.run(
        [*COMMAND, folder], input=b"".join(orders), capture_output=True, timeout=60, check=True
    )
    assert not done.stderr
    return [decode_copied(line) for line in done.stdout.splitlines()]


def test_the_process_answers_each_order_and_ends_with_its_input(tmp_path: Path):
    segment = SegmentFile(tmp_path)
    segment.add(MADE, BARE)
    order = encode_line(segment.order) + b"\n"
    gone = encode_line(msgspec.structs.replace(segment.order, path="/nowhere")) + b"\n"
    first, second, third = ask(tmp_path, order, gone, order)
    assert (first.messages, first.before, third.before) == (1, False, True)
    assert second.error is not None
    assert "FileNotFoundError" in second.error
    # Readable to its owner, and to a group at most.
    assert all((tmp_path / name).stat().st_mode & 0o007 == 0 for name in files(tmp_path))


def test_a_process_that_is_killed_leaves_no_half_file_under_a_final_name(tmp_path: Path):
    """Q11 for the copies: written aside, renamed when whole, and made again."""
    segment = SegmentFile(tmp_path / "journal")
    segment.add(MADE)
    # More than a row group: the first is written while there is much to do.
    count = 100_000
    record = encode_record(BARE)
    for _ in range(0, count, 10_000):
        segment.add_raw([record] * 10_000, 10_000)
    copies = tmp_path / "copies"
    order = encode_line(segment.order) + b"\n"
    with subprocess.Popen(
        [*COMMAND, copies], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(order)
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not files(copies):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        process.kill()
        assert process.wait() == -9
    (aside,) = files(copies)
    assert Path(aside).name.startswith(".")
    assert aside.endswith(".tmp")
    assert rows(copies) == []
    (copied,) = ask(copies, order)
    assert (copied.messages, copied.before) == (count, False)
    (whole,) = files(copies)
    assert whole.endswith(".parquet")
    assert pq.read_metadata(copies / whole).num_rows == count
    (note,) = (copies / "copied" / "node").glob("*.json")
    assert json.loads(note.read_text())["files"][0] == whole
