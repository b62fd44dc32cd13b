"""Delivery: which share of messages got where it should, and within the time that was promised."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from chappe.pipeline.options import Options
from chappe.pipeline.silver import window_of


def delivery(paths: DataFrame, options: Options) -> DataFrame:
    """Counts by app, family and minute of birth.

    A message that had no receivers, as one to a topic without subscribers, was promised to nobody
    and is not counted, nor one that was taken back. One that waits in a queue is counted, and not
    yet delivered.
    """
    travels = fn.col("family").isin("send", "topic")
    reaches = fn.col("delivered").isNotNull() | fn.col("open") | fn.col("vain")
    counted = paths.where(
        fn.when(travels, reaches).otherwise((fn.col("family") != "other") & ~fn.col("cancelled"))
    )
    whole = fn.col("delivered").isNotNull() & fn.when(
        travels, ~fn.col("open") & ~fn.col("vain")
    ).otherwise(fn.lit(True))
    took = fn.when(fn.col("family") == "queue", fn.col("lent") - fn.col("ready")).otherwise(
        fn.col("delivered") - fn.col("born")
    )
    promised = fn.when(fn.col("family") == "queue", options.queue_sla_ms * 1000).otherwise(
        options.sla_ms * 1000
    )
    judged = counted.select(
        "hour",
        "app",
        "family",
        "share",
        window_of(fn.col("born")).alias("window"),
        whole.alias("whole"),
        (whole & (took <= promised)).alias("timely"),
    )
    summed = judged.groupBy("hour", "app", "family", "window").agg(
        fn.count("*").alias("messages"),
        fn.sum(fn.col("whole").cast("long")).alias("delivered"),
        fn.sum(fn.coalesce(fn.col("timely"), fn.lit(False)).cast("long")).alias("in_time"),
        fn.sum(1 / fn.col("share")).alias("scaled"),
    )
    return summed.withColumns(
        {
            "ratio": fn.col("delivered") / fn.col("messages"),
            "ratio_in_time": fn.col("in_time") / fn.col("messages"),
        }
    )
