"""Tables: Parquet that Spark writes, made visible by one commit of Delta that needs no JVM.

A run writes a table's files below `run=N/of=.../hour=H/`: Spark itself does, or its tasks do, and
each attempt at it in a folder of its own. Until its commit, which names the files of one attempt,
nobody sees them. The commit replaces whole hours, and carries the run's number: that is how a run
that is done again knows which tables have it already. What other attempts left is removed in time,
like what was replaced.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import RemoveAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from chappe.pipeline import merging
from chappe.pipeline.footers import action_of
from chappe.pipeline.parts import Attempt
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.syncing import sync_files

_APP = "chappe"
# What is raised where a file of a table cannot be read.
DAMAGE = (pa.ArrowException, DeltaError, OSError)
# How long the log knows of commits, and of files that were replaced: of a stream there are
# thousands a day.
_LOG = dict.fromkeys(
    ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration"), "interval 1 days"
)


class Table:
    """One table below the tables' directory."""

    def __init__(self, tables: Path, name: str) -> None:
        self.name = name
        self.schema: StructType = TABLES[name]
        self._tables = tables
        # As Delta names it: without links and ways up.
        self._root = (tables / name).resolve()

    def run(self) -> int:
        """The last run that this table has; 0 if it has none."""
        delta = self._delta()
        return 0 if delta is None else delta.transaction_version(_APP) or 0

    def write(self, frame: DataFrame, run: int, replacing: Iterable[str] | None) -> int:
        """Write what Spark computes and commit it in place of these hours; None: besides them.

        Returns how many rows there were.
        """
        attempt = Attempt.begin(self._tables, run)
        frame.select(*self.schema.names).write.mode("overwrite").partitionBy("hour").parquet(
            str(attempt.place(self.name))
        )
        return self.commit(attempt, replacing)

    def put(self, rows: pa.Table, run: int, replacing: Iterable[str] | None) -> int:
        """The same for what is here already."""
        attempt = Attempt.begin(self._tables, run)
        place = attempt.place(self.name)
        rows = rows.cast(arrow_schema(self.schema))
        for hour in sorted(rows["hour"].unique().to_pylist()):
            (place / f"hour={hour}").mkdir(parents=True)
            part = rows.filter(pa.compute.equal(rows["hour"], hour)).drop_columns("hour")
            pq.write_table(part, place / f"hour={hour}" / "part-0.parquet")
        return self.commit(attempt, replacing)

    def frame(self, spark: SparkSession, hours: Iterable[str] | None = None) -> DataFrame:
        """What the table has of these hours, or all."""
        files = self.files(hours)
        if not files:
            return spark.createDataFrame([], self.schema)
        reader = spark.read.schema(self.schema).option("basePath", str(self._root))
        return reader.parquet(*files).select(*self.schema.names)

    def files(self, hours: Iterable[str] | None = None) -> list[str]:
        """The files of these hours, or of all."""
        delta = self._delta()
        if delta is None:
            return []
        if hours is None:
            return sorted(delta.file_uris())
        wanted = sorted(hours)
        if not wanted:
            return []
        return sorted(delta.file_uris(file_pruning_predicate=[("hour", "in", wanted)]))

    def files_by_hour(self, hours: Iterable[str]) -> dict[str, list[str]]:
        """The files of each of these hours that the table has something of."""
        found: dict[str, list[str]] = {}
        for file in self.files(hours):
            found.setdefault(Path(file).parent.name.removeprefix("hour="), []).append(file)
        return found

    def hours(self) -> set[str]:
        """The hours that the table has something of."""
        delta = self._delta()
        return set() if delta is None else {str(part["hour"]) for part in delta.partitions()}

    def rows_by_hour(self) -> Counter[str]:
        """How many rows each hour has."""
        found: Counter[str] = Counter()
        for file in self._added():
            found[file["partition.hour"]] += file["num_records"]
        return found

    def hours_from(self, us: int) -> set[str]:
        """The hours that the table has something of and that begin at a time or later."""
        first = datetime.fromtimestamp(us // 1_000_000, UTC).strftime("%Y-%m-%dT%H")
        return {hour for hour in self.hours() if hour >= first}

    def hours_within(self, column: str, upto: str, first: int, end: int) -> set[str]:
        """Hours with a file whose values of two columns reach into a span of time."""
        return {
            str(file["partition.hour"])
            for file in self._added()
            if (file.get(f"min.{column}") or 0) < end and (file.get(f"max.{upto}") or end) >= first
        }

    def files_upto(self, column: str, first: int) -> list[str]:
        """Files that have values of a column from one on, as far as the log tells."""
        return [
            str(self._root / file["path"])
            for file in self._added()
            if (file.get(f"max.{column}") or first) >= first
        ]

    def forget(self, before: str) -> None:
        """Forget all hours before one; of an hour whose name is none, nothing."""
        delta = self._delta()
        old = [hour for hour in self.hours() if hour < before]
        if delta is not None and old:
            wanted = ", ".join(f"'{hour}'" for hour in sorted(old))
            delta.delete(f"hour in ({wanted})")

    def compact(self, files_max: int, now_ms: int) -> None:
        """Merge the small files of each hour that has more than so many of them."""
        files_of = Counter(str(file["partition.hour"]) for file in self._added())
        for hour in sorted(hour for hour, count in files_of.items() if count > files_max):
            for files in merging.small(map(Path, self.files([hour])), files_max):
                self._merge(hour, files, now_ms)

    def _merge(self, hour: str, files: list[Path], now_ms: int) -> None:
        delta = DeltaTable(self._root)
        place = self._root / f"run={self.run()}" / "of=whole" / f"hour={hour}"
        place.mkdir(parents=True, exist_ok=True)
        whole = place / f"whole-{delta.version()}.parquet"
        schema = arrow_schema(self.schema)
        merging.merge(files, whole, schema.remove(schema.get_field_index("hour")))
        sync_files([whole], self._root)
        added, _rows = action_of(self._root, whole, self.schema, data_change=False)
        removed = [
            RemoveAction(
                str(file.relative_to(self._root)),
                data_change=False,
                deletion_timestamp=now_ms,
                size=file.stat().st_size,
                partition_values={"hour": hour},
            )
            for file in files
        ]
        delta.create_write_transaction(
            [added, *removed],
            mode="append",
            schema=schema,
            partition_by="hour",
        )
        self._sync_log(delta)

    def _added(self) -> list[dict[str, Any]]:
        """What the log says of each file."""
        delta = self._delta()
        return [] if delta is None else pa.table(delta.get_add_actions(flatten=True)).to_pylist()

    def _delta(self) -> DeltaTable | None:
        return DeltaTable(self._root) if DeltaTable.is_deltatable(str(self._root)) else None

    def _sync_log(self, delta: DeltaTable) -> None:
        """See that a commit is on the disk before anything is done that relies on it."""
        log = self._root / "_delta_log"
        # Delta knows the version that it began with.
        since = (log / f"{version:020}.json" for version in itertools.count(delta.version()))
        sync_files(itertools.takewhile(Path.exists, since), log)

    def commit(self, attempt: Attempt, replacing: Iterable[str] | None) -> int:
        """Make visible what an attempt wrote, in place of these hours; None: besides them.

        Returns how many rows there were.
        """
        schema = arrow_schema(self.schema)
        delta = self._delta() or DeltaTable.create(
            self._root,
            schema=schema,
            mode="ignore",
            partition_by="hour",
            name=self.name,
            configuration=_LOG,
        )
        files = attempt.files(self.name)
        sync_files(files, self._root)
        counted = [action_of(self._root, file, self.schema) for file in files]
        hours = None if replacing is None else sorted(replacing)
        delta.create_write_transaction(
            [action for action, _rows in counted],
            mode="overwrite" if hours else "append",
            schema=schema,
            partition_by="hour",
            partition_filters=[("hour", "in", hours)] if hours else None,
            commit_properties=CommitProperties(app_transactions=[Transaction(_APP, attempt.run)]),
        )
        self._sync_log(delta)
        return sum(rows for _action, rows in counted)


def read(
    tables: Path,
    name: str,
    columns: Sequence[str] | None = None,
    filters: Any = None,
) -> pa.Table:
    """Read a table without Spark; where it is not there yet, an empty one."""
    schema = arrow_schema(TABLES[name])
    root = tables / name
    if not DeltaTable.is_deltatable(str(root)):
        empty = schema.empty_table()
        return empty.select(list(columns)) if columns is not None else empty
    wanted = list(columns) if columns is not None else schema.names
    files = _filesystem(root)
    return DeltaTable(root).to_pyarrow_table(columns=wanted, filters=filters, filesystem=files)


def _filesystem(root: Path) -> pa.fs.FileSystem:
    """Arrow's own. Delta's is Python's, too, and a thread of Arrow that still reads by it when the
    process ends takes all of it down."""
    return pa.fs.SubTreeFileSystem(str(root.resolve()), pa.fs.LocalFileSystem())
