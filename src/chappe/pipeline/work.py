"""The work of a run that is done on packs, and kept until the run is done.

A run that is done again goes on with what it had: each step of the work is there whole, or is done
anew. With the packs that a step makes its tasks write the files of tables.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from chappe.errors import ChappeError
from chappe.pipeline import paths
from chappe.pipeline.bronze import Plan
from chappe.pipeline.clocks import Clocks
from chappe.pipeline.hourly import find_offsets, put_together, write_events
from chappe.pipeline.minutes import write_minutes
from chappe.pipeline.options import Options
from chappe.pipeline.packing import MESSAGES
from chappe.pipeline.parts import clear_parts
from chappe.pipeline.presence import HOURS, Hour, look_through
from chappe.pipeline.reading import read_events, read_paths, read_rows
from chappe.pipeline.schema import PACK
from chappe.pipeline.table import Table

# A task sorts about so many rows: few enough for its memory, enough to be worth a file.
ROWS_PER_TASK = 400_000
_TASKS_MIN, _TASKS_MAX = 2, 2000
# About as many as a message has.
_EVENTS_PER_PATH = 4
# An hour is in no more pieces than this.
_PIECES_MAX = 1000
# Parquet looks at how much it has gathered only after many values, unless it is told how large
# they are.
_LARGE_VALUES = {
    "compression": "none",
    "parquet.enable.dictionary": "false",
    "parquet.page.size.row.check.min": "1",
    "parquet.block.size.row.check.min": "1",
}


class Work:
    """What a run works out on its way to the tables; nobody else reads it."""

    def __init__(
        self, spark: SparkSession, plan: Plan, tables: Path, options: Options, before: int
    ) -> None:
        """`before`: how many paths the hour has that has the most."""
        self._spark = spark
        self._plan = plan
        self._tables = tables
        self._options = options
        self._folder = tables / "_work" / f"run={plan.run}"
        rows = plan.rows_of_an_hour + _EVENTS_PER_PATH * before
        self._pieces = max(1, min(_PIECES_MAX, -(-rows // ROWS_PER_TASK)))

    def packs(self) -> DataFrame:
        """All rows of the plan's files, sorted out."""
        return self._kept("packs", self._read)

    def gathered(
        self, before: Sequence[str], hours: int, clocks: Callable[[], Clocks]
    ) -> DataFrame:
        """Packs of what paths say together; with them, the paths are written: of the messages that
        are new, and of those that files of paths had before."""
        return self._kept("sums", lambda: self._gather(before, hours, clocks()))

    def by_hour(self, sums: DataFrame, sources: Callable[[], Mapping[str, pa.Table]]) -> DataFrame:
        """Write all tables that are sums of an hour's paths, and of what nodes told of the hour
        besides, as sources say by hour; packs of what changed."""
        return self._kept("hours", lambda: self._put_together(sums, sources()))

    def minutes(self, flows: Sequence[str], since_us: int) -> dict[str, list[str]]:
        """Files of what happened in queues since a time, by hour, of files of flows."""
        place = self._folder / "minutes"
        done = place / "_SUCCESS"
        if not done.exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            write_minutes(self._spark, flows, since_us, place, _tasks(len(flows))).collect()
            done.touch()
        return {file.stem: [str(file)] for file in place.glob("*.parquet")}

    def offsets(self, files: Mapping[str, Sequence[str]]) -> dict[str, pa.Scalar]:
        """Packs of what beats say of clocks, by hour, of files of events."""
        return find_offsets(self._spark, files)

    def write_events(self, packs: DataFrame, before: Sequence[str], hours: int) -> None:
        """Write events, with those that files had before."""
        if before:
            packs = packs.unionByName(read_rows(self._spark, before))
        self._clear("events")
        written = write_events(packs, self._tables, self._plan.run, _tasks(hours))
        written.collect()

    def turnover(
        self, hours: Callable[[], Sequence[Hour]], clocks: Callable[[], Clocks]
    ) -> dict[str, list[str]]:
        """Files of who comes and goes, by hour; with them, lives and stays are written."""
        place = self._folder / "turnover"
        done = place / "_SUCCESS"
        if not done.exists():
            self._clear("lives", "stays")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            self._look_through(place, hours(), clocks())
            done.touch()
        return {file.stem: [str(file)] for file in place.glob("*.parquet")}

    def finish(self) -> None:
        """Throw all of it away."""
        shutil.rmtree(self._folder.parent, ignore_errors=True)

    def _kept(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        place = self._folder / name
        # Spark puts it there when all is written.
        if not (place / "_SUCCESS").exists():
            made = make().write.mode("overwrite").options(**_LARGE_VALUES)
            made.parquet(str(place))
        return self._spark.read.schema(PACK).parquet(str(place))

    def _read(self) -> DataFrame:
        tasks = max(8, self._plan.rows // ROWS_PER_TASK)
        closed = self._plan.closed(self._options)
        return read_events(self._spark, self._plan.files, closed, self._pieces, tasks)

    def _gather(self, before: Sequence[str], hours: int, clocks: Clocks) -> DataFrame:
        if Table(self._tables, "paths").run() >= self._plan.run:
            # What would be made anew is what it would be made of.
            raise ChappeError(
                f"{self._folder} is gone, and with it what run {self._plan.run} had worked out: "
                "put it back, or make new tables of the same events"
            )
        packs = self.packs().where(fn.col("what") == MESSAGES)
        if before:
            packs = packs.unionByName(read_paths(self._spark, before, self._pieces))
        self._clear("paths", "odd")
        tasks = _tasks(hours * self._pieces)
        return paths.gather(packs, self._tables, self._plan.run, clocks, self._options, tasks)

    def _put_together(self, sums: DataFrame, sources: Mapping[str, pa.Table]) -> DataFrame:
        self._clear("latency", "delivery", "links", "flows")
        return put_together(sums, sources, self._tables, self._plan.run, _tasks(len(sources)))

    def _look_through(self, place: Path, hours: Sequence[Hour], clocks: Clocks) -> None:
        spread = self._spark.createDataFrame(hours, HOURS).repartition(_tasks(len(hours)))
        run, options = self._plan.run, self._options
        look_through(spread, self._tables, run, place, clocks, options).collect()

    def _clear(self, *names: str) -> None:
        for name in names:
            clear_parts(self._tables, name, self._plan.run)


def _tasks(wanted: int) -> int:
    return max(_TASKS_MIN, min(_TASKS_MAX, wanted))
