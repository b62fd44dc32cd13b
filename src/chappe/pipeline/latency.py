"""Latency: how long steps took, by hop, role, app and minute of birth."""

from __future__ import annotations

from pyspark.sql import DataFrame

from chappe.pipeline.sketch import counted, gathered, percentiles

_KEYS = ["hour", "app", "family", "hop", "role", "window"]


def latency(steps: DataFrame) -> DataFrame:
    """Percentiles of steps, with the counts that they are from."""
    return percentiles(
        gathered(counted(steps, _KEYS), _KEYS), p50=0.5, p90=0.9, p99=0.99, p999=0.999
    )
