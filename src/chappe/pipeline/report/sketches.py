"""Times added up over rows of `latency`, without Spark: buckets are counts, and counts add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.sketch import time_of


class Sketch(NamedTuple):
    """How often each bucket came up, in order."""

    buckets: list[int]
    counts: list[int]

    @property
    def total(self) -> int:
        return sum(self.counts)

    def percentile_ms(self, share: float) -> float | None:
        """The time that this share of all was within; None of nothing."""
        left = share * self.total
        for bucket, count in zip(self.buckets, self.counts, strict=True):
            left -= count
            if left <= 0:
                return time_of(bucket) / 1000
        return None

    def slower(self) -> tuple[list[float], list[float]]:
        """Times in milliseconds, and which share of all took longer than each."""
        total, left = self.total, self.total
        xs, ys = [], []
        for bucket, count in zip(self.buckets, self.counts, strict=True):
            xs.append(time_of(bucket) / 1000)
            ys.append(left / total)
            left -= count
        return xs, ys


def sketches(table: pa.Table, keys: Sequence[str]) -> dict[tuple[Any, ...], Sketch]:
    """The sketch of all rows with the same keys, for each of them."""
    rows = exploded(table, keys).group_by([*keys, "bucket"]).aggregate([("count", "sum")])
    rows = rows.sort_by([(name, "ascending") for name in (*keys, "bucket")])
    found: dict[tuple[Any, ...], Sketch] = {}
    columns = [rows[name].to_pylist() for name in (*keys, "bucket", "count_sum")]
    for *key, bucket, count in zip(*columns, strict=True):
        sketch = found.setdefault(tuple(key), Sketch([], []))
        sketch.buckets.append(bucket)
        sketch.counts.append(count)
    return found


def exploded(table: pa.Table, keys: Iterable[str]) -> pa.Table:
    """A row for each bucket of each row."""
    whole = table.combine_chunks()
    lists = whole["buckets"].combine_chunks()
    parents, flat = pc.list_parent_indices(lists), pc.list_flatten(lists)
    rows = whole.select(list(keys)).take(parents)
    for name in ("bucket", "count"):
        rows = rows.append_column(name, pc.struct_field(flat, name))
    return rows
