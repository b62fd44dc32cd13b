"""Tables: how fast Spark makes them of events, beside one shuffle of the same rows.

The shuffle reads the rows, sorts them by message onto other tasks and writes them as Parquet: the
least that anybody must do who wants to see all that happened to a message. Both run in one session
on two cores, each once before it is measured, as Java compiles what it runs often. A run over all
rows makes all tables; another one, after one in a hundred more has come, makes anew what that
touches.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic, process_time
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from benchmarks.bench import Bench
from benchmarks.day import write
from benchmarks.figure import Promise, Table, figure, ratio
from chappe.pipeline.job import run
from chappe.pipeline.schema import EVENT
from chappe.pipeline.session import SessionOptions, session

_ROWS = (1_000_000, 10_000_000, 50_000_000)
# What is promised is measured with these.
_MIDDLE = 10_000_000
_TASK_ROWS = 400_000
_QUICK = 20


class Took(NamedTuple):
    """What something took: time, and CPU time of Spark's processes and of this one."""

    seconds: float
    cpu_s: float


class Size(NamedTuple):
    """What was measured of so many rows."""

    rows: int
    shuffle: Took
    whole: Took
    more: Took


class TableSpeed:
    """Measures how fast all tables are made."""

    name = "tables"

    def steps(self, bench: Bench) -> int:
        return len(_ROWS) + 1

    def measure(self, bench: Bench) -> list[Table]:
        part = _QUICK if bench.quick else 1
        with (
            tempfile.TemporaryDirectory(prefix="chappe-tables-") as folder,
            session(SessionOptions(master="local[2]", memory="4g")) as spark,
        ):
            bench.advance("tables: Spark warms up")
            _measure(spark, Path(folder, "first"), _ROWS[0] // part)
            sizes = []
            for rows in _ROWS:
                bench.advance(f"tables of {rows:,} events")
                sizes.append(_measure(spark, Path(folder, str(rows)), rows // part))
        return [_tabulate(sizes)]


def _measure(spark: SparkSession, folder: Path, rows: int) -> Size:
    events, tables = folder / "events", folder / "tables"
    write(events, rows)

    def shuffle() -> None:
        read = spark.read.schema(EVENT).option("recursiveFileLookup", "true")
        parts = max(8, rows // _TASK_ROWS)
        # Who asks has no id for it, and a node's own events have none at all: evenly, too.
        of = fn.coalesce("message", fn.xxhash64("label", "node", "serial"))
        shuffled = read.parquet(str(events)).repartition(parts, of)
        shuffled.write.mode("overwrite").parquet(str(folder / "shuffled"))

    base = _took(spark, shuffle)
    whole = _took(spark, lambda: run(spark, [events], tables))
    # What comes next is of the last hour, of which there is something already.
    write(events, rows // 100, hours=1, seed=2, first=23)
    return Size(rows, base, whole, _took(spark, lambda: run(spark, [events], tables)))


def _took(spark: SparkSession, work: Callable[[], object]) -> Took:
    begun, cpu = monotonic(), _cpu_s(spark)
    work()
    return Took(monotonic() - begun, _cpu_s(spark) - cpu)


def _cpu_s(spark: SparkSession) -> float:
    """What this process, Spark's and those that it started have used so far."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    used, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:  # it has ended
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        # Its own, and that of those of its children that have ended.
        used[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    known = {jvm.java.lang.ProcessHandle.current().pid()}
    while more := {pid for pid, parent in parents.items() if parent in known} - known:
        known |= more
    return sum(used[pid] for pid in known) / os.sysconf("SC_CLK_TCK") + process_time()


def _tabulate(sizes: list[Size]) -> Table:
    table = Table(
        "Tables: all of them, of a day of events, with Spark on two cores",
        "Rows a second beside one shuffle by message that is written to Parquet; CPU time of a run "
        "over all, and of another one after 1 % more has come, all of it of the last hour, without "
        "the start of the session.",
        ["events", "rows/s", "shuffle, rows/s", "share of it", "CPU us/row", "1 % more, of CPU"],
    )
    for rows, base, whole, more in sizes:
        table.rows.append(
            [
                f"{rows:,}",
                f"{rows / whole.seconds:,.0f}",
                f"{rows / base.seconds:,.0f}",
                f"{base.seconds / whole.seconds:.2f}",
                f"{whole.cpu_s / rows * 1e6:.1f}",
                f"{more.cpu_s / whole.cpu_s:.3f}",
            ]
        )
    middle = next(size for size in sizes if size.rows == _MIDDLE or size is sizes[1])
    speed = ratio(figure([middle.shuffle.seconds]), figure([middle.whole.seconds]))
    table.verdicts.append(
        Promise("rows a second, of those of the shuffle,", 0.4, at_most=False).judge(speed)
    )
    share = ratio(figure([middle.more.cpu_s]), figure([middle.whole.cpu_s]))
    table.verdicts.append(
        Promise("CPU of a run after 1 % more, of that of all,", 0.1, at_most=True).judge(share)
    )
    largest, smaller = sizes[-1], sizes[-2]
    growth = ratio(
        figure([largest.whole.cpu_s / largest.rows]), figure([smaller.whole.cpu_s / smaller.rows])
    )
    table.verdicts.append(
        Promise("CPU per row of the most, of that of fewer,", 1.25, at_most=True).judge(growth)
    )
    return table
