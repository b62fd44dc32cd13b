"""The stream: runs of the same job, as files come.

Spark's file source says which files are new; for each of its batches a run takes those. What it
remembers in its checkpoint and the ledger may differ after a crash, and it is the ledger that
counts: a batch that comes again has nothing new.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery

from chappe.errors import ConfigError
from chappe.pipeline.job import Progress, finish, take
from chappe.pipeline.options import Options
from chappe.pipeline.schema import EVENT


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

    Raises ConfigError over Spark Connect: there the batches would be handled by the server, which
    knows nothing of this package.
    """
    if not isinstance(spark, SparkSession):
        raise ConfigError("--stream: not over Spark Connect; run it where Spark's driver is")
    finish(spark, tables, options, progress)

    def taken(batch: DataFrame, _number: int) -> None:
        names = batch.select("file").distinct().collect()
        files = [Path(unquote(urlparse(row["file"]).path)) for row in names]
        take(batch.sparkSession, files, tables, options, progress)

    sources = [
        spark.readStream.schema(EVENT)
        .option("maxFilesPerTrigger", files_per_run)
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .parquet(str(folder.absolute()))
        .select(fn.col("_metadata.file_path").alias("file"))
        for folder in sorted(events)
    ]
    writer = (
        functools.reduce(DataFrame.unionByName, sources)
        .writeStream.foreachBatch(taken)
        .option("checkpointLocation", str(tables.absolute() / "_stream"))
    )
    if interval_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_s} seconds").start()
