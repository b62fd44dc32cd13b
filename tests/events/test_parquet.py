"""The table of events: a segment of the log in, files by the hour out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chappe.errors import ConfigError
from chappe.events.parquet import SCHEMA
from chappe.events.record import APP, AT, FOLLOWING, MESSAGE, SHARE, WENT_TO, N, encode_chunk
from chappe.events.schema import NAMES, VERSION
from chappe.log.batch import encode_batch
from chappe.log.parquet.order import EVENTS, Copied, Order, decode_copied, encode_line
from chappe.node.eventtables import event_copier
from chappe.node.options import EventsOptions, NodeOptions
from chappe.node.recording import wanted
from chappe.node.sealing import Sealer, seal
from tests.events.tables import check_serials, rows

# 2026-05-01T13:59:59Z: a second later it is another hour.
LATE = 1_777_643_999_000_000
SECOND = 1_000_000


class Segment:
    """A segment of an event log, written by hand."""

    def __init__(self, folder: Path, base: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{base:016x}.log"
        self.path.write_bytes(b"")
        self._base = base
        self._serial = 1

    def add(self, *runs: Any) -> None:
        """Write a batch of one chunk."""
        self.add_raw(encode_chunk((VERSION, "a", 7, self._serial, runs)))
        self._serial += sum(run[1] for run in runs)

    def add_raw(self, record: bytes) -> None:
        lsn = self._base + self.path.stat().st_size
        first = lsn == self._base
        data = encode_batch([record], lsn=lsn, epoch=0, ts_ms=1, count=1, first=first)
        with self.path.open("ab") as file:
            file.write(data)

    @property
    def order(self) -> Order:
        end = self._base + self.path.stat().st_size
        return Order("a", str(self.path), self._base, end, EVENTS)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet"))


def test_rows_lie_in_the_hour_in_which_they_happened(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "_log")
    segment.add(
        ("node_alive", 1, {AT: LATE}, {}),
        ("node_alive", 1, {AT: LATE + SECOND}, {}),
        # A clock that was set back.
        ("node_alive", 1, {AT: LATE + 1}, {}),
    )
    assert event_copier(tmp_path).copy(segment.order) == Copied(records=3)
    first, second = files(tmp_path)
    assert first.startswith("date=2026-05-01/hour=13/a-0000000000000000-")
    assert second.startswith("date=2026-05-01/hour=14/a-0000000000000000-")
    table = rows(tmp_path)
    assert [(row["hour"], row["serial"]) for row in table] == [("13", 1), ("14", 2), ("13", 3)]


def test_runs_become_rows_with_what_is_shared_and_what_is_each_ones(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "_log")
    segment.add(
        ("sent", 3, {AT: LATE, APP: "shop", FOLLOWING: 40, WENT_TO: ["b", "c"]}, {N: [1, 2, 3]}),
        ("node_alive", 1, {AT: LATE}, {}),
        ("sent", 2, {AT: LATE, APP: "shop", SHARE: 0.5}, {MESSAGE: [9, 8]}),
    )
    event_copier(tmp_path).copy(segment.order)
    table = rows(tmp_path)
    check_serials(table)
    told = [(row["kind"], row.get("message"), row.get("n"), row["share"]) for row in table]
    assert told == [
        ("sent", 40, 1, 1.0),
        ("sent", 41, 2, 1.0),
        ("sent", 42, 3, 1.0),
        ("node_alive", None, None, 1.0),
        ("sent", 9, None, 0.5),
        ("sent", 8, None, 0.5),
    ]
    assert [row.get("went_to") for row in table] == [["b", "c"]] * 3 + [None] * 3
    assert all(row["v"] == VERSION and row["node"] == "a" and row["boot"] == 7 for row in table)


def test_more_than_a_row_group_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chappe.events.parquet.ROWS_MAX", 10)
    segment = Segment(tmp_path / "_log")
    for _ in range(20):
        segment.add(("sent", 7, {AT: LATE, FOLLOWING: 1}, {}))
    assert event_copier(tmp_path).copy(segment.order).records == 140
    assert len(files(tmp_path)) == 1
    check_serials(rows(tmp_path))


def test_damage_is_passed_over_and_counted(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "_log")
    segment.add(("node_alive", 1, {AT: LATE}, {}))
    segment.add_raw(b"\xc1")
    segment.add(("node_alive", 1, {AT: LATE + 1}, {}))
    assert event_copier(tmp_path).copy(segment.order) == Copied(records=2, damaged=1)
    assert [row["serial"] for row in rows(tmp_path)] == [1, 2]


def test_what_a_newer_release_tells_besides_is_left_out(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "_log")
    newer, stand_in = len(NAMES), FOLLOWING - 1
    segment.add(
        ("sent", 2, {AT: LATE, newer: "x", stand_in: 4}, {MESSAGE: [8, 9], newer + 1: [1, 2]}),
        ("dreamt", 1, {AT: LATE, APP: "shop"}, {}),
    )
    assert event_copier(tmp_path).copy(segment.order) == Copied(records=3)
    table = rows(tmp_path)
    check_serials(table)
    told = [(row["kind"], row.get("message"), row.get("app"), row["share"]) for row in table]
    assert told == [("sent", 8, None, 1.0), ("sent", 9, None, 1.0), ("dreamt", None, "shop", 1.0)]


@pytest.mark.parametrize("told", [{}, {AT: 2**62}, {AT: -1}, {AT: "late"}])
def test_what_has_no_time_is_passed_over_and_counted(tmp_path: Path, told: dict[int, Any]) -> None:
    segment = Segment(tmp_path / "_log")
    segment.add(("node_alive", 1, told, {}), ("node_alive", 1, {AT: LATE}, {}))
    assert event_copier(tmp_path).copy(segment.order) == Copied(records=1, damaged=1)
    assert [row["serial"] for row in rows(tmp_path)] == [2]


def test_notes_of_segments_that_are_gone_go(tmp_path: Path) -> None:
    copier, orders = event_copier(tmp_path), []
    for base in (0, 1000, 2000):
        segment = Segment(tmp_path / "_log", base)
        segment.add(("node_alive", 1, {AT: LATE + base}, {}))
        copier.copy(segment.order)
        orders.append(segment.order)
    Path(orders[0].path).unlink()
    copier.forget(orders[2])
    notes = sorted(path.name[:16] for path in (tmp_path / "_copied/a").glob("*.json"))
    assert notes == [f"{base:016x}" for base in (1000, 2000)]


def test_the_process_copies_events_where_it_is_told_to(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "_log")
    segment.add(("node_alive", 1, {AT: LATE}, {}))
    order = segment.order
    line = encode_line(order).replace(b'"folder":""', f'"folder":"{tmp_path}/there"'.encode())
    done = subprocess.run(
        [sys.executable, "-P", "-m", "chappe.node.copier", str(tmp_path / "elsewhere")],
        input=line + b"\n",
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert decode_copied(done.stdout) == Copied(records=1)
    assert len(rows(tmp_path / "there")) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_torn_end_is_cut_and_the_rest_is_sealed(tmp_path: Path) -> None:
    segment = Segment(tmp_path / "_log/a")
    segment.add(("node_alive", 1, {AT: LATE}, {}))
    segment.add(("node_alive", 1, {AT: LATE + 1}, {}))
    segment.path.write_bytes(segment.path.read_bytes()[:-3])
    assert seal(tmp_path).events == 2
    table = rows(tmp_path)
    assert [(row["kind"], row["at"]) for row in table] == [
        ("node_alive", LATE),
        ("node_gone", LATE),
    ]
    check_serials(table)


@pytest.mark.parametrize("value", ["many", 2**64 - 1])
def test_a_log_that_cannot_be_copied_is_named_and_the_others_are_sealed(
    tmp_path: Path, value: object
) -> None:
    for name, n in (("a", value), ("b", 5)):
        segment = Segment(tmp_path / "_log" / name)
        segment.add(("dropped", 1, {AT: LATE, N: n}, {}), ("node_stopped", 1, {AT: LATE}, {}))
    for sealed in (seal(tmp_path), seal(tmp_path)):
        assert (sealed.nodes, list(sealed.failed)) == (["b"], ["a"])
    assert [row.get("n") for row in rows(tmp_path)] == [5, None]
    sealer = Sealer(tmp_path)
    assert [list(sealer.look().failed) for _ in range(3)] == [[], ["a"], ["a"]]
    # What it holds stays, for a release that knows it.
    assert list((tmp_path / "_log/a").glob("*.log"))


def test_the_columns_of_the_table_are_those_of_the_schema() -> None:
    assert tuple(SCHEMA.names) == NAMES


def test_without_arrow_it_is_off_unless_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wanted(EventsOptions())
    assert wanted(EventsOptions(enabled=True))
    monkeypatch.setattr("chappe.node.recording.find_spec", lambda name: None)
    assert not wanted(EventsOptions())
    assert not wanted(EventsOptions(enabled=False))
    with pytest.raises(ConfigError, match=r"events\.enabled: .*chappe\[parquet\]"):
        wanted(EventsOptions(enabled=True))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"share": -0.1}, "events.share"),
        ({"share": 1.1}, "events.share"),
        ({"share": float("nan")}, "events.share"),
        ({"seal_s": 0}, "events.seal_s"),
        ({"share": 0.000001}, "events.share"),
        ({"segment_bytes": 10}, "events.segment_bytes"),
        ({"disk_bytes_max": 100_000}, "events.disk_bytes_max"),
        ({"retention_s": -1.0}, "events.retention_s"),
        ({"retention_s": float("nan")}, "events.retention_s"),
        ({"retention_bytes": -1}, "events.retention_bytes"),
    ],
)
def test_what_makes_no_sense_is_named(values: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        NodeOptions(dev=True, events=EventsOptions(**values))  # type: ignore[arg-type]
