"""Queues: what came into each, what went out and how, what is in it, and how old it gets there."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from chappe.pipeline.columns import Longs, equal, flags, longs, whole
from chappe.pipeline.hours import MINUTE_US, hour_name
from chappe.pipeline.schema import TABLES, arrow_schema
from chappe.pipeline.silver import QUEUE_KINDS
from chappe.pipeline.sketch import gathered, percentiles_of

# With these a message comes into its queue, and goes out of it.
_IN, _OUT = ("stored", "replayed"), ("finished", "removed")
_BEGUN = "begun"


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


def of_queues(thrown: pa.Table) -> pa.Table:
    """What happened to many messages at once, as flows: dead letters were thrown away, a queue was
    removed with all that it had."""
    removed, unnamed = pc.equal(thrown["kind"], "removed"), pc.is_null(thrown["message"])
    thrown = thrown.filter(pc.or_(removed, unnamed))
    at = longs(whole(thrown["at"]))
    keys = {
        "app": thrown["app"],
        "queue": thrown["target"],
        "what": thrown["kind"],
        "window": pa.array(at - at % MINUTE_US),
    }
    counted = pa.table({**keys, "count": thrown["n"]}).group_by([*keys], use_threads=False)
    made = counted.aggregate([("count", "sum")]).rename_columns([*keys, "count"])
    nothing = arrow_schema(TABLES["flows"]).empty_table().drop_columns("hour")
    return pa.concat_tables([nothing, made], promote_options="default")


def queues(flows: DataFrame, since_us: int) -> DataFrame:
    """Rows by queue and minute from a time on; `lag` is what is in it at the minute's end."""
    change = (
        fn.when(fn.col("what").isin(*_IN), fn.col("count"))
        .when(fn.col("what").isin(*_OUT), -fn.col("count"))
        .otherwise(0)
    )
    earlier = flows.where(fn.col("window") < since_us).groupBy("app", "queue")
    begun = earlier.agg(
        fn.lit(_BEGUN).alias("what"),
        fn.lit(None).cast("long").alias("window"),
        fn.sum(change).alias("count"),
    )
    later = flows.where(fn.col("window") >= since_us)
    names = ("app", "queue", "what", "window", "bucket", "count", "max")
    rows = later.select(*names).unionByName(begun, allowMissingColumns=True)
    return rows.groupBy("app", "queue").applyInArrow(_of_queue, TABLES["queues"])


def _of_queue(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
    """One queue's rows, of its flows; what was in it before is one of them."""
    app, queue = (one.as_py() for one in key)
    what, count = whole(rows["what"]), longs(whole(rows["count"]), 0)
    begun = equal(what, _BEGUN)
    windows = np.unique(longs(whole(rows["window"]))[~begun])
    place = np.searchsorted(windows, longs(whole(rows["window"])))

    def total(*kinds: str) -> Longs:
        wanted = flags(pc.is_in(what, value_set=pa.array(kinds)))
        found = np.zeros(len(windows), np.int64)
        np.add.at(found, place[wanted], count[wanted])
        return found

    change = total(*_IN) - total(*_OUT)
    ages = _ages(rows.filter(pc.equal(what, "lent")), windows)
    made = {
        "hour": [hour_name(window) for window in windows.tolist()],
        "app": [app] * len(windows),
        "queue": [queue] * len(windows),
        "window": windows,
        **{kind: total(kind) for kind in QUEUE_KINDS},
        "lag": np.cumsum(change) + count[begun].sum(),
        **ages,
    }
    schema = arrow_schema(TABLES["queues"])
    return pa.table([pa.array(made[field.name], field.type) for field in schema], schema=schema)


def _ages(lent: pa.Table, windows: Longs) -> dict[str, pa.Array]:
    """How old messages were when they were first handed out, by minute."""
    known = lent.filter(lent["bucket"].is_valid())
    counted = gathered(known, ["window"], largest=["max"])
    shares = percentiles_of(counted, {"age_p50": 0.5, "age_p99": 0.99})
    place = pc.index_in(pa.array(windows), value_set=whole(shares["window"]))
    names = {"age_p50": "age_p50", "age_p99": "age_p99", "age_max": "max"}
    return {name: whole(shares[old]).take(place) for name, old in names.items()}


def frontiers(flows: Iterable[pa.RecordBatch]) -> dict[tuple[str, str], int]:
    """Of each app's queue how young the youngest message is that was ever handed out."""
    found: dict[tuple[str, str], int] = {}
    for batch in flows:
        told = pa.Table.from_batches([batch.filter(batch["frontier"].is_valid())])
        youngest = told.group_by(["app", "queue"]).aggregate([("frontier", "max")])
        for row in youngest.to_pylist():
            queue, frontier = (row["app"], row["queue"]), row["frontier_max"]
            found[queue] = max(frontier, found.get(queue, frontier))
    return found
