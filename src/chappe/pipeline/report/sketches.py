"""Times added up over rows of `latency`, without Spark: buckets are counts, and counts add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.report.span import Span
from chappe.pipeline.sketch import time_of

# Rows of the table that are taken apart at a time; each has up to a few hundred buckets.
_PIECE: Final = 8192


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


def flattened(latency: pa.Table, span: Span) -> pa.Table:
    """All times as rows of `family`, `hop`, `role`, `step`, `bucket` and `count`.

    Made piece by piece, so that it takes as much memory as steps and buckets do, and not as all
    minutes of a year.
    """
    keys = ["family", "hop", "role", "step"]
    whole = span.stepped(latency).select([*keys, "buckets"])
    summed = pa.schema(
        [*(whole.schema.field(key) for key in keys), ("bucket", pa.int32()), ("count", pa.int64())]
    ).empty_table()
    for batch in whole.to_batches(max_chunksize=_PIECE):
        rows = _exploded(pa.Table.from_batches([batch]), keys)
        summed = _summed(pa.concat_tables([summed, _summed(rows, keys)]), keys)
    return summed


def sketches(times: pa.Table, keys: Sequence[str]) -> dict[tuple[Any, ...], Sketch]:
    """The sketch of all times with the same keys, for each of them."""
    rows = _summed(times, list(keys))
    rows = rows.sort_by([(name, "ascending") for name in (*keys, "bucket")])
    found: dict[tuple[Any, ...], Sketch] = {}
    columns = [rows[name].to_pylist() for name in (*keys, "bucket", "count")]
    for *key, bucket, count in zip(*columns, strict=True):
        sketch = found.setdefault(tuple(key), Sketch([], []))
        sketch.buckets.append(bucket)
        sketch.counts.append(count)
    return found


def _summed(rows: pa.Table, keys: list[str]) -> pa.Table:
    summed = rows.group_by([*keys, "bucket"]).aggregate([("count", "sum")])
    names = ["count" if name == "count_sum" else name for name in summed.column_names]
    return summed.rename_columns(names).select([*keys, "bucket", "count"])


def _exploded(table: pa.Table, keys: list[str]) -> pa.Table:
    """A row for each bucket of each row."""
    lists = table["buckets"].combine_chunks()
    parents, flat = pc.list_parent_indices(lists), pc.list_flatten(lists)
    rows = table.select(keys).take(parents)
    for name in ("bucket", "count"):
        rows = rows.append_column(name, pc.struct_field(flat, name))
    return rows
