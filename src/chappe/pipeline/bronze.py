"""Bronze: the files that nodes wrote, and which of them were taken by which run.

The ledger is written first, in one commit: it is the plan of a run. A run that did not come to its
end is done again with the same files before any other, so that each run means the same whenever it
is done.

A file that holds something else, or is gone when its turn comes, is noted as spoiled and taken no
more: what one node wrote badly keeps nobody from knowing what the others tell. One that cannot be
read for another reason ends the run, and the next takes it.

The ledger also knows what is too late: until when earlier runs were told of things, and which hours
were forgotten. Both count from the run after, so that they, too, are part of a run's plan.

A run takes so many rows at most, of the oldest hours first, so that it needs no more memory and
disk after a month without any than after a minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from chappe.pipeline.files import Mistyped, check_spoiled, entry_of, hour_of_file, is_of, name_of
from chappe.pipeline.hours import HOUR_US, hour_name
from chappe.pipeline.options import Options
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.silver import Closed
from chappe.pipeline.table import Table, read

# What a run takes at most; a cluster's worth of work, and yet no more than a disk holds twice.
ROWS_PER_RUN = 100_000_000


Filters = list[tuple[str, str, Any]]


class Plan(NamedTuple):
    """What a run takes."""

    run: int
    files: Sequence[str]
    rows: int
    # Until when runs before this one were told of anything; 0 if there were none.
    horizon: int = 0
    # Hours that end before this were forgotten: what is of them cannot be put together any more.
    forgotten: int = 0
    # Of the hour that has the most.
    rows_of_an_hour: int = 0
    # Until when files of this run and those before it were written: what a node tells of later
    # times, its clock made up.
    written: int = 0
    # Files that it would have taken, and cannot read.
    spoiled: int = 0

    def closed(self, options: Options) -> Closed:
        """The times that this run takes nothing more of."""
        return Closed(max(0, self.horizon - options.watermark_ms * 1000), self.forgotten)


class Ledger:
    """Which run took which file."""

    def __init__(self, tables: Path) -> None:
        self._tables = tables
        self._table = Table(tables, "ledger")

    def run(self) -> int:
        """The number of the last run that was planned; 0 if none was."""
        return self._table.run()

    def planned(self) -> Plan:
        """The last run that was planned; run 0 if none was."""
        run = self.run()
        if not run:
            return Plan(0, [], 0)
        mine = [("run", "=", run)]
        every = read(self._tables, "ledger", filters=mine).to_pylist()
        spoiled = self._names("spoiled", mine)
        rows = [row for row in every if row["file"] not in spoiled]
        horizon = self._latest("ledger", "at", run)
        return Plan(
            run,
            sorted(f"{row['folder']}/{row['file']}" for row in rows),
            rows=sum(row["rows"] for row in rows),
            horizon=horizon,
            forgotten=self._latest("forgotten", "before", run),
            rows_of_an_hour=max(_by_hour(rows).values(), default=0),
            written=max([horizon, *(row["at"] or 0 for row in every)]),
            spoiled=len(spoiled),
        )

    def new(self, files: Iterable[Path]) -> list[Path]:
        """Those of the files that no run took, those of the oldest hours first."""
        every = list(files)
        # What was taken of other hours is not looked at: there is more of it every day.
        theirs = [("hour", "in", sorted({hour_of_file(file) for file in every}))]
        taken = self._names("ledger", theirs) | self._names("spoiled", theirs) if every else set()
        fresh = (file for file in every if name_of(file) not in taken)
        return sorted(fresh, key=lambda file: (hour_of_file(file), file))

    def plan(self, files: Iterable[Path], rows_max: int = ROWS_PER_RUN) -> Plan | None:
        """Plan a run over those of the files that no run took, as far as they have so many rows
        together; None if there are none. A file that has more is a run of its own.

        Where all of them are spoiled there is no run, and the plan only says how many. Raises
        StorageError for one that cannot be read now: that is for whoever owns it to mend.
        """
        run = self._table.run() + 1
        rows: list[dict[str, Any]] = []
        spoiled: dict[Path, str] = {}
        count = 0
        for file in self.new(files):
            try:
                entry = entry_of(file)
            except (pa.ArrowException, Mistyped) as error:
                spoiled[file] = str(error)
                continue
            except OSError as error:
                check_spoiled(file, error)
                spoiled[file] = str(error)
                continue
            count += entry["rows"]
            if rows and count > rows_max:
                break
            rows.append({"run": run, **entry})
        if spoiled:
            # Without a run they are told of now, and not once more with the next.
            self._spoil(run if rows else run - 1, spoiled)
        if not rows:
            return Plan(0, [], 0, spoiled=len(spoiled)) if spoiled else None
        schema = arrow_schema(TABLES["ledger"])
        self._table.put(pa.Table.from_pylist(rows, schema=schema), run, None)
        return self.planned()

    def spoil(self, plan: Plan) -> bool:
        """Look which files of a run that failed are spoiled, and note them; says whether there
        are any: then the run is another one, without them. Raises StorageError for one that cannot
        be read now."""
        spoiled = {}
        for file in map(Path, plan.files):
            try:
                with pq.ParquetFile(file) as source:
                    for _batch in source.iter_batches():
                        pass
            except pa.ArrowException as error:
                spoiled[file] = str(error)
            except OSError as error:
                check_spoiled(file, error)
                spoiled[file] = str(error)
        if spoiled:
            self._spoil(plan.run, spoiled)
        return bool(spoiled)

    def _spoil(self, run: int, problems: Mapping[Path, str]) -> None:
        table = Table(self._tables, "spoiled")
        rows = [
            {"hour": hour_of_file(file), "run": run, "file": name_of(file), "problem": problem}
            for file, problem in problems.items()
        ]
        schema = arrow_schema(TABLES["spoiled"])
        table.put(pa.Table.from_pylist(rows, schema=schema), table.run() + 1, None)

    def _names(self, name: str, filters: Filters) -> set[str]:
        return set(read(self._tables, name, ["file"], filters)["file"].to_pylist())

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
        # Of most files the log says it; only what may have a larger one is read.
        before = (one for one in _logged(self._tables / name) if (one.get("max.run") or run) < run)
        least = max((one.get(f"max.{column}") or 0 for one in before), default=0)
        found = read(self._tables, name, [column], [("run", "<", run), (column, ">", least)])
        return pa.compute.max(found[column]).as_py() or least


def _logged(table: Path) -> list[dict[str, Any]]:
    """What a table's log says of each of its files."""
    if not DeltaTable.is_deltatable(str(table)):
        return []
    return pa.table(DeltaTable(table).get_add_actions(flatten=True)).to_pylist()  # type: ignore[no-any-return]


def found(folders: Iterable[Path]) -> Iterator[Path]:
    """All files of events below the folders of nodes."""
    for folder in map(Path.absolute, folders):
        for file in folder.glob("date=*/hour=*/*.parquet"):
            if is_of([folder], file):
                yield file


def _by_hour(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How many rows of each hour entries of the ledger tell of."""
    found: Counter[str] = Counter()
    for row in rows:
        found[row["hour"]] += row["rows"]
    return found
