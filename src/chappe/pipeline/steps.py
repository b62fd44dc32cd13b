"""Steps: how long each step of each message took, counted by minute and bucket.

hop       role                 from, to
hub       origin relay last    a message came to a node; it left for sessions or other nodes
link      relay last           it left the node before; it came to this one
handed    -                    (no time) handed to another node, whether it came there or not
delivery  whole                it came to its first node; the last session's outbox had it
store     whole                it came to a queue's node; it was durable
wait      whole                it was durable and due; a group was handed it first
work      whole                a consumer was handed it; its group was done
done      whole                it was durable and due; its group was done
answer    whole                a request came; it was answered well
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from chappe.pipeline.silver import window_of
from chappe.pipeline.sketch import bucket_of

_KEYS = ("hour", "app", "family", "hop", "role", "node", "peer", "window", "bucket")
_NODE = "cast(null as string)"


def _step(hop: str, role: str, node: str, peer: str, us: str) -> str:
    """A step as a value of SQL."""
    return (
        f"struct('{hop}' as hop, {role} as role, {node} as node, {peer} as peer, "
        f"cast({us} as bigint) as us)"
    )


_ROLE = (
    "case when h.came_from is null then 'origin' when size(h.went_to) > 0 then 'relay' "
    "else 'last' end"
)
# When it left the node before, if that told of it.
_LEFT = (
    "get(transform(filter(hops, p -> p.node = h.came_from and array_contains(p.went_to, h.node)), "
    "p -> p.at + p.shift), 0)"
)
_HUB = _step("hub", _ROLE, _NODE, _NODE, "h.at - h.came")
_LINK = _step("link", _ROLE, "h.came_from", "h.node", f"h.came + h.shift - {_LEFT}")
_HANDED = _step("handed", "'-'", "h.node", "t", "null")
# Of a hop through a node: the time within, the time from the node before, the nodes after.
_TRAVEL = f"""flatten(transform(filter(hops, h -> h.kind in ('sent', 'published')), h -> concat(
    if(h.came is null, array(), array({_HUB})),
    if(h.came_from is null, array(), array({_LINK})),
    if(h.went_to is null, array(), transform(h.went_to, t -> {_HANDED})))))"""
# When the group was handed what it is done with.
_LENT = (
    "get(transform(filter(hops, l -> l.kind = 'lent' and l.group_name = h.group_name "
    "and l.attempt <=> h.attempt), l -> l.at + l.shift), 0)"
)
_STORE = _step("store", "'whole'", _NODE, _NODE, "h.at - h.came")
_WAIT = _step("wait", "'whole'", _NODE, _NODE, "h.at + h.shift - ready")
_WORK = _step("work", "'whole'", _NODE, _NODE, f"h.at + h.shift - {_LENT}")
_DONE = _step("done", "'whole'", _NODE, _NODE, "h.at + h.shift - ready")
_QUEUE = f"""flatten(transform(hops, h -> case
    when h.kind = 'stored' then array({_STORE})
    when h.kind = 'lent' and coalesce(h.attempt, 1) = 1 then array({_WAIT})
    when h.kind = 'acked' then array({_WORK}, {_DONE})
    else array() end))"""
_STEP = ("hop", "role", "node", "peer", "us")


def counted(paths: DataFrame) -> DataFrame:
    """Steps of all messages, summed up."""
    common = ("hour", "app", "family", "born", "share")
    families = paths.where("family != 'other'")
    steps = fn.when(fn.col("family").isin("send", "topic"), fn.expr(_TRAVEL)).when(
        fn.col("family") == "queue", fn.expr(_QUEUE)
    )
    inside = families.where("family != 'request'").select(*common, fn.explode(steps).alias("step"))
    each = inside.select(
        *common,
        *[fn.col(f"step.{name}").alias(name) for name in _STEP],
    ).where("hop = 'handed' or us is not null")
    whole = families.where("family != 'queue' and delivered is not null").select(
        *common,
        fn.when(fn.col("family") == "request", "answer").otherwise("delivery").alias("hop"),
        fn.lit("whole").alias("role"),
        _nothing("node"),
        _nothing("peer"),
        (fn.col("delivered") - fn.col("born")).alias("us"),
    )
    rows = each.unionByName(whole).withColumns(
        {"window": window_of(fn.col("born")), "bucket": bucket_of(fn.col("us"))}
    )
    # A step that took less than nothing, by clocks that differ, took nothing.
    return rows.groupBy(*_KEYS).agg(
        fn.count("*").alias("count"),
        fn.sum(1 / fn.col("share")).alias("scaled"),
        fn.max(fn.greatest("us", fn.lit(0))).alias("max"),
    )


def _nothing(name: str) -> Column:
    return fn.lit(None).cast("string").alias(name)
