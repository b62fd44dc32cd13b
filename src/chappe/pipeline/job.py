"""The job: takes what is new, and makes anew what that touches.

A run has a number and a plan: the ledger's rows. Each table that a run makes is committed with that
number, in one order; a run that was interrupted is done again from its plan, and passes over the
tables that have it. So a crash anywhere and another start give the same tables, and a run that
finds nothing new changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from chappe.clock import SystemClock
from chappe.pipeline import bronze
from chappe.pipeline.making import Making
from chappe.pipeline.options import Options, agree
from chappe.pipeline.remains import clear, has_packs, unfinished
from chappe.pipeline.work import ROWS_PER_TASK

Progress = Callable[[str, float], None]


class Counts(NamedTuple):
    """What a run did, or several together; `files` is 0 when there was nothing new."""

    # 0 if there was none: nothing new, or nothing that can be read.
    run: int
    files: int
    events: int
    quarantined: int
    hours: int
    paths: int
    # Files that could not be read.
    spoiled: int

    def plus(self, later: Counts) -> Counts:
        """Both together; the number is that of the later run, if there was one. An hour that both
        made is counted twice, and so are its messages."""
        sums = (a + b for a, b in zip(self[1:], later[1:], strict=True))
        return Counts(later.run or self.run, *sums)


NOTHING = Counts(0, 0, 0, 0, 0, 0, 0)
Done = Callable[[Counts], None]


def run(
    spark: SparkSession,
    events: Collection[Path],
    tables: Path,
    options: Options | None = None,
    progress: Progress = lambda _stage, _seconds: None,
    *,
    rows_max: int = bronze.ROWS_PER_RUN,
) -> Counts:
    """Finish what was begun, then take all that is new; says what both were together.

    Without options it takes those of the tables. Raises ConfigError for others than those.
    """
    finished = finish(spark, tables, options, progress)
    taken = take(spark, bronze.found(events), tables, options, progress, rows_max=rows_max)
    return finished.plus(taken)


def due(events: Collection[Path], tables: Path) -> bool:
    """Whether there is something new, or something unfinished; asks no Spark."""
    ledger = bronze.Ledger(tables)
    return unfinished(tables) or bool(ledger.new(bronze.found(events)))


def finish(
    spark: SparkSession,
    tables: Path,
    options: Options | None = None,
    progress: Progress = lambda _stage, _seconds: None,
) -> Counts:
    """Finish the last run, if it was interrupted; says what it was."""
    if not unfinished(tables):
        clear(tables)
        return NOTHING
    plan = bronze.Ledger(tables).planned()
    return _carry_out(spark, plan, tables, agree(tables, options), progress)


def take(
    spark: SparkSession,
    files: Iterable[Path],
    tables: Path,
    options: Options | None = None,
    progress: Progress = lambda _stage, _seconds: None,
    *,
    rows_max: int = bronze.ROWS_PER_RUN,
    done: Done = lambda _counts: None,
) -> Counts:
    """Take those of the files that no run took, in as many runs as their rows need; says what they
    were together, and after each what that was."""
    ledger = bronze.Ledger(tables)
    left = ledger.new(files)
    if not left:
        return NOTHING
    options = agree(tables, options)
    every = NOTHING
    while (plan := ledger.plan(left, rows_max)) is not None:
        if plan.files:
            counts = _carry_out(spark, plan, tables, options, progress)
        else:
            counts = NOTHING._replace(spoiled=plan.spoiled)
        done(counts)
        every = every.plus(counts)
    return every


def _carry_out(
    spark: SparkSession, plan: bronze.Plan, tables: Path, options: Options, progress: Progress
) -> Counts:
    """Make all tables; if that fails because of files that cannot be read, without those. Once all
    are read it is not because of them, whatever became of them since."""
    ledger = bronze.Ledger(tables)
    while True:
        try:
            return _make(spark, plan, tables, options, progress)
        except (PySparkException, Py4JError):
            if has_packs(tables, plan.run) or not ledger.spoil(plan):
                raise
        plan = ledger.planned()


def _make(
    spark: SparkSession, plan: bronze.Plan, tables: Path, options: Options, progress: Progress
) -> Counts:
    clock = SystemClock()
    written = {}
    with _settings(spark, _settings_of(plan)):
        begun = clock.monotonic()
        with _settings(spark, _PACKS):
            making = Making(spark, plan, tables, options)
        progress("plan", clock.monotonic() - begun)
        for name in making.ORDER:
            begun = clock.monotonic()
            with _settings(spark, _PACKS if name in making.OF_PACKS else {}):
                written[name] = making.make(name)
            progress(name, clock.monotonic() - begun)
        making.finish()
    return Counts(
        run=plan.run,
        files=len(plan.files),
        events=plan.rows,
        quarantined=written["quarantine"],
        hours=len(making.hours),
        paths=written["paths"],
        spoiled=plan.spoiled,
    )


# Packs are large: Python is given one at a time.
_PACKS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "1"}


def _settings_of(plan: bronze.Plan) -> dict[str, str]:
    """What a run needs of a session, whoever's it is."""
    return {
        "spark.sql.shuffle.partitions": str(max(2, min(200, plan.rows // ROWS_PER_TASK))),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # With any other limit Spark adds up the size of all columns after every row, which takes
        # ten times as long as the rows themselves.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        # All tables but paths have few rows, which fit into a hash table.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    }


@contextmanager
def _settings(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings for a while; as they were afterwards."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
