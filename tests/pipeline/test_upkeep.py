"""A stream keeps its tables small by itself, now and then, and takes what killed nodes left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.table import Table, read
from chappe.pipeline.upkeep import Upkeep
from tests.cli.process import environment
from tests.events.tables import until_told
from tests.faults.process import NodeProcess
from tests.hub.rig import ManualClock
from tests.pipeline.traffic import DAY, hour
from tests.processes import END_S, kill, read_line


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


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeProcess]:
    """A node whose events are in its journal alone, for as long as it lives."""
    monkeypatch.delenv("CHAPPE_EVENTS_ENABLED")
    node = NodeProcess(tmp_path, "[events]\nenabled = true\nshare = 1.0\nseal_s = 3600\n")
    yield node
    node.kill()


BATCH_S = 240.0
# The command, which looks for journals every second.
STREAM = """
import sys
from chappe.cli.main import main
from chappe.cli.pipeline import commands
commands._SEAL_EVERY_S = 1
main()
"""


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_what_a_node_left_that_is_killed_while_a_stream_goes_on_is_in_its_tables(
    connect: str, node: NodeProcess, tmp_path: Path
) -> None:
    events, tables = node.data / "events", tmp_path / "tables"
    words = ["--events", str(events), "--tables", str(tables), "--stream", "--every", "1"]
    stream = subprocess.Popen(
        [sys.executable, "-c", STREAM, "pipeline", "run", *words, "--remote", connect],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert stream.stderr is not None
        # All that there was when it began is sealed.
        assert "journals" in read_line(stream.stderr)
        assert "start of Spark" in read_line(stream.stderr)
        until_told(events / "_log" / "node")
        assert not list(events.rglob("*.parquet"))
        node.kill()
        while "node_gone" not in kinds(tables):
            assert "batch" in read_line(stream.stderr, BATCH_S)
        stream.send_signal(signal.SIGINT)
        assert stream.wait(END_S) == 130
    finally:
        kill(stream)
    assert kinds(tables)[0] == "node_started"


def kinds(tables: Path) -> list[str]:
    found: list[str] = read(tables, "events").sort_by("serial")["kind"].to_pylist()
    return found
