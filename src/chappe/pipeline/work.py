"""The work of a run that is done on packs, and kept until the run is done.

A run that is done again goes on with what it had: each step of the work is there whole, or is done
anew. With the packs that a step makes its tasks write the files of tables.

Each attempt at a step writes into folders of its own, and a note says which of them did it: one of
a client that was killed may still be under way at a server of Spark Connect.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyarrow.dataset import dataset
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from chappe.errors import ChappeError, StorageError
from chappe.pipeline import paths
from chappe.pipeline.bronze import Plan
from chappe.pipeline.clocks import Clocks
from chappe.pipeline.hourly import find_offsets, put_together, write_events
from chappe.pipeline.hours import HOUR_US, hour_name
from chappe.pipeline.minutes import write_minutes
from chappe.pipeline.notes import read_note, write_note
from chappe.pipeline.options import Options
from chappe.pipeline.packing import MESSAGES
from chappe.pipeline.parts import Attempt, piece_of
from chappe.pipeline.presence import HOURS, Hour, look_through, put_pieces_together
from chappe.pipeline.reading import name_paths, read_events, read_paths, read_rows
from chappe.pipeline.schema import PACK, TABLES, arrow_schema
from chappe.pipeline.syncing import sync_files
from chappe.pipeline.table import Table

# A task sorts about so many rows: few enough for its memory, enough to be worth a file.
ROWS_PER_TASK = 400_000
# To read fewer than this is not worth a task, as long as there are some.
_ROWS_MIN = 50_000
_READERS = 8
_TASKS_MAX = 2000
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


class Packs(NamedTuple):
    """What a step worked out, and the attempt that did it, whose tasks wrote parts as well."""

    attempt: Attempt
    frame: DataFrame
    place: Path

    def read(self, *columns: str) -> pa.Table:
        """Columns of the packs, without Spark: its plan takes longer than so few rows do."""
        try:
            return dataset(self.place, arrow_schema(PACK), format="parquet").to_table([*columns])
        except (pa.ArrowException, OSError) as error:
            raise StorageError(f"{self.place}: {error}") from None


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
        self._pieces = self._kept_pieces(plan.rows_of_an_hour + _EVENTS_PER_PATH * before)

    def packs(self) -> Packs:
        """All rows of the plan's files, sorted out."""
        return self._packs("packs", lambda _attempt: self._read())

    def gathered(self, before: Sequence[str], hours: int, clocks: Callable[[], Clocks]) -> Packs:
        """Packs of what paths say together; with them, the paths are written: of the messages that
        are new, and of those that files of paths had before."""
        return self._packs("sums", lambda attempt: self._gather(attempt, before, hours, clocks()))

    def by_hour(
        self,
        sums: DataFrame,
        sources: Callable[[], Mapping[str, pa.Table]],
        clocks: Callable[[Iterable[str]], Clocks],
    ) -> Packs:
        """Write all tables that are sums of an hour's paths, and of what nodes told of the hour
        besides, as sources say by hour; packs of what changed. Clocks are those of hours."""

        def make(attempt: Attempt) -> DataFrame:
            told = sources()
            return put_together(sums, told, clocks(told), attempt, _tasks(len(told)))

        return self._packs("hours", make)

    def minutes(self, flows: Sequence[str], since_us: int) -> dict[str, list[str]]:
        """Files of what happened in queues since a time, by hour, of files of flows."""

        def make(_attempt: Attempt, place: Path) -> None:
            write_minutes(self._spark, flows, since_us, place, _tasks(len(flows))).collect()

        return _by_name(self._kept("minutes", make)[1])

    def offsets(self, files: Mapping[str, Sequence[str]]) -> dict[str, pa.Scalar]:
        """Packs of what beats say of clocks, by hour, of files of events."""
        return find_offsets(self._spark, files)

    def write_events(
        self, packs: DataFrame, before: Sequence[str], rows: Mapping[str, int]
    ) -> Attempt:
        """Write the events of hours, with those that files had before: so many rows of each."""
        attempt = Attempt.begin(self._tables, self._plan.run)
        pieces = self._pieces_of_events(packs, rows)
        if before:
            packs = packs.unionByName(read_rows(self._spark, before))
        write_events(packs, pieces, attempt, _tasks(sum(pieces.values()))).collect()
        return attempt

    def turnover(
        self, hours: Callable[[], Sequence[Hour]], clocks: Callable[[], Clocks]
    ) -> tuple[Attempt, dict[str, list[str]]]:
        """Files of who comes and goes, by hour; with them, lives and stays are written."""

        def make(attempt: Attempt, place: Path) -> None:
            some = hours()
            spread = self._spark.createDataFrame(some, HOURS).repartition(_tasks(len(some)))
            look_through(spread, attempt, place, clocks(), self._options).collect()
            put_pieces_together(some, place)

        attempt, place = self._kept("turnover", make)
        return attempt, _by_name(place)

    def finish(self) -> None:
        """Throw all of it away."""
        shutil.rmtree(self._folder.parent, ignore_errors=True)

    def _packs(self, name: str, make: Callable[[Attempt], DataFrame]) -> Packs:
        def write(attempt: Attempt, place: Path) -> None:
            made = make(attempt).write.mode("overwrite").options(**_LARGE_VALUES)
            made.parquet(str(place))

        attempt, place = self._kept(name, write)
        return Packs(attempt, self._spark.read.schema(PACK).parquet(str(place)), place)

    def _kept(self, name: str, make: Callable[[Attempt, Path], None]) -> tuple[Attempt, Path]:
        """The attempt that did a step, and the folder that it was to fill; if none did, one does it
        now."""
        note = self._folder / f"{name}.done"
        if not note.exists():
            attempt = Attempt.begin(self._tables, self._plan.run)
            place = self._folder / f"{name}-{attempt.token}"
            make(attempt, place)
            self._sync(attempt, place)
            write_note(note, attempt.token)
        attempt = Attempt(self._tables, self._plan.run, read_note(note))
        return attempt, self._folder / f"{name}-{attempt.token}"

    def _sync(self, attempt: Attempt, place: Path) -> None:
        """See that what a step wrote is on the disk before the note that says so."""
        sync_files(place.rglob("*.parquet"), self._folder)
        for name in TABLES:
            if files := attempt.files(name):
                sync_files(files, (self._tables / name).resolve())

    def _kept_pieces(self, rows: int) -> int:
        """In how many pieces an hour is that has so many rows; as it was, if the run was begun by
        one that would say otherwise."""
        note = self._folder / "pieces"
        if not note.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_note(note, str(_pieces(rows)))
        return int(read_note(note))

    def _read(self) -> DataFrame:
        rows = self._plan.rows
        tasks = max(rows // ROWS_PER_TASK, min(_READERS, -(-rows // _ROWS_MIN)))
        closed = self._plan.closed(self._options)
        return read_events(self._spark, self._plan.files, closed, self._pieces, tasks)

    def _pieces_of_events(self, packs: DataFrame, before: Mapping[str, int]) -> dict[str, int]:
        """In how many pieces the events of hours are, with those before."""
        if self._plan.rows_of_an_hour + max(before.values()) <= ROWS_PER_TASK:
            # Messages included: Spark need not be asked how many of them are none.
            return dict.fromkeys(before, 1)
        rows = Counter(before)
        for new in packs.groupBy("born_hour").agg(fn.sum("rows").alias("count")).collect():
            rows[hour_name(new["born_hour"] * HOUR_US)] += new["count"]
        return {hour: _pieces(count) for hour, count in rows.items()}

    def _gather(
        self, attempt: Attempt, before: Sequence[str], hours: int, clocks: Clocks
    ) -> DataFrame:
        if Table(self._tables, "paths").run() >= self._plan.run:
            # What would be made anew is what it would be made of.
            raise ChappeError(
                f"{self._folder} is gone, and with it what run {self._plan.run} had worked out: "
                "put it back, or make new tables of the same events"
            )
        packs = self.packs().frame.where(fn.col("what") == MESSAGES)
        # What is in these pieces already is read by the task that has the piece.
        known = {file: piece_of(file, self._pieces) for file in before}
        same = {file: piece for file, piece in known.items() if piece is not None}
        if same:
            packs = packs.unionByName(name_paths(self._spark, same))
        if others := [file for file in before if file not in same]:
            packs = packs.unionByName(read_paths(self._spark, others, self._pieces))
        tasks = _tasks(hours * self._pieces)
        return paths.gather(packs, attempt, clocks, self._options, self._pieces, tasks)


def _by_name(place: Path) -> dict[str, list[str]]:
    """A folder's files, by the hours that they are called after."""
    return {file.stem: [str(file)] for file in place.glob("*.parquet")}


def _pieces(rows: int) -> int:
    """How many pieces an hour with so many rows is in."""
    return max(1, min(_PIECES_MAX, -(-rows // ROWS_PER_TASK)))


def _tasks(wanted: int) -> int:
    return max(1, min(_TASKS_MAX, wanted))
