"""Jobs: what became of each note that was pushed (P9)."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.columns import Longs, longs, optional, summed, whole
from chappe.pipeline.hours import MINUTE_US
from chappe.pipeline.pushed import Pushed
from chappe.pipeline.sketch import buckets_of, gathered, percentiles_of
from chappe.pipeline.steps import between

_KEYS: Final = ("app", "job", "note", "target", "window", "born", "expires")
# What is counted of a note, in clients.
COUNTS: Final = (
    *("aimed", "sent", "arrived", "clicked", "offline", "dropped", "withdrawn", "waiting"),
)
# The share of what is which other.
RATIOS: Final = {
    "sent_ratio": ("sent", "aimed"),
    "arrived_ratio": ("arrived", "aimed"),
    "clicked_ratio": ("clicked", "arrived"),
}
_ABOUT: Final = {"app": "app", "note": "label", "target": "target", "born": "born"}
_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def counts_of(notes: Longs, pushed: Pushed, paths: pa.Table, job: pa.Array) -> pa.Table:
    """Of each note a row of counts, and one for each bucket of the times in which it came to those
    who were there when it was sent."""
    some, born = pushed.arrivals, longs(whole(paths["born"]))
    of, us = some.of[some.live], between(born[some.of], some.time)[some.live]
    came = summed({"of": of, "bucket": buckets_of(us)}, {"n": some.n[some.live]}, {"max": us})
    every = np.concatenate([notes, came["of"]])
    first = np.arange(len(every)) < len(notes)
    nothing = np.zeros(len(notes), np.int64)
    taken = pa.array(every)
    about = {name: whole(paths[column]).take(taken) for name, column in _ABOUT.items()}
    counts = {name: np.where(first, getattr(pushed, name)[every], 0) for name in COUNTS}
    bucket = np.concatenate([nothing, came["bucket"]]).astype(np.int32)
    return pa.table(
        {
            **about,
            "job": job.take(taken),
            "window": born[every] - born[every] % MINUTE_US,
            "expires": optional(pushed.expires[every]),
            **counts,
            "bucket": pa.array(bucket, mask=first),
            "count": np.concatenate([nothing, came["n"]]),
            "max": np.concatenate([nothing, came["max"]]),
        }
    )


def jobs(counts: pa.Table) -> pa.Table:
    """An hour's notes: counts and ratios, and how long it took to those who were online."""
    made = gathered(counts, _KEYS, COUNTS, ["max"])
    made = percentiles_of(made, _SHARES)
    known = pc.greater(made["count"], 0)
    made = _put(made, "max", pc.if_else(known, made["max"], pa.scalar(None, pa.int64())))
    for name, (part, of) in RATIOS.items():
        some = pc.if_else(pc.greater(made[of], 0), made[of].cast(pa.float64()), None)
        made = made.append_column(name, pc.divide(made[part], some))
    return made


def _put(rows: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, column)
