"""Sketches: how often each size of a time came up, in buckets that add up.

A bucket is two per cent wide, so a percentile that is read from counts is wrong by one per cent at
most, however the counts were added up: by minute, by hour, over nodes. (Sketches that Spark brings
were wrong by a third for the last per mille.)
"""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

WIDTH = math.log(1.02)
# A time is wrong by no more than this share of it.
ERROR = math.sqrt(1.02) - 1


def time_of(bucket: int) -> float:
    """The time, in microseconds, that a bucket stands for."""
    return math.exp(bucket * WIDTH)


def bucket_of(us: Column) -> Column:
    """The bucket of a time, null of none; what took less than a microsecond, by whatever clock,
    took one."""
    bucket = fn.round(fn.log(fn.greatest(us, fn.lit(1)).cast("double")) / WIDTH).cast("int")
    return fn.when(us.isNotNull(), bucket)


def counted(rows: DataFrame, keys: list[str]) -> DataFrame:
    """Rows of `us` and `share` as counts of the same keys and bucket."""
    return (
        rows.withColumn("bucket", bucket_of(fn.col("us")))
        .groupBy(*keys, "bucket")
        .agg(
            fn.count("*").alias("count"),
            fn.sum(1 / fn.col("share")).alias("scaled"),
            fn.max("us").alias("max"),
        )
    )


def gathered(counts: DataFrame, keys: list[str]) -> DataFrame:
    """Rows of `bucket`, `count`, `scaled` and `max`, once for each key and bucket, in one row for
    each key: `buckets` in order, `count`, `scaled` and `max` of all."""
    return counts.groupBy(*keys).agg(
        fn.sort_array(fn.collect_list(fn.struct("bucket", "count"))).alias("buckets"),
        fn.sum("count").alias("count"),
        fn.sum("scaled").alias("scaled"),
        fn.max("max").alias("max"),
    )


def percentiles(gathered: DataFrame, **shares: float) -> DataFrame:
    """What was gathered, with the time that each share of all was within."""
    # One walk over the buckets for all shares: a share is null before the bucket that it is in.
    start = "".join(f", '{name}', cast(null as int)" for name in shares)
    onward = "".join(
        f", '{name}', coalesce(s.{name}, if(s.upto + b.count >= ceil({share}D * count), "
        "b.bucket, null))"
        for name, share in shares.items()
    )
    walked = fn.expr(
        f"aggregate(buckets, named_struct('upto', 0L{start}), "
        f"(s, b) -> named_struct('upto', s.upto + b.count{onward}))"
    )
    times = {name: fn.exp(fn.col(f"walked.{name}") * fn.lit(WIDTH)) for name in shares}
    return gathered.withColumn("walked", walked).withColumns(times).drop("walked")
