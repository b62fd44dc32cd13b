"""Latency: how long steps took, by hop, role, app and minute of birth."""

from __future__ import annotations

import pyarrow as pa

from chappe.pipeline.sketch import gathered, percentiles_of

_KEYS = ("app", "family", "hop", "role", "window")
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def latency(steps: pa.Table) -> pa.Table:
    """Percentiles of an hour's steps, with the counts that they are from."""
    return percentiles_of(gathered(steps, _KEYS, ["scaled"], ["max"]), _SHARES)
