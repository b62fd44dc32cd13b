"""Paths: one row for each message, with every hop that any node told of it.

The one large shuffle of a run is here. Rows are sorted by message and time as they arrive, so that
collecting them keeps their order.

Most messages are `plain`: told once, handed on and taken over, stored, lent and acknowledged. What
is to be known of them is found while rows are collected, and by functions that Spark compiles. Only
the others are looked at hop by hop, which it interprets; they are kept a second time, as `odd`.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from chappe.ids import EPOCH_MS, NODE_BITS, SEQUENCE_BITS
from chappe.pipeline.options import Options
from chappe.pipeline.schema import HOP_NAMES, TABLES
from chappe.pipeline.silver import HOUR_US, MESSAGE_KINDS, QUEUE_KINDS, born_us, hour_of

_MESSAGE = ("message", "label")
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
UNTOLD = f"array_except({ARRIVED}, {HANDED})"
# Of a hop `h` at which it was dropped: somebody wanted it, and no other node gave it to them.
IN_VAIN = (
    "coalesce(h.reason, '') != 'nobody' "
    "and not exists(hops, o -> o.kind = 'sent' and o.n > 0 and o.target = h.target)"
)
# Groups that were handed it, and that are done with it; if it was replayed, since then.
_REPLAYED = (
    "coalesce(array_max(transform(filter(hops, h -> h.kind = 'replayed'), h -> h.at + h.shift)), "
    "0L)"
)
_LENT = "transform(filter(hops, h -> h.kind = 'lent' {0}), h -> h.group_name)"
# A group that does not want it is done with it, too.
DONE = (
    "(h.kind in ('acked', 'died') "
    "or (h.kind = 'dropped' and h.reason = 'nobody' and h.group_name is not null))"
)
_DONE = f"transform(filter(hops, h -> {DONE} {{0}}), h -> h.group_name)"
_SINCE = f"and h.at + h.shift >= {_REPLAYED}"
_WAITING = (
    f"size({_DONE.format(_SINCE)}) = 0 "
    f"or size(array_except({_LENT.format(_SINCE)}, {_DONE.format(_SINCE)})) > 0 "
    f"or size(array_except({_LENT.format('')}, {_DONE.format('')})) > 0"
)
# What was given to sessions: once at each node, for each that it was sent to.
_PLACES = (
    "transform(filter(hops, h -> h.kind in ('sent', 'published') and h.n > 0), "
    "h -> concat_ws('>', h.node, h.target))"
)
_ACKS = "transform(filter(hops, h -> h.kind = 'acked'), h -> h.group_name)"
_BITS = {kind: 1 << n for n, kind in enumerate(MESSAGE_KINDS)}


def scattered(paths: DataFrame) -> DataFrame:
    """The events that paths were made of: to be gathered anew with others."""
    hops = paths.select(*_MESSAGE, *_ROW, fn.explode("hops").alias("hop"))
    names = [name for name in HOP_NAMES if name != "shift"]
    return hops.select(*_MESSAGE, *_ROW, *[fn.col(f"hop.{name}").alias(name) for name in names])


def gather(events: DataFrame, options: Options, *, pieces: int, partitions: int) -> DataFrame:
    """Paths of events, which have `shift`.

    Each hour is in so many pieces, and as many files at most. Needs sorted aggregation (job.py).
    """
    # Numbers are sorted and told apart faster than words. What has a label has no id.
    key = fn.when(fn.col("label").isNull(), fn.col("message")).otherwise(fn.xxhash64("label"))
    piece = fn.pmod(fn.col("key"), fn.lit(pieces))
    went_to = fn.coalesce("went_to", fn.array().cast("array<string>")).alias("went_to")
    hop = fn.struct(*[went_to if name == "went_to" else name for name in HOP_NAMES])
    bit = fn.lit(0)
    for kind, value in _BITS.items():
        bit = fn.when(fn.col("kind") == kind, value).otherwise(bit)
    order = ("time", "hop.node", "hop.boot", "hop.serial")
    time = fn.col("at") + fn.col("shift")
    # Lists are collected of columns: of anything else, it would be worked out row by row by an
    # interpreter.
    delivers = fn.col("kind").isin("sent", "published") & (fn.col("n") > 0)
    rows = (
        events.select(
            key.alias("key"),
            fn.floor(born_us() / HOUR_US).alias("born_hour"),
            "label",
            *_ROW,
            time.alias("time"),
            bit.alias("bit"),
            fn.when(fn.size("went_to") > 0, fn.struct("node", time.alias("time"))).alias("handing"),
            fn.when(fn.col("came_from").isNotNull(), fn.col("node")).alias("arrived"),
            fn.when(delivers, fn.xxhash64("node", "target")).alias("place"),
            hop.alias("hop"),
        )
        .withColumn("part", fn.col("born_hour") * pieces + piece)
        .repartition(partitions, "part")
        .sortWithinPartitions("key", "label", "part", *order)
    )
    paths = rows.groupBy("key", "label", "part").agg(*_facts())
    paths = paths.withColumns(
        {
            "message": fn.when(fn.col("label").isNull(), fn.col("key")),
            "family": _family(),
            "hops": fn.when(_told_twice(), fn.array_distinct("hops")).otherwise(fn.col("hops")),
            "receivers": _receivers(),
            "plain": _plain(),
        }
    )
    paths = paths.withColumns({"born": _born(), "delivered": _delivered()})
    hour = hour_of(fn.floor(fn.col("part") / pieces) * HOUR_US)
    made = {
        "hour": hour,
        "open": _open(),
        "suspect": _suspect(options),
        "vain": fn.when(
            _has("dropped"), fn.expr(f"exists(hops, h -> h.kind = 'dropped' and {IN_VAIN})")
        ).otherwise(fn.lit(False)),
        "cancelled": _has("cancelled") | _unwanted(),
    }
    return paths.select(
        *[made[name].alias(name) if name in made else name for name in TABLES["paths"].names]
    )


def odd(paths: DataFrame) -> DataFrame:
    """The paths that have to be looked at hop by hop."""
    return paths.where("open or suspect or not plain")


def _facts() -> list[Column]:
    """What is found while rows are collected."""
    bit, time = fn.col("bit"), fn.col("time")
    came_from = fn.col("hop.came_from")
    came = fn.coalesce(fn.col("hop.came") + fn.col("hop.shift"), time)
    due = fn.col("hop.due") + fn.col("hop.shift")
    begins = _any_of(bit, "sent", "published", "stored", "asked") & came_from.isNull()
    delivers = _any_of(bit, "sent", "published") & (fn.col("hop.n") > 0)
    # Of a request that was carried to another node, the end is what its first node says.
    replied = _any_of(bit, "answered") & came_from.isNull()
    return [
        *[fn.first(name, ignorenulls=True).alias(name) for name in ("app", "sender")],
        fn.first("hop.target", ignorenulls=True).alias("target"),
        fn.min("share").alias("share"),
        fn.min(fn.when(begins, came)).alias("begun"),
        fn.min(fn.when(_any_of(bit, "stored"), time)).alias("stored"),
        fn.min(fn.when(_any_of(bit, "stored"), fn.greatest(time, due))).alias("ready"),
        fn.min(fn.when(_any_of(bit, "lent"), time)).alias("lent"),
        fn.min(fn.when(_any_of(bit, "acked"), time)).alias("acked"),
        fn.max(fn.when(delivers, time)).alias("got"),
        fn.min(fn.when(replied & fn.col("hop.reason").isNull(), time)).alias("answered"),
        fn.max(replied).alias("replied"),
        fn.max(time).alias("ended"),
        fn.sum(fn.when(delivers, fn.col("hop.n"))).alias("receivers"),
        fn.min("hop.at").alias("first_at"),
        fn.max("hop.at").alias("last_at"),
        fn.count("*").alias("rows"),
        fn.bit_or(bit).alias("kinds"),
        fn.collect_list("handing").alias("handings"),
        fn.collect_list("arrived").alias("arrivals"),
        fn.collect_list("place").alias("places"),
        fn.collect_list("hop").alias("hops"),
    ]


def _any_of(bits: Column, *kinds: str) -> Column:
    return bits.bitwiseAND(fn.lit(sum(_BITS[kind] for kind in kinds))) != 0


def _has(*kinds: str) -> Column:
    """Whether a path has any of these kinds."""
    return _any_of(fn.col("kinds"), *kinds)


def _has_only(*kinds: str) -> Column:
    return ~_has(*[kind for kind in _BITS if kind not in kinds])


def _told_twice() -> Column:
    """Whether an event was written down more than once. Numbers of several nodes may be the same
    by chance: then events are compared."""
    numbers = fn.size(fn.array_distinct("hops.serial")) < fn.col("rows")
    events = fn.size(fn.array_distinct("hops")) < fn.col("rows")
    return (fn.col("rows") > 1) & numbers & events


def _receivers() -> Column:
    """To how many sessions it was given; not counting what was only written down twice."""
    anew = (
        "aggregate(filter(array_distinct(hops), h -> h.kind in ('sent', 'published')), 0L, "
        "(s, h) -> s + coalesce(h.n, 0L))"
    )
    receivers = fn.coalesce("receivers", fn.lit(0).cast("long"))
    return fn.when(_told_twice(), fn.expr(anew)).otherwise(receivers)


def _family() -> Column:
    return (
        fn.when(_has(*QUEUE_KINDS), "queue")
        .when(fn.col("label").isNotNull(), "request")
        .when(_has("published"), "topic")
        .when(_has("sent"), "send")
        .otherwise("other")
    )


def _born() -> Column:
    of_id = (fn.shiftright("message", NODE_BITS + SEQUENCE_BITS) + EPOCH_MS) * 1000
    return fn.coalesce("begun", of_id, fn.col("ended"))


def _delivered() -> Column:
    """When all that are known to get it got it; for a queue when the first group was done."""
    return (
        fn.when(fn.col("family") == "queue", fn.col("acked"))
        .when(fn.col("family") == "request", fn.col("answered"))
        .otherwise(fn.col("got"))
    )


def _plain() -> Column:
    """Whether its own columns say how long its steps took. In a queue: stored, lent to one group,
    done, and each once. On the way: whoever was handed it says so, and nobody handed it on twice.
    """
    once = (fn.bit_count("kinds") == fn.col("rows")) & _has_only("stored", "lent", "acked")
    # The one that stored it has no group.
    one_group = fn.size(fn.array_distinct("hops.group_name")) <= 2
    queued = _has("stored") & once & one_group & (_has("lent") | ~_has("acked"))
    handed = fn.flatten("hops.went_to")
    nobody = fn.lit(None).cast("string")
    givers = fn.array_append(fn.col("handings.node"), nobody)
    arrived = (
        (fn.size(handed) == fn.size("arrivals"))
        & (fn.size(fn.array_except(handed, "arrivals")) == 0)
        & (fn.size(fn.array_except(fn.col("hops.came_from"), givers)) == 0)
        & (fn.size(fn.array_distinct("handings.node")) == fn.size("handings"))
    )
    still = (fn.size("handings") == 0) & (fn.size("arrivals") == 0)
    return (
        fn.when(_told_twice(), fn.lit(False))
        .when(_has(*QUEUE_KINDS), queued)
        .when(fn.col("label").isNotNull(), fn.lit(True))
        .otherwise(~_has("dropped") & (still | arrived))
    )


def _open() -> Column:
    """Whether something must still come, or should have."""
    family, plain = fn.col("family"), fn.col("plain")
    waiting = fn.when(plain, ~_has("acked")).otherwise(fn.expr(_WAITING))
    on_the_way = fn.expr(f"size({MISSING}) > 0 or size({UNTOLD}) > 0")
    return (
        fn.when(family == "queue", ~_has("cancelled") & waiting)
        .when(family == "request", ~fn.col("replied"))
        .otherwise(fn.when(plain, fn.lit(False)).otherwise(on_the_way))
    )


def _unwanted() -> Column:
    """Whether no group of its queue wanted it."""
    wanted = _has("lent", "acked", "died")
    return (fn.col("family") == "queue") & _has("dropped") & ~wanted


def _suspect(options: Options) -> Column:
    """Whether the audit must look at it: quick to say, and true rather too often."""
    queued, asked = fn.col("family") == "queue", fn.col("family") == "request"
    late_us = fn.when(queued, options.queue_sla_ms * 1000).otherwise(options.sla_ms * 1000)
    late = fn.col("ended") - fn.coalesce("ready", "born") > late_us
    in_vain = asked & fn.col("answered").isNull()
    acks = fn.expr(f"size(array_distinct({_ACKS})) < size({_ACKS})")
    places = fn.size(fn.array_distinct("places")) < fn.size("places")
    passed = fn.expr(f"size(array_distinct({_PLACES})) < size({_PLACES})")
    # What was written down twice has places twice, too.
    twice = fn.when(queued, ~fn.col("plain") & acks).otherwise(places & passed)
    return _has("dropped") | late | in_vain | twice
