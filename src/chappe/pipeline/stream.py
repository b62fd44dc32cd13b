"""The stream: runs of the same job, as files come.

Spark's file source says which files are new; for each of its batches a run takes those. What it
remembers in its checkpoint and the ledger may differ after a crash, and it is the ledger that
counts: a batch that comes again has nothing new.

Over Spark Connect batches are handled by a process of the server, which needs this package, too;
the client hears of a batch when it is done.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote, urlparse

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from chappe.pipeline.job import Progress, finish, take
from chappe.pipeline.options import Options
from chappe.pipeline.schema import EVENT
from chappe.pipeline.session import SparkFailed, told
from chappe.pipeline.tether import Tether


def stream(
    spark: SparkSession,
    events: Collection[Path],
    tables: Path,
    options: Options | None = None,
    *,
    interval_s: float | None = None,
    files_per_run: int = 10_000,
    progress: Progress = lambda _stage, _seconds: None,
) -> StreamingQuery:
    """Begin to take files as they come: those that are there now, or every so many seconds.

    Spark remembers files for a week, and passes over those that come with a time before that; a run
    that is no stream takes them.
    """
    finish(spark, tables, options, progress)
    sources = [_files(spark, folder, files_per_run) for folder in sorted(events)]
    writer = functools.reduce(lambda one, other: one.unionByName(other), sources).writeStream
    writer = writer.option("checkpointLocation", str(tables.absolute() / "_stream"))
    if is_remote():
        spark.streams.addListener(_Teller(progress))
        # Nothing that is only here: all of it is sent to the server.
        there = functools.partial(_take_there, tether=Tether.tie(tables), options=options)
        writer = writer.foreachBatch(there)
    else:
        here = functools.partial(_take, tables=tables, options=options, progress=progress)
        writer = writer.foreachBatch(here)
    if interval_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_s} seconds").start()


def _files(spark: SparkSession, folder: Path, files_per_run: int) -> DataFrame:
    """The file of each row that comes."""
    return (
        spark.readStream.schema(EVENT)
        .option("maxFilesPerTrigger", files_per_run)
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .parquet(str(folder.absolute()))
        .select(fn.col("_metadata.file_path").alias("file"))
    )


def _take(
    batch: DataFrame,
    _number: int,
    *,
    tables: Path,
    options: Options | None,
    progress: Progress = lambda _stage, _seconds: None,
) -> None:
    names = batch.select("file").distinct().collect()
    files = [Path(unquote(urlparse(row["file"]).path)) for row in names]
    try:
        take(batch.sparkSession, files, tables, options, progress)
    except (PySparkException, Py4JError) as error:
        # In short: Spark looks through the whole text of what is raised here, and one that quotes
        # Java at length is more than it can bear.
        raise SparkFailed(told(error)) from None


def _take_there(batch: DataFrame, number: int, *, tether: Tether, options: Options | None) -> None:
    """Take a batch at the server, as long as there is a client."""
    with tether.batch():
        _take(batch, number, tables=tether.tables, options=options)


class _Teller(StreamingQueryListener):
    """Tells of batches that a server of Connect has done."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802, Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802, Spark's name
        """Tell of a batch, unless there was nothing in it."""
        done = event.progress
        if done.numInputRows:
            self._progress(f"batch {done.batchId}", done.batchDuration / 1000)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802, Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802, Spark's name
        pass
