"""Delivery: which share of messages got where it should, and within the time that was promised."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_KEYS = ["app", "family", "window"]
_COUNTS = ["messages", "delivered", "in_time", "scaled"]


def delivery(counts: pa.Table) -> pa.Table:
    """An hour's counts by app, family and minute of birth."""
    summed = counts.group_by(_KEYS, use_threads=False).aggregate([(n, "sum") for n in _COUNTS])
    summed = summed.rename_columns([*_KEYS, *_COUNTS])
    messages = summed["messages"].cast(pa.float64())
    for name, part in (("ratio", "delivered"), ("ratio_in_time", "in_time")):
        summed = summed.append_column(name, pc.divide(summed[part], messages))
    return summed
