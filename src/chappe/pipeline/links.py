"""Links: what one node handed to another, what came and how long it took, when a link was down."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from chappe.pipeline.hours import HOUR_US, MINUTE_US, hour_of, window_of
from chappe.pipeline.sketch import gathered, percentiles_of

_KEYS = ["hour", "node", "peer", "window"]


def links(travels: DataFrame, events: DataFrame) -> DataFrame:
    """Rows by pair and minute; of events also those of the hour before, in which a link may have
    gone down. Who wants certain hours takes those."""
    parts = travels.unionByName(_beats(events), allowMissingColumns=True)
    parts = parts.unionByName(_downs(events), allowMissingColumns=True)
    counts = ["handed", "arrived", "beats", "ups", "downs", "down_us"]
    every = [*counts, "round_trip", "ahead", "delay_p50", "delay_p99"]
    summed = parts.groupBy(*_KEYS).agg(*[fn.max(name).alias(name) for name in every])
    return summed.withColumns(
        {
            "success": fn.try_divide(fn.col("arrived"), fn.col("handed")),
            **{name: fn.coalesce(name, fn.lit(0).cast("long")) for name in counts},
        }
    )


def travels(ways: pa.Table) -> pa.Table:
    """Of an hour's messages: what was handed from node to node, what of it came, and how long that
    took."""
    counts = gathered(ways, ("node", "peer", "window"), ["handed"])
    delays = percentiles_of(counts, {"delay_p50": 0.5, "delay_p99": 0.99})
    return delays.drop_columns("buckets").rename_columns({"count": "arrived"})


def _beats(events: DataFrame) -> DataFrame:
    kind = fn.col("kind")
    of_links = events.where(kind.isin("link", "link_up", "link_down"))
    by_minute = of_links.withColumn("window", window_of(fn.col("at"))).groupBy(*_KEYS)
    return by_minute.agg(
        fn.sum((kind == "link").cast("long")).alias("beats"),
        fn.median("round_trip").cast("long").alias("round_trip"),
        fn.median("ahead").cast("long").alias("ahead"),
        fn.sum((kind == "link_up").cast("long")).alias("ups"),
        fn.sum((kind == "link_down").cast("long")).alias("downs"),
    )


def _downs(events: DataFrame) -> DataFrame:
    """From each end of a link to its next begin, cut into minutes; the last, to the end of what its
    node tells."""
    told = events.groupBy("node").agg(fn.max("at").alias("told"))
    order = Window.partitionBy("node", "peer").orderBy("at", "boot", "serial")
    changes = events.where("kind in ('link_up', 'link_down')").select(
        "node", "peer", "kind", "at", "boot", "serial"
    )
    spans = (
        changes.withColumn("until", fn.lead("at").over(order))
        .join(fn.broadcast(told), "node")
        .where("kind = 'link_down'")
        .withColumn("until", fn.least(fn.coalesce("until", "told"), fn.col("at") + 2 * HOUR_US))
        .where("until > at")
    )
    first, last = window_of(fn.col("at")), window_of(fn.col("until") - 1)
    minutes = spans.withColumn("window", fn.explode(fn.sequence(first, last, fn.lit(MINUTE_US))))
    down = fn.least("until", fn.col("window") + MINUTE_US) - fn.greatest("at", "window")
    return (
        minutes.withColumn("hour", hour_of(fn.col("window")))
        .groupBy(*_KEYS)
        .agg(fn.sum(down).cast("long").alias("down_us"))
    )
