"""Sketches: how often each size of a time came up, in buckets that add up.

A bucket is two per cent wide, so a percentile that is read from counts is wrong by one per cent at
most, however the counts were added up: by minute, by hour, over nodes. (Sketches that Spark brings
were wrong by a third for the last per mille.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.columns import Longs, changes, grouped, longs, ranks, whole

WIDTH = math.log(1.02)
# A time is wrong by no more than this share of it.
ERROR = math.sqrt(1.02) - 1


def time_of(bucket: int) -> float:
    """The time, in microseconds, that a bucket stands for."""
    return math.exp(bucket * WIDTH)


def buckets_of(us: Longs) -> npt.NDArray[np.int32]:
    """The buckets of times; what took less than a microsecond, by whatever clock, took one. That of
    NONE is some bucket."""
    return np.floor(np.log(np.maximum(us, 1)) / WIDTH + 0.5).astype(np.int32)


def gathered(
    counts: pa.Table, keys: Sequence[str], sums: Sequence[str] = (), largest: Sequence[str] = ()
) -> pa.Table:
    """Counts of buckets, those of the same keys in one row: `buckets` in order, `count` and the
    sums of all, and the largest. Where the bucket is null, there are only sums."""
    columns = {name: whole(counts[name]) for name in counts.column_names}
    words = [_numbers(columns[key]) for key in keys]
    bucket = longs(columns["bucket"], -1)
    order, places = grouped([*words, bucket])
    starts = np.flatnonzero(changes(*(word[order][places] for word in words)))
    firsts = pa.array(order[places][starts] if len(places) else order)
    made = {key: columns[key].take(firsts) for key in keys}
    count = _reduced(np.add, columns["count"], order, places)
    made["buckets"] = _listed(bucket[order][places], count, starts)
    for name in ("count", *sums, *largest):
        # Of groups all at once: they are one after another.
        whole_groups = places[starts]
        reduce = np.maximum if name in largest else np.add
        made[name] = pa.array(_reduced(reduce, columns[name], order, whole_groups))
    return pa.table(made)


def _numbers(column: pa.Array) -> Longs:
    """Words or numbers, as numbers in the same order."""
    return ranks(column)[0][0] if pa.types.is_string(column.type) else longs(column)


def _reduced(reduce: np.ufunc, column: pa.Array, order: Longs, starts: Longs) -> npt.NDArray[Any]:
    """What groups of a column come to, of which each begins somewhere in an order."""
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if not len(starts):
        return values[:0]
    found: npt.NDArray[Any] = reduce.reduceat(values[order], starts)
    return found


def _listed(bucket: Longs, count: npt.NDArray[Any], starts: Longs) -> pa.Array:
    """Buckets with counts, as lists that begin at some places; -1 is none."""
    known = bucket >= 0
    before = np.append(0, np.cumsum(known))
    offsets = np.append(before[starts], before[-1]).astype(np.int32)
    struct = pa.StructArray.from_arrays(
        [pa.array(bucket[known], pa.int32()), pa.array(count[known], pa.int64())],
        names=["bucket", "count"],
    )
    return pa.ListArray.from_arrays(pa.array(offsets), struct)


def percentiles_of(rows: pa.Table, shares: Mapping[str, float]) -> pa.Table:
    """Rows with `buckets`, and the time that each share of their counts was within."""
    buckets = whole(rows["buckets"])
    flat = pc.list_flatten(buckets)
    sizes = longs(pc.list_value_length(buckets), 0)
    bucket, count = (longs(pc.struct_field(flat, name), 0) for name in ("bucket", "count"))
    upto = np.append(0, np.cumsum(count))
    ends = np.cumsum(sizes)
    before, total = upto[ends - sizes], upto[ends] - upto[ends - sizes]
    known = total > 0
    for name, share in shares.items():
        wanted = before + np.ceil(share * total).astype(np.int64)
        place = np.searchsorted(upto, wanted[known]) - 1
        times = np.zeros(len(sizes))
        times[known] = np.exp(bucket[place] * WIDTH)
        rows = rows.append_column(name, pa.array(times, mask=~known))
    return rows
