"""Latency: how long steps took, by hop, role, app and minute of birth."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from chappe.pipeline.sketch import gathered, percentile

_KEYS = ["hour", "app", "family", "hop", "role", "window"]


def latency(steps: DataFrame) -> DataFrame:
    """Percentiles of steps, with the counts that they are from."""
    timed = steps.where("bucket is not null")
    totals = timed.groupBy(*_KEYS).agg(
        fn.sum("count").alias("count"), fn.sum("scaled").alias("scaled"), fn.max("max").alias("max")
    )
    joined = totals.join(gathered(timed, _KEYS), _KEYS)
    return joined.withColumns(
        {
            "p50": percentile(0.5),
            "p90": percentile(0.9),
            "p99": percentile(0.99),
            "p999": percentile(0.999),
        }
    )
