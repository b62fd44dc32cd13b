"""The stream: runs of the same job, as files come.

Spark's file source says which files are new; for each of its batches a run takes those. What it
remembers in its checkpoint and the ledger may differ after a crash, and it is the ledger that
counts: a batch that comes again has nothing new. A checkpoint is of one set of folders. With
another set another begins, which sees all files again, and the ledger knows what was taken.

Over Spark Connect batches are handled by a process of the server, which needs this package, too;
the client hears of a batch when it is done.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from chappe.pipeline.files import is_of
from chappe.pipeline.job import Counts, Done, Progress, finish, take
from chappe.pipeline.options import Options
from chappe.pipeline.session import SparkFailed, told
from chappe.pipeline.tether import Tether
from chappe.pipeline.upkeep import Upkeep

# What Spark says of a file without a look at what kind of file it is.
_FILE = "path string, modificationTime timestamp, length long, content binary"


class Stream:
    """A stream that has begun."""

    def __init__(self, query: StreamingQuery, tell: Callable[[], None]) -> None:
        self.query = query
        self._tell = tell

    def wait(self, meanwhile: Callable[[], None] = lambda: None, every_s: int = 60) -> None:
        """Wait for its end; meanwhile, do something every so many seconds, in this process wherever
        batches are handled. Raises what a batch failed with, or that."""
        try:
            while not self.query.awaitTermination(every_s):
                meanwhile()
        finally:
            self._tell()


def stream(
    spark: SparkSession,
    events: Collection[Path],
    tables: Path,
    options: Options | None = None,
    *,
    interval_s: float | None = None,
    files_per_run: int = 10_000,
    progress: Progress = lambda _stage, _seconds: None,
    done: Done = lambda _counts: None,
    upkeep: Upkeep | None = None,
) -> Stream:
    """Begin to take files as they come: those that are there now, or every so many seconds. Says of
    each run what it did.

    It keeps the tables small meanwhile, as it holds them: by `upkeep`, or as that does by itself.

    Spark remembers files for a week, and passes over those that come with a time before that; a run
    that is no stream takes them.
    """
    finished = finish(spark, tables, options, progress)
    if finished.run:
        done(finished)
    folders = sorted({folder.resolve() for folder in events})
    sources = [_files(spark, folder, files_per_run) for folder in folders]
    writer = functools.reduce(lambda one, other: one.unionByName(other), sources).writeStream
    writer = writer.option("checkpointLocation", str(_checkpoint(tables.absolute(), folders)))
    upkeep = upkeep or Upkeep(tables.absolute())
    # A batch that this process does tells of itself.
    tell: Callable[[], None] = _nothing
    if is_remote():
        tether = Tether.tie(tables)
        tell = _Reports(tether, done)
        spark.streams.addListener(_Teller(progress, tell))
        # Nothing that is only here: all of it is sent to the server.
        there = functools.partial(
            _take_there, folders=folders, tether=tether, options=options, upkeep=upkeep
        )
        writer = writer.foreachBatch(there)
    else:
        here = functools.partial(
            _take,
            folders=folders,
            tables=tables,
            options=options,
            upkeep=upkeep,
            progress=progress,
            done=done,
        )
        writer = writer.foreachBatch(here)
    if interval_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{interval_s} seconds")
    return Stream(writer.start(), tell)


def _nothing() -> None:
    pass


def _checkpoint(tables: Path, folders: Sequence[Path]) -> Path:
    """Where Spark remembers what it saw in these folders; what it knew of other sets is removed, as
    Spark goes on with none that has more or fewer."""
    name = hashlib.sha256("\0".join(map(str, folders)).encode()).hexdigest()[:16]
    root = tables / "_stream"
    for other in root.glob("*"):
        if other.is_dir() and other.name != name:
            shutil.rmtree(other)
        elif not other.is_dir():
            other.unlink()
    return root / name


def _files(spark: SparkSession, folder: Path, files_per_run: int) -> DataFrame:
    """The names of files that come. None is opened for that: one that cannot be read, or is gone
    when its turn comes, is for the run to note."""
    return (
        spark.readStream.format("binaryFile")
        .schema(_FILE)
        .option("maxFilesPerTrigger", files_per_run)
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .option("ignoreMissingFiles", "true")
        .load(str(folder.absolute()))
        .select("path")
    )


def _take(
    batch: DataFrame,
    _number: int,
    *,
    folders: Collection[Path],
    tables: Path,
    options: Options | None,
    upkeep: Upkeep,
    progress: Progress = lambda _stage, _seconds: None,
    done: Done,
) -> None:
    # Spark looks anywhere below the folders.
    every = (Path(row["path"].removeprefix("file:")) for row in batch.collect())
    files = [file for file in every if is_of(folders, file)]
    try:
        take(batch.sparkSession, files, tables, options, progress, done=done)
    except (PySparkException, Py4JError) as error:
        # In short: Spark looks through the whole text of what is raised here, and one that quotes
        # Java at length is more than it can bear.
        raise SparkFailed(told(error)) from None
    upkeep.maybe_keep()


def _take_there(
    batch: DataFrame,
    number: int,
    *,
    folders: Collection[Path],
    tether: Tether,
    options: Options | None,
    upkeep: Upkeep,
) -> None:
    """Take a batch at the server, as long as there is a client."""

    def report(counts: Counts) -> None:
        tether.report(counts.run, counts._asdict())

    tables = tether.tables
    with tether.batch():
        _take(
            batch,
            number,
            folders=folders,
            tables=tables,
            options=options,
            upkeep=upkeep,
            done=report,
        )


class _Reports:
    """Tells what a server of Connect has done since it was last told."""

    def __init__(self, tether: Tether, done: Done) -> None:
        self._tether = tether
        self._done = done
        # Whoever waits for the end and whoever hears of batches ask at the same time.
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            for did in self._tether.reports():
                self._done(Counts(**did))


class _Teller(StreamingQueryListener):
    """Tells of batches that a server of Connect has done."""

    def __init__(self, progress: Progress, tell: Callable[[], None]) -> None:
        self._progress = progress
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802, Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802, Spark's name
        """Tell of a batch, unless there was nothing in it."""
        done = event.progress
        if done.numInputRows:
            self._progress(f"batch {done.batchId}", done.batchDuration / 1000)
        self._tell()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802, Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802, Spark's name
        pass
