"""Bronze: the files that nodes wrote, and which of them were taken by which run.

The ledger is written first, in one commit: it is the plan of a run. A run that did not come to its
end is done again with the same files before any other, so that each run means the same whenever it
is done.

A file that cannot be read, or is gone when its turn comes, is noted as spoiled and taken no more:
one node's bad disk keeps nobody from knowing what the others tell.

The ledger also knows what is too late: until when earlier runs were told of things, and which hours
were forgotten. Both count from the run after, so that they, too, are part of a run's plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from chappe.errors import ChappeError
from chappe.pipeline.clocks import hour_name
from chappe.pipeline.options import Options
from chappe.pipeline.schema import EVENT, TABLES, arrow_schema
from chappe.pipeline.silver import HOUR_US, Closed
from chappe.pipeline.table import Table, read

_SCHEMA = arrow_schema(EVENT)


class Mistyped(ChappeError):
    """A file has a column of another type than events have."""


class Plan(NamedTuple):
    """What a run takes."""

    run: int
    files: Sequence[str]
    rows: int
    # Until when runs before this one were told of anything; 0 if there were none.
    horizon: int = 0
    # Hours that end before this were forgotten: what is of them cannot be put together any more.
    forgotten: int = 0

    def closed(self, options: Options) -> Closed:
        """The times that this run takes nothing more of."""
        return Closed(max(0, self.horizon - options.watermark_ms * 1000), self.forgotten)


class Ledger:
    """Which run took which file."""

    def __init__(self, tables: Path) -> None:
        self._tables = tables
        self._table = Table(tables, "ledger")

    def planned(self) -> Plan:
        """The last run that was planned; run 0 if none was."""
        run = self._table.run()
        mine = [("run", "=", run)]
        rows = read(self._tables, "ledger", filters=mine).to_pylist() if run else []
        spoiled = self._names("spoiled")
        files = sorted(f"{r['folder']}/{r['file']}" for r in rows if r["file"] not in spoiled)
        horizon = self._latest("ledger", "at", run)
        forgotten = self._latest("forgotten", "before", run)
        return Plan(run, files, sum(row["rows"] for row in rows), horizon, forgotten)

    def new(self, files: Iterable[Path]) -> list[Path]:
        """Those of the files that no run took."""
        taken = self._names("ledger") | self._names("spoiled")
        return sorted(file for file in files if _name(file) not in taken)

    def plan(self, files: Iterable[Path]) -> Plan | None:
        """Plan a run over those of the files that no run took; None if there are none."""
        run = self._table.run() + 1
        rows, spoiled = [], {}
        for file in self.new(files):
            try:
                rows.append({"run": run, **_entry(file)})
            except (pa.ArrowException, OSError, Mistyped) as error:
                spoiled[file] = str(error)
        if spoiled:
            self._spoil(run, spoiled)
        if not rows:
            return None
        schema = arrow_schema(TABLES["ledger"])
        self._table.put(pa.Table.from_pylist(rows, schema=schema), run, None)
        return self.planned()

    def spoil(self, plan: Plan) -> bool:
        """Look which files of a run that failed cannot be read, and note them; says whether there
        are any: then the run is another one, without them."""
        spoiled = {}
        for file in map(Path, plan.files):
            try:
                with pq.ParquetFile(file) as source:
                    for _batch in source.iter_batches():
                        pass
            except (pa.ArrowException, OSError) as error:
                spoiled[file] = str(error)
        if spoiled:
            self._spoil(plan.run, spoiled)
        return bool(spoiled)

    def spoiled(self, run: int) -> int:
        """How many files a run would have taken, and could not."""
        return int(read(self._tables, "spoiled", filters=[("run", "=", run)]).num_rows)

    def _spoil(self, run: int, problems: Mapping[Path, str]) -> None:
        table = Table(self._tables, "spoiled")
        rows = [
            {"hour": hour_of_file(file), "run": run, "file": _name(file), "problem": problem}
            for file, problem in problems.items()
        ]
        schema = arrow_schema(TABLES["spoiled"])
        table.put(pa.Table.from_pylist(rows, schema=schema), table.run() + 1, None)

    def _names(self, name: str) -> set[str]:
        return set(read(self._tables, name, ["file"])["file"].to_pylist())

    def forget(self, before_us: int) -> None:
        """Note that hours before a time are about to be forgotten: no later run begins them anew
        with the little that still comes."""
        table = Table(self._tables, "forgotten")
        begin = before_us - before_us % HOUR_US
        row = {"hour": hour_name(begin), "run": self._table.run(), "before": begin}
        schema = arrow_schema(TABLES["forgotten"])
        table.put(pa.Table.from_pylist([row], schema=schema), table.run() + 1, None)

    def _latest(self, name: str, column: str, run: int) -> int:
        """The largest value that was written down before a run was planned."""
        found = read(self._tables, name, [column], [("run", "<", run)])
        return pa.compute.max(found[column]).as_py() or 0


def frame(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """The rows of files, with the file that each is from.

    `date` and `hour` in the files' paths are for people and for other readers: the birth hour is
    not always that of the file.
    """
    reader = spark.read.schema(EVENT)
    rows = reader.parquet(*files) if files else spark.createDataFrame([], EVENT)
    return rows.select(*EVENT.names, fn.input_file_name().alias("file"))


def found(folders: Iterable[Path]) -> Iterator[Path]:
    """All files below the folders of nodes; what is still being written has a hidden name."""
    for folder in folders:
        for file in folder.absolute().glob("date=*/hour=*/*.parquet"):
            if not file.name.startswith((".", "_")):
                yield file


def _entry(file: Path) -> dict[str, object]:
    """What the ledger says of a file."""
    footer, status = pq.read_metadata(file), file.stat()
    found = footer.schema.to_arrow_schema()
    for wanted in _SCHEMA:
        at = found.get_field_index(wanted.name)
        if at >= 0 and found.field(at).type != wanted.type:
            raise Mistyped(f"{wanted.name}: {found.field(at).type} instead of {wanted.type}")
    return {
        "hour": hour_of_file(file),
        "folder": str(file.parents[2]),
        "file": _name(file),
        "bytes": status.st_size,
        "rows": footer.num_rows,
        # Nothing is told before it happens. A clock that is years ahead would make everything late
        # that others tell; so what counts is when the file was written, at most.
        "at": min(_latest(footer), status.st_mtime_ns // 1000),
    }


def _latest(footer: pq.FileMetaData) -> int:
    """The latest time that a file tells of, as far as its footer says."""
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    columns = [group.column(n) for group in groups for n in range(group.num_columns)]
    found = [one.statistics for one in columns if one.path_in_schema == "at"]
    return max((one.max for one in found if one is not None and one.has_min_max), default=0)


def _name(file: Path) -> str:
    """What a file is known by, wherever its folder is: the node and a checksum are in it."""
    return "/".join(file.parts[-3:])


def hour_of_file(file: Path) -> str:
    """The hour, by the clock of its node, that a file is of."""
    date, hour = file.parent.parent.name, file.parent.name
    return f"{date.removeprefix('date=')}T{hour.removeprefix('hour=')}"
