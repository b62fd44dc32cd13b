"""Links: what one node handed to another, what came and how long it took, when a link was down."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.columns import (
    Longs,
    changes,
    equal,
    grouped,
    longs,
    of_ranks,
    present,
    ranks,
    summed,
    whole,
)
from chappe.pipeline.hours import HOUR_US, MINUTE_US
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.sketch import gathered, percentiles_of
from chappe.pipeline.told import BEAT, DOWN, UP, Told

# The role of rooms in which a node hands messages to its peer; none: of all other traffic.
_KEYS = ["node", "peer", "role", "window"]
# A node that lives says so every second. Whoever did in the last seconds of an hour lived to its
# end: that it tells more in the next may be known to a later run only.
_ALIVE_US = 10_000_000
_COUNTS = ("handed", "arrived", "beats", "ups", "downs", "down_us", "probes", "failed")
# All but what follows from the others.
_COLUMNS = arrow_schema(TABLES["links"]).empty_table().drop_columns(["hour", "success"])


def links(begin: int, told: Told, travelled: pa.Table | None = None) -> pa.Table:
    """Rows by pair and minute of the hour that begins then, of what nodes told in it and of how its
    messages travelled."""
    parts = [_COLUMNS, _beats(told.links), _downs(told, begin), _probes(told.probes)]
    if travelled is not None:
        parts.append(travelled)
    names = [name for name in _COLUMNS.column_names if name not in _KEYS]
    every = pa.concat_tables(parts, promote_options="default")
    by_key = every.group_by(_KEYS, use_threads=False).aggregate([(name, "max") for name in names])
    columns = dict(zip([*_KEYS, *names], by_key.columns, strict=True))
    columns |= {name: columns[name].fill_null(0) for name in _COUNTS}
    handed = columns["handed"].cast(pa.float64())
    some = pc.if_else(pc.greater(handed, 0), handed, pa.scalar(None, pa.float64()))
    columns["success"] = pc.divide(columns["arrived"].cast(pa.float64()), some)
    return pa.table(columns)


def travels(ways: pa.Table) -> pa.Table:
    """Of an hour's messages: what was handed from node to node, what of it came, and how long that
    took."""
    counts = gathered(ways, _KEYS, ["handed"])
    delays = percentiles_of(counts, {"delay_p50": 0.5, "delay_p99": 0.99})
    return delays.drop_columns("buckets").rename_columns({"count": "arrived"})


def _beats(rows: pa.Table) -> pa.Table:
    """How many beats there were, and what those in the middle say; how often links came and
    went."""
    kind, at = whole(rows["kind"]), longs(whole(rows["at"]))
    [node, peer], names = ranks(whole(rows["node"]), whole(rows["peer"]))
    window = at - at % MINUTE_US
    order, starts = grouped([node, peer, window])
    owner = np.empty(len(order), np.int64)
    owner[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    firsts = order[starts]
    counted = {
        name: pa.array(np.bincount(owner[equal(kind, word)], minlength=len(starts)))
        for name, word in (("beats", BEAT), ("ups", UP), ("downs", DOWN))
    }
    return pa.table(
        {
            "node": of_ranks(node[firsts], names),
            "peer": of_ranks(peer[firsts], names),
            "window": pa.array(window[firsts]),
            **counted,
            "round_trip": _medians(owner, whole(rows["round_trip"]), len(starts)),
            "ahead": _medians(owner, whole(rows["ahead"]), len(starts)),
        }
    )


def _probes(rows: pa.Table) -> pa.Table:
    """What probes found of links between roles; several gateways may tell of one."""
    at = longs(whole(rows["at"]))
    keys = {"node": rows["came_from"], "peer": rows["peer"], "role": rows["role"]}
    keys["window"] = pa.array(at - at % MINUTE_US)
    parts = {"n": "sum", "failed": "sum", "delay_p50": "max", "delay_p99": "max"}
    told = pa.table(keys | {name: rows[name] for name in parts})
    made = told.group_by(_KEYS, use_threads=False).aggregate([*parts.items()])
    return made.rename_columns([*_KEYS, "probes", "failed", "probe_p50", "probe_p99"])


def _medians(owner: Longs, values: pa.Array, owners: int) -> pa.Array:
    """The median of each owner's values, without what is behind its point; null if it has none."""
    known = present(values)
    owner, numbers = owner[known], longs(values)[known]
    numbers = numbers[np.lexsort((numbers, owner))]
    sizes = np.bincount(owner, minlength=owners)
    begins = (np.cumsum(sizes) - sizes)[sizes > 0]
    some = sizes[sizes > 0]
    found = np.zeros(owners, np.int64)
    middle = (numbers[begins + (some - 1) // 2] + numbers[begins + some // 2]) / 2
    found[sizes > 0] = np.trunc(middle).astype(np.int64)
    return pa.array(found, mask=sizes == 0)


def _downs(told: Told, begin: int) -> pa.Table:
    """From each end of a link to its next begin, cut into minutes of the hour; the last, to the end
    of what its node tells in it."""
    rows = told.changes
    [node, peer], names = ranks(whole(rows["node"]), whole(rows["peer"]))
    times = [longs(whole(rows[name])) for name in ("at", "boot", "serial")]
    order, _starts = grouped([node, peer, *times])
    node, peer, at = node[order], peer[order], times[0][order]
    last = np.array([told.last.get(name, 0) for name in names], np.int64)
    over = begin + HOUR_US
    ends = np.where(last >= over - _ALIVE_US, over, last)
    # Whether the next row, after the last the first, is of another link.
    is_last = np.roll(changes(node, peer), -1)
    until = np.where(is_last, ends[node], np.roll(at, -1))
    first, end = np.maximum(at, begin), np.minimum(until, over)
    spans = np.flatnonzero(equal(whole(rows["kind"]), DOWN)[order] & (first < end))
    minute = first[spans] // MINUTE_US
    count = (end[spans] - 1) // MINUTE_US - minute + 1
    of = np.repeat(spans, count)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    window = (np.repeat(minute, count) + nth) * MINUTE_US
    down = np.minimum(end[of], window + MINUTE_US) - np.maximum(first[of], window)
    keys = {"node": node[of], "peer": peer[of], "window": window}
    made = summed(keys, {"down_us": down}, {})
    return pa.table(
        {
            "node": of_ranks(made["node"], names),
            "peer": of_ranks(made["peer"], names),
            "window": pa.array(made["window"]),
            "down_us": pa.array(made["down_us"]),
        }
    )
