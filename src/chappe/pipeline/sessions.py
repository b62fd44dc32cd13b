"""Sessions: who is online, who comes, goes and comes back, and how long they stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from chappe.pipeline.hours import hour_of, window_of
from chappe.pipeline.options import Options
from chappe.pipeline.sketch import bucket_of, percentiles

_KEYS = ["hour", "app", "edge", "window"]
_PLACE = ["app", "edge", "window"]
# How many were cut off where and when.
CUT = (*_PLACE, "cut")


def stays(events: DataFrame) -> DataFrame:
    """How many sessions each process opened and closed in an hour: those of one that died are
    closed with it, though nobody told."""
    kind = fn.col("kind")
    of_sessions = events.where(kind.isin("session_opened", "session_closed"))
    return of_sessions.groupBy("hour", "app", "edge", "node", "boot").agg(
        fn.sum((kind == "session_opened").cast("long")).alias("opened"),
        fn.sum((kind == "session_closed").cast("long")).alias("closed"),
    )


def turnover(events: DataFrame, options: Options) -> DataFrame:
    """Comings and goings by minute, of events with `shift`; of them also those of the hour before,
    after which somebody may be back.

    By the clock of all: who goes from a node whose clock is ahead and comes to another would seem
    to have come first. Who was on a node that died came, as nobody told that it went.
    """
    kind = fn.col("kind")
    time = fn.col("at") + fn.col("shift")
    rows = events.where(kind.isin("session_opened", "session_closed")).withColumns(
        {"time": time, "window": window_of(time), "hour": hour_of(time)}
    )
    order = Window.partitionBy("app", "target").orderBy("time", "node", "boot", "serial")
    left = fn.lag("kind").over(order) == "session_closed"
    soon = fn.col("time") - fn.lag("time").over(order) <= options.reconnect_ms * 1000
    lasted = bucket_of(fn.col("at") - fn.col("came"))
    opens, closes = kind == "session_opened", kind == "session_closed"
    each = rows.select(
        *_KEYS,
        opens.cast("long").alias("opened"),
        closes.cast("long").alias("closed"),
        fn.coalesce(opens & left & soon, fn.lit(False)).cast("long").alias("reconnects"),
        fn.when(closes & (fn.col("at") >= fn.col("came")), lasted).alias("bucket"),
    )
    counts = [fn.sum(name).alias(name) for name in ("opened", "closed", "reconnects")]
    # Of those that end, how long they lasted is counted in the same go.
    sizes = each.groupBy(*_KEYS, "bucket").agg(*counts, fn.count("bucket").alias("count"))
    sized = fn.when(fn.col("bucket").isNotNull(), fn.struct("bucket", "count"))
    summed = sizes.groupBy(*_KEYS).agg(
        *counts,
        fn.sum("count").alias("count"),
        fn.sort_array(fn.collect_list(sized)).alias("buckets"),
    )
    return percentiles(summed, duration_p50=0.5, duration_p99=0.99).select(
        *_KEYS, *("opened", "closed", "reconnects", "duration_p50", "duration_p99")
    )


def cut_off(stays: DataFrame, known: DataFrame) -> DataFrame:
    """How many sessions ended with the process that had them, at its last word."""
    left = stays.groupBy("app", "edge", "node", "boot").agg(
        (fn.sum("opened") - fn.sum("closed")).alias("cut")
    )
    ended = known.where(fn.col("died") | fn.col("stopped").isNotNull())
    cuts = left.where("cut > 0").join(
        fn.broadcast(ended.select("node", "boot", "alive")), ["node", "boot"]
    )
    return cuts.groupBy("app", "edge", window_of(fn.col("alive")).alias("window")).agg(
        fn.sum("cut").alias("cut")
    )


def first_changed(
    before: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]
) -> int | None:
    """The first minute in which more or fewer were cut off than was thought: a process turns out to
    have died, or to have lived on, long after the events around it were taken."""
    was, is_ = ({tuple(row[name] for name in CUT) for row in rows} for rows in (before, now))
    return min((row[CUT.index("window")] for row in was ^ is_), default=None)


def sessions(turnover: DataFrame, cuts: DataFrame, since_us: int) -> DataFrame:
    """Rows by app, edge and minute from a time on, of turnover of all times."""
    rows = turnover.select(
        *_PLACE, "opened", "closed", "reconnects", "duration_p50", "duration_p99"
    ).where("opened + closed > 0")
    every = rows.join(cuts, _PLACE, "full").na.fill(0, ["opened", "closed", "reconnects", "cut"])
    every = every.withColumn("change", fn.col("opened") - fn.col("closed") - fn.col("cut"))
    upto = (
        Window.partitionBy("app", "edge")
        .orderBy("window")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    every = every.withColumns(
        {"hour": hour_of(fn.col("window")), "online": fn.sum("change").over(upto)}
    )
    new = every.where(fn.col("window") >= since_us)
    gone = fn.col("closed") + fn.col("cut")
    churn = fn.when(fn.col("online") + gone > 0, gone / (fn.col("online") + gone))
    return new.withColumn("churn", churn)
