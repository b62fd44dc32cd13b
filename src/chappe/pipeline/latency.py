"""Latency: how long steps took, by hop, role, app and minute of birth."""

from __future__ import annotations

from pyspark.sql import DataFrame

from chappe.pipeline.sketch import gathered, percentile

_KEYS = ["hour", "app", "family", "hop", "role", "window"]


def latency(steps: DataFrame) -> DataFrame:
    """Percentiles of steps, with the counts that they are from."""
    return gathered(steps.where("bucket is not null"), _KEYS).withColumns(
        {
            "p50": percentile(0.5),
            "p90": percentile(0.9),
            "p99": percentile(0.99),
            "p999": percentile(0.999),
        }
    )
