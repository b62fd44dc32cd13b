"""Bronze: the files that nodes wrote, and which of them were taken by which run.

The ledger is written first, in one commit: it is the plan of a run. A run that did not come to its
end is done again with the same files before any other, so that each run means the same whenever it
is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from chappe.pipeline.schema import EVENT, TABLES, arrow_schema
from chappe.pipeline.table import Table, read


class Plan(NamedTuple):
    """What a run takes."""

    run: int
    files: Sequence[str]
    rows: int


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
        files = sorted(f"{row['folder']}/{row['file']}" for row in rows)
        return Plan(run, files, sum(row["rows"] for row in rows))

    def new(self, files: Iterable[Path]) -> list[Path]:
        """Those of the files that no run took."""
        taken = set(read(self._tables, "ledger", ["file"])["file"].to_pylist())
        return sorted(file for file in files if _name(file) not in taken)

    def plan(self, files: Iterable[Path]) -> Plan | None:
        """Plan a run over those of the files that no run took; None if there are none."""
        run = self._table.run() + 1
        rows = [
            {
                "hour": hour_of_file(file),
                "run": run,
                "folder": str(file.parents[2]),
                "file": _name(file),
                "bytes": file.stat().st_size,
                "rows": pq.read_metadata(file).num_rows,
            }
            for file in self.new(files)
        ]
        if not rows:
            return None
        schema = arrow_schema(TABLES["ledger"])
        self._table.put(pa.Table.from_pylist(rows, schema=schema), run, None)
        return self.planned()


def frame(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """The rows of files, with the file that each is from.

    `date` and `hour` in the files' paths are for people and for other readers: the birth hour is
    not always that of the file.
    """
    rows = spark.read.schema(EVENT).parquet(*files)
    return rows.select(*EVENT.names, fn.input_file_name().alias("file"))


def found(folders: Iterable[Path]) -> Iterator[Path]:
    """All files below the folders of nodes; what is still being written has a hidden name."""
    for folder in folders:
        for file in folder.absolute().glob("date=*/hour=*/*.parquet"):
            if not file.name.startswith((".", "_")):
                yield file


def _name(file: Path) -> str:
    """What a file is known by, wherever its folder is: the node and a checksum are in it."""
    return "/".join(file.parts[-3:])


def hour_of_file(file: Path) -> str:
    """The hour, by the clock of its node, that a file is of."""
    date, hour = file.parent.parent.name, file.parent.name
    return f"{date.removeprefix('date=')}T{hour.removeprefix('hour=')}"
