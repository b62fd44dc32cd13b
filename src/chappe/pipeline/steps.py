"""Steps: how long each step of each message took.

hop       role                 from, to
hub       origin relay last    a message came to a node; it left for sessions or other nodes
link      relay last           it left the node before; it came to this one
delivery  whole                it came to its first node; the last session's outbox had it
store     whole                it came to a queue's node; it was durable
wait      whole                it was durable and due, or replayed; a group was handed it first
work      whole                a consumer was handed it; its group was done
done      whole                it was durable and due; its group was done
answer    whole                a request came; it was answered well

Plain paths say it by themselves; of the others hops are laid side by side. A window of five
minutes has enough of them to tell what the slowest of a thousand took.
"""

from __future__ import annotations

import functools

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from chappe.pipeline.silver import MINUTE_US, window_of

WINDOW_US = 5 * MINUTE_US
_COMMON = ("hour", "app", "family", "born", "share")
_STEP = ("hop", "role", "node", "peer", "us")
_PATH = ("hour", "message", "label")
_TRAVELS = "family in ('send', 'topic')"


def steps(paths: DataFrame, odd: DataFrame) -> DataFrame:
    """A row for each step, of plain paths and of odd ones that are not plain."""
    plain, others = paths.where("plain"), odd.where("not plain")
    quick = (_travels(plain), _queued(plain))
    thorough = (_hubs(others), _links(others), _works(others))
    rows = functools.reduce(DataFrame.unionByName, (*quick, *thorough), _whole(paths))
    # A step that took less than nothing, by clocks that differ, took nothing.
    return rows.where("us is not null").select(
        "hour",
        "app",
        "family",
        "share",
        *_STEP[:-1],
        window_of(fn.col("born"), WINDOW_US).alias("window"),
        fn.greatest("us", fn.lit(0)).alias("us"),
    )


def handed_on(paths: DataFrame, odd: DataFrame) -> DataFrame:
    """Of steps those from node to node; of plain paths all that was `handed` came, of the others
    it is told apart."""
    plain = _hops(paths.where("plain and size(handings) > 0").where(_TRAVELS))
    came = plain.where("h.came_from is not null").select(*_COMMON, *_fields(_link()))
    others = odd.where("not plain")
    hops = others.where(_TRAVELS).select(*_COMMON, fn.explode("hops").alias("h"))
    handed = hops.select(
        *_COMMON, fn.col("h.node").alias("node"), fn.explode("h.went_to").alias("peer")
    )
    one, none = fn.lit(1).cast("long"), fn.lit(0).cast("long")
    rows = (
        came.withColumn("handed", one)
        .unionByName(_links(others).withColumn("handed", none))
        .unionByName(handed.withColumn("handed", one), allowMissingColumns=True)
    )
    took = fn.when(fn.col("us").isNotNull(), fn.greatest("us", fn.lit(0)))
    return rows.select(
        *("hour", "node", "peer", "handed"),
        window_of(fn.col("born")).alias("window"),
        took.alias("us"),
    )


def _whole(paths: DataFrame) -> DataFrame:
    told = paths.where("family in ('send', 'topic', 'request') and delivered is not null")
    hop = fn.when(fn.col("family") == "request", "answer").otherwise("delivery")
    step = _step(hop, fn.lit("whole"), fn.col("delivered") - fn.col("born"))
    return told.select(*_COMMON, *_fields(step))


def _hops(paths: DataFrame) -> DataFrame:
    return paths.select(*_COMMON, "handings", fn.explode("hops").alias("h"))


def _role() -> Column:
    return (
        fn.when(fn.col("h.came_from").isNull(), "origin")
        .when(fn.size("h.went_to") > 0, "relay")
        .otherwise("last")
    )


def _hub() -> Column:
    return _step(fn.lit("hub"), _role(), fn.col("h.at") - fn.col("h.came"))


def _link() -> Column:
    """From the node before, which a plain path has among its handings once."""
    place = fn.array_position(fn.col("handings.node"), fn.col("h.came_from"))
    left = fn.get(fn.col("handings.time"), (place - 1).cast("int"))
    took = fn.col("h.came") + fn.col("h.shift") - left
    return _step(fn.lit("link"), _role(), took, fn.col("h.came_from"), fn.col("h.node"))


def _travels(plain: DataFrame) -> DataFrame:
    each = fn.explode(fn.array(_hub(), _link())).alias("step")
    return _hops(plain.where(_TRAVELS)).select(*_COMMON, each).select(*_COMMON, "step.*")


