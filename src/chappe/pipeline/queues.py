"""Queues: what came into each, what went out and how, and how old it gets there."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.clocks import Clocks
from chappe.pipeline.columns import NONE, Longs, flags, grouped, longs, optional, ranks, whole
from chappe.pipeline.hours import MINUTE_US
from chappe.pipeline.kinds import QUEUE_KINDS
from chappe.pipeline.schema import MINUTES, TABLES, arrow_schema
from chappe.pipeline.sketch import gathered, percentiles_of

# With these a message comes into its queue, and goes out of it.
_IN, _OUT = ("stored", "replayed"), ("finished", "removed")
_FLOWS = arrow_schema(TABLES["flows"])
_MINUTES = arrow_schema(MINUTES)


def flows(happened: pa.Table) -> pa.Table:
    """What happened in queues to an hour's messages, by the minute in which it did; `finished` when
    all groups that were handed a message are done with it."""
    keys = ["app", "queue", "what", "window", "bucket"]
    largest = ("frontier", "max")
    return (
        happened.group_by(keys, use_threads=False)
        .aggregate([("count", "sum"), *((name, "max") for name in largest)])
        .rename_columns([*keys, "count", *largest])
    )


def of_queues(thrown: pa.Table, clocks: Clocks) -> pa.Table:
    """What happened to many messages at once, as flows: dead letters were thrown away, a queue was
    removed with all that it had. By the clock of all, as what happened to each by itself."""
    removed, unnamed = pc.equal(thrown["kind"], "removed"), pc.is_null(thrown["message"])
    thrown = thrown.filter(pc.or_(removed, unnamed))
    at = longs(whole(thrown["at"]))
    at = at + clocks.shifts(whole(thrown["node"]), at)
    keys = {
        "app": thrown["app"],
        "queue": thrown["target"],
        "what": thrown["kind"],
        "window": pa.array(at - at % MINUTE_US),
    }
    counted = pa.table({**keys, "count": thrown["n"]}).group_by([*keys], use_threads=False)
    made = counted.aggregate([("count", "sum")]).rename_columns([*keys, "count"])
    nothing = _FLOWS.empty_table().drop_columns("hour")
    return pa.concat_tables([nothing, made], promote_options="default")


def first_change(before: pa.Table, now: pa.Table) -> int | None:
    """The first minute of which flows say something else than they did; None if there is none."""
    names = [name for name in _FLOWS.names if name != "hour"]
    signed = [
        rows.select(names).append_column("sign", pa.array([sign] * rows.num_rows, pa.int8()))
        for rows, sign in ((before, -1), (now, 1))
    ]
    counted = (
        pa.concat_tables(signed).group_by(names, use_threads=False).aggregate([("sign", "sum")])
    )
    changed = counted.filter(pc.not_equal(counted["sign_sum"], 0))
    first: int | None = pc.min(changed["window"]).as_py()
    return first


def minutes(flows: pa.Table) -> pa.Table:
    """Rows by queue and minute; `change` is by how much more is in it after the minute than before,
    `frontier` how young the youngest message is that was handed out in it."""
    columns = {name: whole(flows[name]) for name in flows.column_names}
    [app], _names = ranks(columns["app"])
    [queue], _names = ranks(columns["queue"])
    order, starts = grouped([app, queue, longs(columns["window"])])
    if not len(starts):
        return _MINUTES.empty_table()
    place = np.empty(len(order), np.int64)
    place[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    count = longs(columns["count"], 0)

    def total(*kinds: str) -> Longs:
        wanted = flags(pc.is_in(columns["what"], value_set=pa.array(kinds)))
        found = np.zeros(len(starts), np.int64)
        np.add.at(found, place[wanted], count[wanted])
        return found

    first = pa.array(order[starts])
    frontier = np.maximum.reduceat(longs(columns["frontier"], -1)[order], starts)
    made = {
        **{name: columns[name].take(first) for name in ("app", "queue", "window")},
        **{kind: total(kind) for kind in QUEUE_KINDS},
        "change": total(*_IN) - total(*_OUT),
        "frontier": optional(np.where(frontier < 0, NONE, frontier)),
        **_ages(flows.append_column("place", pa.array(place)), len(starts)),
    }
    return pa.table([pa.array(made[one.name], one.type) for one in _MINUTES], schema=_MINUTES)


def _ages(flows: pa.Table, places: int) -> dict[str, pa.Array]:
    """How old messages were when they were first handed out, by minute."""
    known = flows.filter(pc.and_(pc.equal(flows["what"], "lent"), flows["bucket"].is_valid()))
    counted = gathered(known, ["place"], largest=["max"])
    shares = percentiles_of(counted, {"age_p50": 0.5, "age_p99": 0.99})
    found = pc.index_in(pa.array(np.arange(places)), value_set=whole(shares["place"]))
    names = {"age_p50": "age_p50", "age_p99": "age_p99", "age_max": "max"}
    return {name: whole(shares[old]).take(found) for name, old in names.items()}
