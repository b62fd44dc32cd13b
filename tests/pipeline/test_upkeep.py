"""A stream keeps its tables small by itself, now and then."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.table import Table, read
from chappe.pipeline.upkeep import Upkeep
from tests.hub.rig import ManualClock
from tests.pipeline.traffic import DAY, hour


def make_anew(tables: Path, run: int) -> None:
    """What a stream's batch does to its hour."""
    table = Table(tables, "latency")
    rows = [{"hour": hour(DAY), "count": run}]
    table.put(pa.Table.from_pylist(rows, schema=arrow_schema(table.schema)), run, [hour(DAY)])
    added = [{"hour": hour(DAY), "problem": f"{run}"}]
    schema = arrow_schema(TABLES["quarantine"])
    Table(tables, "quarantine").put(pa.Table.from_pylist(added, schema=schema), run, None)


def on_disk(tables: Path, name: str) -> int:
    return len(list((tables / name).rglob("*.parquet")))


def test_what_was_replaced_goes_now_and_then_and_small_files_become_one(tmp_path: Path) -> None:
    clock = ManualClock()
    upkeep = Upkeep(tmp_path, every_s=60, readers_h=0, clock=clock)
    told = []
    for run in range(1, 10):
        make_anew(tmp_path, run)
        told.append(upkeep.maybe_keep())
        if run < 7:
            assert on_disk(tmp_path, "latency") == run
        clock.now_s += 10
    # A minute after the first batch, and not again before another has passed.
    assert [kept is not None for kept in told] == [False] * 6 + [True] + [False] * 2
    kept = told[6]
    assert kept is not None
    assert (kept.files_before, kept.files_after) == (1 + 7, 2)
    assert kept.bytes_freed > 0
    assert on_disk(tmp_path, "latency") == on_disk(tmp_path, "quarantine") == 1 + 2
    assert {place.name for place in (tmp_path / "latency").glob("run=*")} == {
        *("run=7", "run=8", "run=9")
    }
    assert read(tmp_path, "latency", ["count"]).to_pylist() == [{"count": 9}]
    assert read(tmp_path, "quarantine").num_rows == 9


def test_who_began_to_read_within_the_hour_reads_on(tmp_path: Path) -> None:
    clock = ManualClock()
    upkeep = Upkeep(tmp_path, every_s=0, clock=clock)
    for run in range(1, 4):
        make_anew(tmp_path, run)
        assert upkeep.maybe_keep() is not None
    assert on_disk(tmp_path, "latency") == 3


class Slow(ManualClock):
    """Whatever is done takes a minute."""

    def monotonic(self) -> float:
        self.now_s += 60
        return super().monotonic()


def test_it_takes_no_more_than_a_twentieth_of_the_time(tmp_path: Path) -> None:
    upkeep = Upkeep(tmp_path, every_s=0, clock=Slow())
    make_anew(tmp_path, 1)
    # Each time it is asked, a minute has passed.
    kept = [upkeep.maybe_keep() is not None for _minute in range(40)]
    assert kept == [True, *[False] * 18] * 2 + [True, False]


def test_the_log_of_a_table_forgets_what_is_older_than_a_day(tmp_path: Path) -> None:
    def sum_up() -> None:
        """What Delta does by itself with every hundredth commit."""
        delta = DeltaTable(tmp_path / "latency")
        delta.create_checkpoint()
        delta.cleanup_metadata()

    log = tmp_path / "latency" / "_delta_log"
    for run in range(1, 6):
        make_anew(tmp_path, run)
    sum_up()
    assert len(list(log.glob("*.json"))) == 6
    for file in log.iterdir():
        os.utime(file, (file.stat().st_mtime - 2 * 86_400,) * 2)
    make_anew(tmp_path, 6)
    sum_up()
    assert len(list(log.glob("*.json"))) == 1
    assert read(tmp_path, "latency", ["count"]).to_pylist() == [{"count": 6}]
