"""Queues: what came into each, what went out and how, what is in it, and how old it gets there."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from chappe.pipeline.hours import hour_of, window_of
from chappe.pipeline.silver import QUEUE_KINDS
from chappe.pipeline.sketch import percentiles

_KEYS = ["app", "queue", "window"]
_AGES = "what = 'lent' and bucket is not null"


def flows(happened: pa.Table) -> pa.Table:
    """What happened in queues to an hour's messages, by the minute in which it did; `finished` when
    all groups that were handed a message are done with it."""
    keys = ["app", "queue", "what", "window", "bucket"]
    largest = ("frontier", "max")
    return (
        happened.group_by(keys, use_threads=False)
        .aggregate([("count", "sum"), *((name, "max") for name in largest)])
        .rename_columns([*keys, "count", *largest])
    )


def of_queues(events: DataFrame) -> DataFrame:
    """What happened to many messages at once, as flows: dead letters were thrown away, a queue was
    removed with all that it had."""
    thrown = events.where("kind = 'removed' or (kind = 'purged' and message is null)")
    nothing = fn.lit(None)
    return thrown.groupBy(
        "hour",
        "app",
        fn.col("target").alias("queue"),
        window_of(fn.col("at")).alias("window"),
        fn.col("kind").alias("what"),
    ).agg(
        nothing.cast("int").alias("bucket"),
        fn.sum("n").alias("count"),
        nothing.cast("long").alias("frontier"),
        nothing.cast("long").alias("max"),
    )


def queues(flows: DataFrame, since_us: int) -> DataFrame:
    """Rows by queue and minute from a time on; `lag` is what is in it at the minute's end."""
    change = (
        fn.when(fn.col("what").isin("stored", "replayed"), fn.col("count"))
        .when(fn.col("what").isin("finished", "removed"), -fn.col("count"))
        .otherwise(0)
    )
    changes = flows.withColumn("change", change)
    before = changes.where(fn.col("window") < since_us).groupBy("app", "queue")
    begun = before.agg(fn.sum("change").alias("begun"))
    after = changes.where(fn.col("window") >= since_us)
    counts = [
        fn.sum(fn.when(fn.col("what") == kind, fn.col("count")).otherwise(0)).alias(kind)
        for kind in QUEUE_KINDS
    ]
    summed = after.groupBy(*_KEYS).agg(
        *counts,
        fn.sum("change").alias("change"),
        fn.max(fn.when(fn.col("what") == "lent", fn.col("max"))).alias("age_max"),
    )
    sizes = after.where(_AGES).groupBy(*_KEYS, "bucket").agg(fn.sum("count").alias("count"))
    size = fn.sort_array(fn.collect_list(fn.struct("bucket", "count")))
    sized = sizes.groupBy(*_KEYS).agg(size.alias("buckets"))
    ages = percentiles(sized, age_p50=0.5, age_p99=0.99).drop("buckets")
    upto = (
        Window.partitionBy("app", "queue")
        .orderBy("window")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    joined = summed.join(ages, _KEYS, "left").join(begun, ["app", "queue"], "left")
    return joined.withColumns(
        {
            "hour": hour_of(fn.col("window")),
            "lag": fn.sum("change").over(upto) + fn.coalesce("begun", fn.lit(0)),
        }
    )


def frontiers(flows: DataFrame) -> DataFrame:
    """Of each queue how young the youngest message is that was ever handed out."""
    return flows.groupBy("app", fn.col("queue").alias("target")).agg(
        fn.max("frontier").alias("frontier")
    )
