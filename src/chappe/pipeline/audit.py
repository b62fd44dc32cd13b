"""Audit: one row for each message that is lost, duplicated, late, or of which nobody knows.

What can be said from a message's own path is settled. What depends on whether something will still
come, or on what became of a node, is judged anew in every run, over the open paths of all hours:
few.

Queues and requests are told of whole, before anybody else is told. So it is exact what is said of
them, of nodes that were killed as well:

what              is                                       unknown if
a queue's         in it, until it is done or dead          its node died, and no broker went on with
message                                                    the queue since
a request         open, until the node of whoever asked    that node died before, or says so: the
                  says how it ended                        one that it asked died, or a provider

All else is told a few times a second: of a node that died, what came to it after its last sign of
life is unknown. That span of time has a row of its own, of the family `node`: there may have been
messages of which nobody else knows.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from chappe.pipeline.options import Options
from chappe.pipeline.schema import TABLES
from chappe.pipeline.verdicts import MISSING, REPLAYED, UNTOLD, dropped, late, twice, unsure

_ABOUT = ("app", "family", "message", "label", "sender", "target", "born")
_COLUMNS = TABLES["audit"].names
OPEN = "open"


def settled(paths: DataFrame, options: Options) -> DataFrame:
    """What paths say by themselves."""
    sla, queue_sla = options.sla_ms * 1000, options.queue_sla_ms * 1000
    verdicts = fn.filter(
        fn.array(dropped(), twice(), late(sla, queue_sla), unsure()), lambda v: v.isNotNull()
    )
    looked_at = paths.where("suspect or (family = 'request' and not open and delivered is null)")
    found = looked_at.select("hour", *_ABOUT, fn.explode(verdicts).alias("v"))
    return found.select("hour", *_ABOUT, "v.*").select(*_COLUMNS)


def unsettled(
    open_paths: DataFrame,
    known: DataFrame,
    of_queues: DataFrame,
    frontiers: DataFrame,
    options: Options,
) -> DataFrame:
    """What open paths say together with what is known of nodes and queues."""
    # A node's life that a time is in is the last that began before it.
    lives = fn.broadcast(
        known.select(fn.col("node").alias("at_node"), "began", "alive", "stopped", "died", "missed")
    )
    horizon = fn.broadcast(known.agg(fn.max("horizon").alias("horizon")))
    waits = _waits(open_paths)
    joined = waits.join(
        lives, (fn.col("who") == fn.col("at_node")) & (fn.col("began") <= fn.col("since")), "left"
    )
    life = fn.max_by(fn.struct("began", "alive", "stopped", "died", "missed"), "began").alias(
        "life"
    )
    keys = ["birth", *_ABOUT, "who", "since", "what", "ready", "lent", "last"]
    judged = (
        joined.groupBy(*keys)
        .agg(life)
        .crossJoin(horizon)
        .join(fn.broadcast(frontiers), ["app", "target"], "left")
        .join(fn.broadcast(of_queues), ["app", "target"], "left")
        .withColumn("v", _verdict(options))
        .where("v is not null")
    )
    rows = judged.select(
        fn.lit(OPEN).alias("hour"),
        *_ABOUT,
        "v.verdict",
        "v.reason",
        fn.col("last.node").alias("node"),
        (fn.col("last.at") + fn.col("last.shift")).alias("at"),
    )
    # One row for each message and verdict, of several nodes that it did not come to the first.
    seen = fn.min(fn.struct("reason", "node", "at")).alias("seen")
    once = rows.groupBy("hour", *_ABOUT, "verdict").agg(seen).select("*", "seen.*")
    return once.select(*_COLUMNS).unionByName(_untold(known))


def _untold(known: DataFrame) -> DataFrame:
    """The spans of time of which nobody knows what happened on a node."""
    said = {
        "hour": fn.lit(OPEN),
        "family": fn.lit("node"),
        "verdict": fn.lit("unknown"),
        "reason": fn.lit("it died: what came to it from then on it did not tell"),
        "node": fn.col("node"),
        "at": fn.col("alive"),
        "born": fn.col("alive"),
    }
    columns = [
        said.get(name, fn.lit(None)).cast(TABLES["audit"][name].dataType).alias(name)
        for name in _COLUMNS
    ]
    return known.where("died").select(*columns)


_SENT_AGAIN = f"array_max({REPLAYED})"
# A group was handed it, or does not want it, since it was sent for the last time.
_TAKEN = (
    "(h.kind = 'lent' or h.kind = 'dropped' and h.reason = 'nobody') "
    f"and h.at + h.shift >= coalesce({_SENT_AGAIN}, 0)"
)
_ASKER = (
    "get(transform(filter(hops, h -> h.kind = 'asked'), h -> coalesce(h.came_from, h.node)), 0)"
)


def _waits(paths: DataFrame) -> DataFrame:
    """What each open path waits for: whose word (`who`), since when."""
    travel = fn.col("family").isin("send", "topic", "other")
    lost_at = fn.transform(
        fn.expr(MISSING),
        lambda pair: fn.struct(
            fn.element_at(fn.split(pair, ">"), 2).alias("who"),
            fn.lit("arrive").alias("what"),
        ),
    )
    untold = fn.transform(
        fn.expr(UNTOLD),
        lambda pair: fn.struct(
            fn.element_at(fn.split(pair, ">"), 1).alias("who"), fn.lit("tell").alias("what")
        ),
    )
    last = fn.element_at(fn.col("hops"), -1)
    # The node of whoever asked; if that had no time to tell of it, the other one says which it is.
    asker = fn.expr(_ASKER)
    who = fn.when(fn.col("family") == "request", fn.coalesce(asker, last["node"]))
    own = fn.array(
        fn.struct(who.otherwise(last["node"]).alias("who"), fn.col("family").alias("what"))
    )
    waits = fn.when(travel, fn.concat(lost_at, untold)).otherwise(own)
    return (
        paths.select(
            fn.col("hour").alias("birth"),
            *_ABOUT,
            fn.explode(waits).alias("wait"),
            fn.col("ended").alias("since"),
            fn.expr(f"coalesce({_SENT_AGAIN}, ready, born)").alias("ready"),
            fn.expr(f"exists(hops, h -> {_TAKEN})").alias("lent"),
            last.alias("last"),
        )
        .select("*", "wait.*")
        .drop("wait")
    )


def _verdict(options: Options) -> Column:
    sla, grace = options.sla_ms * 1000, options.grace_ms * 1000
    since, who, what = fn.col("since"), fn.col("who"), fn.col("what")
    alive, died, stopped = fn.col("life.alive"), fn.col("life.died"), fn.col("life.stopped")
    horizon, frontier, ready = fn.col("horizon"), fn.col("frontier"), fn.col("ready")
    nobody = fn.col("life.began").isNull() & (horizon - since > grace)
    missed = fn.array_contains(fn.col("life.missed"), fn.col("birth"))
    queued = what == "queue"
    told_on = stopped.isNotNull() | (
        alive - since > fn.when(what == "request", grace).otherwise(sla)
    )
    overtaken = frontier - ready > options.overtaken_ms * 1000
    # A broker went on with its queue: there it is again, and waits since then.
    back = fn.coalesce(died & (fn.col("recovered") > since), fn.lit(False))
    waits_since = fn.when(back & fn.col("lent"), fn.col("recovered")).otherwise(ready)
    waits = (back | ~fn.col("lent")) & (horizon - waits_since > options.queue_sla_ms * 1000)
    said = fn.concat
    return (
        fn.when(nobody, _say("unknown", said(who, fn.lit(" never told anything of that time"))))
        .when(missed, _say("unknown", said(who, fn.lit(" could not write down everything"))))
        .when(
            queued & fn.coalesce(fn.col("removed") > since, fn.lit(False)),
            _say("lost", fn.lit("its queue was removed")),
        )
        .when(
            queued & died & ~back,
            _say("unknown", said(who, fn.lit(" died, and it was not seen since"))),
        )
        .when(
            queued & ~fn.col("lent") & overtaken,
            _say("lost", fn.lit("much younger ones of its queue were handed out")),
        )
        .when(queued & waits, _say("late", fn.lit("it still waits in its queue")))
        .when(queued, fn.lit(None))
        .when(
            told_on & (what == "arrive"),
            _say("lost", said(fn.lit("it did not come to "), who)),
        )
        .when(told_on & (what == "request"), _say("lost", fn.lit("nobody answered")))
        .when(told_on, _say("unknown", said(who, fn.lit(" had it and does not tell of it"))))
        .when(died, _say("unknown", said(who, fn.lit(" died before it told"))))
        .otherwise(fn.lit(None))
    )


def _say(verdict: str, reason: Column) -> Column:
    return fn.struct(fn.lit(verdict).alias("verdict"), reason.alias("reason"))
