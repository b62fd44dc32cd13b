"""Lives of nodes: until when each process told everything, and whether it ended in order.

A node says that all before is written down (`node_alive`), and that it stops. What a process did
between its last such word and its end nobody knows, but for queues and requests: of those it tells
before anybody else does.

A broker that goes on with a queue says so (`recovered`), after it told what it had no time to tell
before: then what is in the queue is known again, wherever that is now.

Whoever looks through the journals of nodes that are gone says which of them never came to say that
they stop (`node_gone`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from chappe.pipeline.options import Options

_OF_LIFE = ("node_started", "node_alive", "node_stopped")
_OF_QUEUES = ("recovered", "removed")


def told(events: DataFrame) -> DataFrame:
    """What each process told of itself, by hour; events have `shift`."""
    kind = fn.col("kind")
    time = fn.col("at") + fn.col("shift")
    words = events.where(kind.isin(*_OF_LIFE, "node_gone", "missed", *_OF_QUEUES))
    queue = fn.struct("app", "target", time.alias("at"))
    return words.groupBy("hour", "node", "boot").agg(
        fn.min(fn.col("boot") + fn.col("shift")).alias("began"),
        fn.max(fn.when(kind.isin(*_OF_LIFE), time)).alias("alive"),
        fn.max(fn.when(kind == "node_stopped", time)).alias("stopped"),
        fn.max(fn.when(kind == "node_gone", time)).alias("gone"),
        fn.sum(fn.when(kind == "missed", fn.coalesce("n", fn.lit(1))).otherwise(0)).alias("missed"),
        *[fn.collect_list(fn.when(kind == name, queue)).alias(name) for name in _OF_QUEUES],
    )


def known(lives: DataFrame, options: Options, written: int | None = None) -> DataFrame:
    """One row for each process: `died` when it ended without a word, `missed` the hours of which
    it did not tell everything, `horizon` until when anybody told anything.

    One that is followed by another life died then; one that is silent, while others tell of times
    much later, did some time. Times much after `written`, when the last file was, nobody can have
    known: a clock that is years ahead makes nobody dead.
    """
    grace_us = options.grace_ms * 1000
    each = lives.groupBy("node", "boot").agg(
        fn.min("began").alias("began"),
        fn.max("alive").alias("alive"),
        fn.max("stopped").alias("stopped"),
        fn.max("gone").alias("gone"),
        fn.collect_set(fn.when(fn.col("missed") > 0, fn.col("hour"))).alias("missed"),
    )
    horizon = lives.agg(_latest(grace_us, written).alias("horizon"))
    by_node = Window.partitionBy("node").orderBy("boot")
    later = fn.lead("began").over(by_node).isNotNull()
    silent = fn.col("horizon") - fn.col("alive") > grace_us
    over = later | fn.col("gone").isNotNull() | fn.coalesce(silent, fn.lit(False))
    return each.crossJoin(fn.broadcast(horizon)).withColumn(
        "died", fn.col("stopped").isNull() & over
    )


def _latest(grace_us: int, written: int | None) -> Column:
    """The latest word of all; of times that nobody can have known, none."""
    right = fn.col("alive")
    if written is None:
        return fn.max(right)
    # Clocks are put right by that of one node among those that are linked. If it is that one that
    # is ahead, the others' own say what time it was.
    own = right - (fn.col("began") - fn.col("boot"))
    known = [fn.when(time <= written + grace_us, time) for time in (right, own)]
    return fn.coalesce(fn.max(fn.coalesce(*known)), fn.lit(written))


def queues(lives: DataFrame) -> DataFrame:
    """When a broker last went on with each queue, and when it was last removed with messages."""
    parts = [
        lives.select(fn.explode(name).alias("queue")).select(
            fn.col("queue.app").alias("app"),
            fn.col("queue.target").alias("target"),
            *[_when(other == name).alias(other) for other in _OF_QUEUES],
        )
        for name in _OF_QUEUES
    ]
    latest = [fn.max(name).alias(name) for name in _OF_QUEUES]
    return parts[0].unionByName(parts[1]).groupBy("app", "target").agg(*latest)


def _when(it_is: bool) -> Column:
    return fn.col("queue.at") if it_is else fn.lit(None).cast("long")
