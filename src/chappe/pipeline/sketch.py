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
    """The bucket of a time; what took less than a microsecond, by whatever clock, took one."""
    return fn.round(fn.log(fn.greatest(us, fn.lit(1)).cast("double")) / WIDTH).cast("int")


def gathered(rows: DataFrame, keys: list[str]) -> DataFrame:
    """Rows of `bucket`, `count`, `scaled` and `max` of the same keys in one: `buckets` in order,
    `count`, `scaled` and `max` of all."""
    summed = rows.groupBy(*keys, "bucket").agg(
        fn.sum("count").alias("count"), fn.sum("scaled").alias("scaled"), fn.max("max").alias("max")
    )
    return summed.groupBy(*keys).agg(
        fn.sort_array(fn.collect_list(fn.struct("bucket", "count"))).alias("buckets"),
        fn.sum("count").alias("count"),
        fn.sum("scaled").alias("scaled"),
        fn.max("max").alias("max"),
    )


def percentile(share: float) -> Column:
    """The time that this share of all was within, of what was gathered; null of nothing."""
    found = fn.expr(
        f"""aggregate(buckets,
            struct(cast(ceil({share} * count) as bigint) as left, -1 as at),
            (s, b) -> case when s.at >= 0 then s
                           when s.left <= b.count then struct(0L as left, b.bucket as at)
                           else struct(s.left - b.count as left, -1 as at) end,
            s -> s.at)"""
    )
    return fn.exp(found * fn.lit(WIDTH))