def _queued(plain: DataFrame) -> DataFrame:
    whole, stored = fn.lit("whole"), fn.col("stored")
    told = fn.array(
        _step(fn.lit("store"), whole, stored - fn.col("born")),
        _step(fn.lit("wait"), whole, fn.col("lent") - fn.col("ready")),
        _step(fn.lit("work"), whole, fn.col("delivered") - fn.col("lent")),
        _step(fn.lit("done"), whole, fn.col("delivered") - fn.col("ready")),
    )
    queued = plain.where("family = 'queue'")
    return queued.select(*_COMMON, fn.explode(told).alias("step")).select(*_COMMON, "step.*")


def _hubs(odd: DataFrame) -> DataFrame:
    hops = odd.where(_TRAVELS).select(*_COMMON, fn.explode("hops").alias("h"))
    passed = hops.where("h.kind in ('sent', 'published')")
    return passed.select(*_COMMON, _hub().alias("step")).select(*_COMMON, "step.*")


def _links(odd: DataFrame) -> DataFrame:
    """From node to node, of any paths: each that came with the first that was handed there."""
    hops = odd.where(_TRAVELS).select(*_COMMON, *_PATH[1:], fn.explode("hops").alias("h"))
    left = hops.select(
        *_PATH,
        fn.col("h.node").alias("node"),
        fn.explode("h.went_to").alias("peer"),
        (fn.col("h.at") + fn.col("h.shift")).alias("left"),
    )
    first = left.groupBy(*_PATH, "node", "peer").agg(fn.min("left").alias("left"))
    came = hops.where("h.came_from is not null and h.kind in ('sent', 'published')").select(
        *_COMMON,
        *_PATH[1:],
        fn.col("h.came_from").alias("node"),
        fn.col("h.node").alias("peer"),
        _role().alias("role"),
        (fn.col("h.came") + fn.col("h.shift")).alias("came"),
    )
    same = [came[name].eqNullSafe(first[name]) for name in (*_PATH, "node", "peer")]
    both = came.join(first, same, "left")
    return both.select(
        *[came[name] for name in _COMMON],
        fn.lit("link").alias("hop"),
        "role",
        came["node"],
        came["peer"],
        (fn.col("came") - fn.col("left")).alias("us"),
    )


def _works(odd: DataFrame) -> DataFrame:
    """Steps in queues: handed out anew after it was replayed, it waited since then; who is done
    had it since it was last handed out to them."""
    time = fn.col("h.at") + fn.col("h.shift")
    hops = odd.where("family = 'queue'").select(
        *_COMMON, *_PATH[1:], "ready", fn.explode("hops").alias("h"), time.alias("time")
    )
    order = [fn.col("time"), fn.col("h.node"), fn.col("h.boot"), fn.col("h.serial")]
    upto = Window.partitionBy(*_PATH).orderBy(*order)
    tries = Window.partitionBy(*_PATH, "h.group_name", "h.attempt").orderBy(*order)
    kind = fn.col("h.kind")
    replayed = fn.max(fn.when(kind == "replayed", fn.col("time"))).over(upto)
    lent = fn.last(fn.when(kind == "lent", fn.col("time")), ignorenulls=True).over(tries)
    rows = hops.withColumns({"replayed": replayed, "lent": lent})
    whole, ready = fn.lit("whole"), fn.col("ready")
    anew = (kind == "lent") & (fn.coalesce("h.attempt", fn.lit(1)) == 1)
    told = fn.array(
        _step(fn.lit("store"), whole, fn.when(kind == "stored", fn.col("h.at") - fn.col("h.came"))),
        _step(
            fn.lit("wait"),
            whole,
            fn.when(anew, fn.col("time") - fn.greatest("ready", "replayed")),
        ),
        _step(fn.lit("work"), whole, fn.when(kind == "acked", fn.col("time") - fn.col("lent"))),
        _step(fn.lit("done"), whole, fn.when(kind == "acked", fn.col("time") - ready)),
    )
    return rows.select(*_COMMON, fn.explode(told).alias("step")).select(*_COMMON, "step.*")


def _step(
    hop: Column, role: Column, us: Column, node: Column | None = None, peer: Column | None = None
) -> Column:
    nobody = fn.lit(None).cast("string")
    return fn.struct(
        hop.alias("hop"),
        role.alias("role"),
        (nobody if node is None else node).alias("node"),
        (nobody if peer is None else peer).alias("peer"),
        us.cast("long").alias("us"),
    )


def _fields(step: Column) -> list[Column]:
    return [step[name].alias(name) for name in _STEP]
