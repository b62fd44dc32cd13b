"""Times added up over rows of `latency`, without Spark: buckets are counts, and counts add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.report.span import Span
from chappe.pipeline.report.tally import Tally
from chappe.pipeline.sketch import time_of

# What of the table is looked at.
COLUMNS: Final = ("family", "hop", "role", "window", "buckets")
_KEYS: Final = ["family", "hop", "role", "step"]
_TIMES: Final = pa.schema(
    [
        *((name, pa.string()) for name in _KEYS[:-1]),
        *(("step", pa.int64()), ("bucket", pa.int32()), ("count", pa.int64())),
    ]
)


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


def flattened(latency: Iterable[pa.Table], span: Span) -> pa.Table:
    """All times as rows of `family`, `hop`, `role`, `step`, `bucket` and `count`.

    Made piece by piece, so that it takes as much memory as steps and buckets do, and not as all
    minutes of a year.
    """
    tally = Tally([*_KEYS, "bucket"], {"count": "sum"})
    for part in latency:
        tally.add(_exploded(span.stepped(part), _KEYS))
    return tally.table(_TIMES)


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
