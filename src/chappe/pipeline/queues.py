"""Queues: what came into each, what went out and how, what is in it, and how old it gets there."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from chappe.pipeline.paths import DONE
from chappe.pipeline.silver import QUEUE_KINDS, hour_of, window_of
from chappe.pipeline.sketch import bucket_of, gathered, percentiles

_KEYS = ["app", "queue", "window"]
_PATH = ("hour", "message", "label")
_AGES = "what = 'lent' and bucket is not null"


def flows(paths: DataFrame, odd: DataFrame) -> DataFrame:
    """What happened in queues, by the minute in which it did; `finished` when all groups that were
    handed a message are done with it."""
    plain = paths.where("plain and family = 'queue'")
    others = odd.where("not plain and family = 'queue'")
    rows = _of_plain(plain).unionByName(_of_hops(others)).unionByName(_finished(others))
    return (
        rows.where("time is not null")
        .withColumns({"window": window_of(fn.col("time")), "bucket": bucket_of(fn.col("age"))})
        .groupBy("hour", "app", "queue", "what", "window", "bucket")
        .agg(
            fn.count("*").alias("count"),
            fn.max("frontier").alias("frontier"),
            fn.max("age").alias("max"),
        )
    )


def _of_plain(plain: DataFrame) -> DataFrame:
    age = fn.greatest(fn.col("lent") - fn.col("ready"), fn.lit(0))
    told = fn.array(
        _happened("stored", fn.col("stored")),
        _happened("lent", fn.col("lent"), age, fn.col("ready")),
        _happened("acked", fn.col("delivered")),
        _happened("finished", fn.col("delivered")),
    )
    queue = fn.col("target").alias("queue")
    return plain.select("hour", "app", queue, fn.explode(told).alias("told")).select(
        "hour", "app", "queue", "told.*"
    )


def _happened(
    what: str, time: Column, age: Column | None = None, frontier: Column | None = None
) -> Column:
    nothing = fn.lit(None).cast("long")
    return fn.struct(
        fn.lit(what).alias("what"),
        time.alias("time"),
        (nothing if age is None else age).alias("age"),
        (nothing if frontier is None else frontier).alias("frontier"),
    )


def _hops(odd: DataFrame) -> DataFrame:
    """Hops with `span`: how often it was replayed before, and when the span began."""
    hops = odd.select(
        *_PATH, "app", fn.col("target").alias("queue"), "ready", fn.explode("hops").alias("h")
    ).withColumn("time", fn.col("h.at") + fn.col("h.shift"))
    upto = Window.partitionBy(*_PATH).orderBy("time", "h.node", "h.boot", "h.serial")
    replayed = fn.col("h.kind") == "replayed"
    return hops.withColumns(
        {
            "span": fn.sum(replayed.cast("int")).over(upto),
            "begun": fn.greatest(
                fn.max(fn.when(replayed, fn.col("time"))).over(upto), fn.col("ready")
            ),
        }
    )


def _of_hops(odd: DataFrame) -> DataFrame:
    first = (fn.col("h.kind") == "lent") & (fn.coalesce("h.attempt", fn.lit(1)) == 1)
    return _hops(odd).select(
        "hour",
        "app",
        "queue",
        fn.col("h.kind").alias("what"),
        "time",
        fn.when(first, fn.greatest(fn.col("time") - fn.col("begun"), fn.lit(0))).alias("age"),
        fn.when(first, fn.col("ready")).alias("frontier"),
    )


def _finished(odd: DataFrame) -> DataFrame:
    """Ends: a group is done first when it acknowledges a message or it dies; all groups that were
    handed it are. Replayed, it begins anew."""
    kind, time = fn.col("h.kind"), fn.col("time")
    groups = _hops(odd).groupBy(*_PATH, "app", "queue", "span", "h.group_name")
    done = groups.agg(
        fn.min(fn.when(fn.expr(DONE), time)).alias("done"),
        fn.min(fn.when(kind == "cancelled", time)).alias("cancelled"),
        fn.max(kind == "lent").alias("lent"),
    )
    ends = done.groupBy(*_PATH, "app", "queue", "span").agg(
        fn.max("done").alias("done"),
        fn.min("cancelled").alias("cancelled"),
        fn.max(fn.col("lent") & fn.col("done").isNull()).alias("waits"),
    )
    end = fn.coalesce("cancelled", fn.when(~fn.col("waits"), fn.col("done")))
    nothing = fn.lit(None).cast("long")
    return ends.select(
        "hour",
        "app",
        "queue",
        fn.lit("finished").alias("what"),
        end.alias("time"),
        nothing.alias("age"),
        nothing.alias("frontier"),
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
    sizes = after.where(_AGES).groupBy(*_KEYS, "bucket")
    counts_of = sizes.agg(
        fn.sum("count").alias("count"),
        fn.sum("count").alias("scaled"),
        fn.max("max").alias("max"),
    )
    ages = percentiles(gathered(counts_of, _KEYS), age_p50=0.5, age_p99=0.99).select(
        *_KEYS, "age_p50", "age_p99"
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
