"""Paths: one row for each message, with every hop that any node told of it.

The one large shuffle of a run is here. Rows are sorted by message and time as they arrive, so that
collecting them keeps their order, and written as they are: sorted by birth hour and message.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from chappe.ids import EPOCH_MS, NODE_BITS, SEQUENCE_BITS
from chappe.pipeline.options import Options
from chappe.pipeline.schema import HOP_NAMES, TABLES
from chappe.pipeline.silver import QUEUE_KINDS

_KEYS = ("hour", "message", "label")
_ROW = ("app", "sender", "share")
# Handing from node to node, as `a>b`: those that were told by who handed, and by who got it. A
# node that tells that it dropped a message got it.
HANDED = (
    "flatten(transform(filter(hops, h -> size(h.went_to) > 0), "
    "h -> transform(h.went_to, p -> h.node || '>' || p)))"
)
ARRIVED = "transform(filter(hops, h -> h.came_from is not null), h -> h.came_from || '>' || h.node)"
DROPPED_AT = "transform(filter(hops, h -> h.kind = 'dropped'), h -> h.node)"
MISSING = (
    f"filter(array_except({HANDED}, {ARRIVED}), "
    f"p -> not array_contains({DROPPED_AT}, element_at(split(p, '>'), 2)))"
)
# Of a hop `h` at which it was dropped: somebody wanted it, and no other node gave it to them.
IN_VAIN = (
    "coalesce(h.reason, '') != 'nobody' "
    "and not exists(hops, o -> o.kind = 'sent' and o.n > 0 and o.target = h.target)"
)
UNTOLD = f"array_except({ARRIVED}, {HANDED})"
_LENT = "transform(filter(hops, h -> h.kind = 'lent'), h -> h.group_name)"
_DONE = "transform(filter(hops, h -> h.kind in ('acked', 'died')), h -> h.group_name)"
# Where it was given to sessions: once at each node, for each that it was sent to.
_PLACES = (
    "transform(filter(hops, h -> h.kind in ('sent', 'published') and h.n > 0), "
    "h -> concat_ws('>', h.node, h.target))"
)
_ACKS = "transform(filter(hops, h -> h.kind = 'acked'), h -> h.group_name)"


def scattered(paths: DataFrame) -> DataFrame:
    """The events that paths were made of: to be gathered anew with others."""
    hops = paths.select(*_KEYS, *_ROW, fn.explode("hops").alias("hop"))
    return hops.select(
        *_KEYS, *_ROW, *[fn.col(f"hop.{name}").alias(name) for name in HOP_NAMES if name != "shift"]
    )


def gather(events: DataFrame, options: Options, *, pieces: int, partitions: int) -> DataFrame:
    """Paths of events, which have `hour` and `shift`.

    Each hour is in so many pieces, and as many files at most. Needs sorted aggregation (job.py).
    """
    piece = fn.pmod(fn.hash("message", "label"), fn.lit(pieces))
    time = fn.col("hop.at") + fn.col("hop.shift")
    # A hop is made one value before it is shuffled: collecting copies it as it is then, instead of
    # field by field.
    rows = (
        events.select(*_KEYS, *_ROW, fn.struct(*HOP_NAMES).alias("hop"))
        .repartition(partitions, "hour", piece)
        .sortWithinPartitions(*_KEYS, time, "hop.node", "hop.boot", "hop.serial")
    )
    grouped = rows.groupBy(*_KEYS).agg(*_facts())
    paths = grouped.withColumn("hops", fn.array_distinct("hops"))
    paths = paths.withColumn("receivers", _receivers())
    paths = paths.withColumn("family", _family()).withColumn("born", _born())
    paths = paths.withColumn("delivered", _delivered())
    return paths.select(
        *[name for name in TABLES["paths"].names if name not in {"open", "suspect", "hops"}],
        _open().alias("open"),
        _suspect(options).alias("suspect"),
        "hops",
    )


def _facts() -> list[Column]:
    """What is found while rows are collected: cheaper than from the hops afterwards."""
    kind = fn.col("hop.kind")
    time = fn.col("hop.at") + fn.col("hop.shift")
    came = fn.coalesce("hop.came", "hop.at") + fn.col("hop.shift")
    begins = kind.isin("sent", "published", "stored", "asked") & fn.col("hop.came_from").isNull()
    delivers = kind.isin("sent", "published") & (fn.col("hop.n") > 0)
    well = (kind == "answered") & fn.col("hop.reason").isNull()
    return [
        *[fn.first(name, ignorenulls=True).alias(name) for name in ("app", "sender")],
        fn.first("hop.target", ignorenulls=True).alias("target"),
        fn.min("share").alias("share"),
        fn.min(fn.when(begins, came)).alias("came_first"),
        fn.min(fn.when(kind == "stored", fn.greatest(time, "hop.due"))).alias("ready"),
        fn.max(fn.when(delivers, time)).alias("got"),
        fn.min(fn.when(kind == "acked", time)).alias("acked"),
        fn.min(fn.when(well, time)).alias("answered"),
        fn.max(time).alias("ended"),
        fn.sum(fn.when(delivers, fn.col("hop.n"))).alias("receivers"),
        fn.min("hop.at").alias("first_at"),
        fn.max("hop.at").alias("last_at"),
        fn.count("*").alias("rows"),
        fn.max(kind.isin(*QUEUE_KINDS)).alias("queue"),
        fn.max(kind == "published").alias("topic"),
        fn.max(kind == "sent").alias("send"),
        fn.max(kind == "dropped").alias("dropped"),
        fn.max(kind.isin("cancelled", "purged")).alias("ended_early"),
        fn.max(kind == "answered").alias("replied"),
        fn.max(fn.col("hop.came_from").isNotNull() | (fn.size("hop.went_to") > 0)).alias(
            "travelled"
        ),
        fn.collect_list("hop").alias("hops"),
    ]


def _receivers() -> Column:
    """To how many sessions it was given; not counting what was only written down twice."""
    anew = "aggregate(filter(hops, h -> h.kind in ('sent', 'published')), 0L, (s, h) -> s + h.n)"
    return fn.when(fn.size("hops") < fn.col("rows"), fn.expr(anew)).otherwise(fn.col("receivers"))


def _family() -> Column:
    return (
        fn.when(fn.col("queue"), "queue")
        .when(fn.col("label").isNotNull(), "request")
        .when(fn.col("topic"), "topic")
        .when(fn.col("send"), "send")
        .otherwise("other")
    )


def _born() -> Column:
    of_id = (fn.shiftright("message", NODE_BITS + SEQUENCE_BITS) + EPOCH_MS) * 1000
    return fn.coalesce("came_first", of_id, fn.col("ended"))


def _delivered() -> Column:
    """When all that are known to get it got it; for a queue when the first group was done."""
    return (
        fn.when(fn.col("family") == "queue", fn.col("acked"))
        .when(fn.col("family") == "request", fn.col("answered"))
        .otherwise(fn.col("got"))
    )


def _open() -> Column:
    """Whether something must still come, or should have."""
    family = fn.col("family")
    groups_wait = fn.expr(f"size({_DONE}) = 0 or (size(array_except({_LENT}, {_DONE})) > 0)")
    on_the_way = fn.expr(f"size({MISSING}) > 0 or size({UNTOLD}) > 0")
    return (
        fn.when(family == "queue", ~fn.col("ended_early") & groups_wait)
        .when(family == "request", ~fn.col("replied"))
        .when(fn.col("travelled"), on_the_way)
        .otherwise(fn.lit(False))
    )


def _suspect(options: Options) -> Column:
    """Whether the audit must look at it: quick to say, and true rather too often."""
    late_us = fn.when(fn.col("family") == "queue", options.queue_sla_ms * 1000).otherwise(
        options.sla_ms * 1000
    )
    begin = fn.coalesce("ready", "born")
    twice = fn.when(
        fn.col("rows") > 1,
        fn.when(
            fn.col("family") == "queue",
            fn.expr(f"size(array_distinct({_ACKS})) < size({_ACKS})"),
        ).otherwise(fn.expr(f"size(array_distinct({_PLACES})) < size({_PLACES})")),
    ).otherwise(fn.lit(False))
    return fn.col("dropped") | (fn.col("ended") - begin > late_us) | twice
