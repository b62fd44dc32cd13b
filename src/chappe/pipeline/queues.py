"""Queues: what came into each, what went out and how, what is in it, and how old it gets there."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from chappe.pipeline.silver import QUEUE_KINDS, hour_of, window_of
from chappe.pipeline.sketch import bucket_of, gathered, percentile

_KEYS = ["app", "queue", "window"]
_AGES = "what = 'lent' and bucket is not null"


def flows(paths: DataFrame) -> DataFrame:
    """What happened in queues, by the minute in which it did; `finished` when all groups that were
    handed a message are done with it."""
    queued = paths.where("family = 'queue'").select(
        "hour", "app", fn.col("target").alias("queue"), "ready", "open", "hops"
    )
    hops = queued.select("hour", "app", "queue", "ready", fn.explode("hops").alias("h"))
    time = fn.col("h.at") + fn.col("h.shift")
    first = (fn.col("h.kind") == "lent") & (fn.coalesce("h.attempt", fn.lit(1)) == 1)
    age = fn.when(first, fn.greatest(time - fn.col("ready"), fn.lit(0)))
    happened = hops.select(
        "hour",
        "app",
        "queue",
        fn.col("h.kind").alias("what"),
        window_of(time).alias("window"),
        bucket_of(age).alias("bucket"),
        fn.when(first, fn.col("ready")).alias("frontier"),
        age.alias("age"),
    )
    done = fn.expr(
        "array_max(transform(filter(hops, "
        "h -> h.kind in ('acked', 'died', 'cancelled', 'purged')), h -> h.at + h.shift))"
    )
    nothing = fn.lit(None)
    finished = queued.where("not open and ready is not null").select(
        "hour",
        "app",
        "queue",
        fn.lit("finished").alias("what"),
        window_of(done).alias("window"),
        nothing.cast("int").alias("bucket"),
        nothing.cast("long").alias("frontier"),
        nothing.cast("long").alias("age"),
    )
    return (
        happened.unionByName(finished)
        .groupBy("hour", "app", "queue", "what", "window", "bucket")
        .agg(
            fn.count("*").alias("count"),
            fn.max("frontier").alias("frontier"),
            fn.max("age").alias("max"),
        )
    )


def queues(flows: DataFrame, since_us: int) -> DataFrame:
    """Rows by queue and minute from a time on; `lag` is what is in it at the minute's end."""
    change = (
        fn.when(fn.col("what") == "stored", fn.col("count"))
        .when(fn.col("what") == "finished", -fn.col("count"))
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
    sizes = after.where(_AGES).withColumn("scaled", fn.col("count"))
    ages = gathered(sizes, _KEYS).select(
        *_KEYS, percentile(0.5).alias("age_p50"), percentile(0.99).alias("age_p99")
    )
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
