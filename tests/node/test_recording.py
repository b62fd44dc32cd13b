"""Recording: messages never wait for their events, and no events are lost for that."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import uvloop

from chappe.clock import SystemClock
from chappe.events.record import AT, MESSAGE, TARGET, encode_chunk
from chappe.events.schema import VERSION
from chappe.events.slate import BYTES, Slate
from chappe.node.copying import Copying
from chappe.node.options import EventsOptions, ParquetOptions
from chappe.node.recording import Recording
from chappe.node.sealing import seal
from chappe.node.slates import left_slates
from tests.events.tables import WAIT_S, check_serials, of, rows
from tests.events.test_parquet import LATE, Segment

SEGMENT_BYTES = 65_536


def leave_slate(log: Path, boot: int, message: int) -> None:
    """A life was killed, and had told of a message."""
    memory = bytearray(BYTES)
    run = ("stored", 1, {AT: LATE, MESSAGE: message, TARGET: "queue:jobs"}, {})
    assert Slate(memory).put(encode_chunk((VERSION, "a", boot, 1, [run])))
    (log / f"slate-{boot}").write_bytes(memory)


async def until_none_is_left(log: Path) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(left_slates(log)) > 1:
            await asyncio.sleep(0.02)


def recording_in(data: Path) -> Recording:
    options = EventsOptions(
        enabled=True, segment_bytes=SEGMENT_BYTES, disk_bytes_max=2 * SEGMENT_BYTES, seal_s=3600
    )
    return Recording(options, dev=True, data=data, name="a", clock=SystemClock())


def fill(log: Path) -> None:
    """Leave as much in a log as it may hold, of a life that was killed."""
    full = Segment(log)
    while full.path.stat().st_size <= 2 * SEGMENT_BYTES:
        full.add(*[("node_alive", 1, {AT: LATE}, {})] * 1000)
    # Only a segment that is over can be copied, and go.
    last = Segment(log, full.order.end)
    last.add_raw(encode_chunk((VERSION, "a", 8, 1, [("node_alive", 1, {AT: LATE}, {})])))


async def record(data: Path, log: Path) -> None:
    recording = recording_in(data)
    copying = Copying(ParquetOptions(), data)
    try:
        await recording.open(copying, dict, dict)
        assert len(left_slates(log)) == 2, "that of the life before, and its own"
        recording.begin()
        await until_none_is_left(log)
        await recording.stop()
    finally:
        await copying.stop()
    assert left_slates(log) == []


def test_a_node_starts_when_its_log_is_full_and_brings_a_slate_there_when_it_has_room(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "events/_log/a"
    fill(log)
    leave_slate(log, 9, 70)
    uvloop.run(asyncio.wait_for(record(tmp_path, log), 4 * WAIT_S))
    assert "events.slates_left" in "".join(capfd.readouterr())
    table = rows(tmp_path / "events")
    check_serials(table)
    assert [(row["boot"], row["message"]) for row in of(table, "stored")] == [(9, 70)]
    assert table[-1]["kind"] == "node_stopped"


def test_a_node_that_ends_in_order_leaves_its_slate_when_the_log_had_no_room_for_its_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing will ever be copied.
    monkeypatch.setattr("chappe.node.recording._FINISH_S", 0.1)
    command = (sys.executable, "-c", "")
    log = tmp_path / "events/_log/a"
    fill(log)

    async def end_without_room() -> None:
        recording, copying = recording_in(tmp_path), Copying(ParquetOptions(), tmp_path, command)
        try:
            await recording.open(copying, dict, dict)
            recording.begin()
            recording.recorder.recovered("shop", "queue:jobs", 3)
            await recording.stop()
        finally:
            await copying.stop()

    uvloop.run(asyncio.wait_for(end_without_room(), WAIT_S))
    assert len(left_slates(log)) == 1
    seal(tmp_path / "events")
    table = rows(tmp_path / "events")
    check_serials(table)
    assert [row["target"] for row in of(table, "recovered")] == ["queue:jobs"]
    assert table[-1]["kind"] == "node_gone"
