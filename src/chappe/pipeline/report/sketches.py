"""Times added up over rows of `latency`, without Spark: buckets are counts, and counts add up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.columns import Longs, changes, longs, ranks, whole
from chappe.pipeline.report.span import Span
from chappe.pipeline.report.tally import Tally
from chappe.pipeline.sketch import time_of

# What of the table is looked at.
COLUMNS: Final = ("family", "hop", "role", "window", "buckets")
_COUNTED: Final = ("bucket", "count")
_KEYS: Final = ["family", "hop", "role", "step"]
_TIMES: Final = pa.schema(
    [
        *((name, pa.string()) for name in _KEYS[:-1]),
        *(("step", pa.int64()), ("bucket", pa.int32()), ("count", pa.int64())),
    ]
)


class Sketch(NamedTuple):
    """How often each bucket came up, in order."""

    buckets: Longs
    counts: Longs

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def percentile_ms(self, share: float) -> float | None:
        """The time that this share of all was within; None of nothing."""
        if not self.total:
            return None
        place = np.searchsorted(np.cumsum(self.counts), share * self.total)
        return time_of(int(self.buckets[place])) / 1000

    def slower(self) -> tuple[list[float], list[float]]:
        """Times in milliseconds, and which share of all took longer than each."""
        total, left = self.total, self.total
        xs, ys = [], []
        for bucket, count in zip(self.buckets.tolist(), self.counts.tolist(), strict=True):
            xs.append(time_of(bucket) / 1000)
            ys.append(left / total)
            left -= count
        return xs, ys


NOTHING: Final = Sketch(np.zeros(0, np.int64), np.zeros(0, np.int64))


def flattened(latency: Iterable[pa.Table], span: Span) -> pa.Table:
    """All times as rows of `family`, `hop`, `role`, `step`, `bucket` and `count`.

    Made piece by piece, so that it takes as much memory as steps and buckets do, and not as all
    minutes of a year.
    """
    tally = Tally([*_KEYS, "bucket"], {"count": "sum"})
    for part in latency:
        tally.add(exploded(span.stepped(part), _KEYS))
    return tally.table(_TIMES)


def sketches(times: pa.Table, keys: Sequence[str]) -> dict[tuple[Any, ...], Sketch]:
    """The sketch of all times with the same keys, for each of them."""
    rows = _summed(times, list(keys))
    rows = rows.sort_by([(name, "ascending") for name in (*keys, "bucket")])
    if not rows.num_rows:
        return {}
    starts = np.flatnonzero(changes(*(_numbers(whole(rows[name])) for name in keys)))
    firsts = rows.take(pa.array(starts))
    buckets, counts = (np.split(longs(whole(rows[name])), starts[1:]) for name in _COUNTED)
    found = zip(*(firsts[name].to_pylist() for name in keys), strict=True)
    return dict(zip(found, map(Sketch, buckets, counts), strict=True))


def _numbers(column: pa.Array) -> Longs:
    return ranks(column)[0][0] if pa.types.is_string(column.type) else longs(column)


def _summed(rows: pa.Table, keys: list[str]) -> pa.Table:
    summed = rows.group_by([*keys, "bucket"]).aggregate([("count", "sum")])
    names = ["count" if name == "count_sum" else name for name in summed.column_names]
    return summed.rename_columns(names).select([*keys, "bucket", "count"])


def exploded(table: pa.Table, keys: list[str]) -> pa.Table:
    """A row for each bucket of each row."""
    lists = table["buckets"].combine_chunks()
    parents, flat = pc.list_parent_indices(lists), pc.list_flatten(lists)
    rows = table.select(keys).take(parents)
    for name in _COUNTED:
        rows = rows.append_column(name, pc.struct_field(flat, name))
    return rows
