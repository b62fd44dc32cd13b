"""Verdicts on messages from what their own paths say: each a column, null where there is none.

They look at every hop, in expressions that are interpreted: for those paths only that are suspect.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as fn

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
# When a dead letter was sent once more.
REPLAYED = "transform(filter(hops, r -> r.kind = 'replayed'), r -> r.at + r.shift)"
_PLACED = "struct('{verdict}' as verdict, {reason} as reason, h.node as node, h.at + h.shift as at)"


def _first(kinds: str, condition: str, verdict: str, reason: str) -> Column:
    """A verdict from the first hop that something is true of, or null."""
    hops = f"filter(hops, h -> h.kind in ({kinds}) and {condition})"
    made = _PLACED.format(verdict=verdict, reason=reason)
    return fn.expr(f"try_element_at(transform({hops}, h -> {made}), 1)")


def dropped() -> Column:
    """It was dropped at a node, and somebody missed it."""
    reason = "concat('dropped: ', coalesce(h.reason, 'no reason'))"
    return _first("'dropped'", IN_VAIN, "lost", reason)


def twice() -> Column:
    """A node gave to sessions what it had given them before; a group was done a second time."""
    order = "struct({0}.at + {0}.shift, {0}.node, {0}.boot, {0}.serial)"
    earlier = f"{order.format('o')} < {order.format('h')}"
    same = f"o.kind = h.kind and o.node = h.node and o.target = h.target and o.n > 0 and {earlier}"
    passed = _first(
        "'sent', 'published'",
        f"h.n > 0 and exists(hops, o -> {same})",
        "duplicated",
        "concat('twice at ', h.node)",
    )
    # What a broker tells after a start it may have told before.
    first = "coalesce({0}.reason, '') != 'recovered'"
    again = f"o.kind = 'acked' and o.group_name = h.group_name and {earlier}"
    done = _first(
        "'acked'",
        f"{first.format('h')} and exists(hops, o -> {again} and {first.format('o')})",
        "duplicated",
        "concat('done twice by ', h.group_name)",
    )
    return fn.when(fn.col("family") == "queue", done).otherwise(passed)


def unsure() -> Column:
    """A request of which whoever asked was told that nobody knows."""
    said = "h.came_from is null and h.reason like '%outcome unknown'"
    verdict = _first("'answered'", said, "unknown", "concat('answered: ', h.reason)")
    return fn.when(fn.col("family") == "request", verdict)


def late(sla_us: int, queue_sla_us: int) -> Column:
    """It took longer than was promised; in a queue, until somebody was handed it first."""
    took = fn.col("delivered") - fn.col("born")
    reason = fn.concat(
        fn.lit("took "), fn.round(took / 1000).cast("long").cast("string"), fn.lit(" ms")
    )
    last = fn.expr("element_at(hops, -1)")
    slow = fn.struct(
        fn.lit("late").alias("verdict"),
        reason.alias("reason"),
        last["node"].alias("node"),
        (last["at"] + last["shift"]).alias("at"),
    )
    # A dead letter that was sent once more waits from then on.
    sent = f"coalesce(array_max(filter({REPLAYED}, r -> r <= h.at + h.shift)), ready)"
    wait = f"(h.at + h.shift - {sent})"
    waited = _first(
        "'lent'",
        f"coalesce(h.attempt, 1) = 1 and {wait} > {queue_sla_us}",
        "late",
        f"concat('waited ', cast({wait} div 1000 as string), ' ms')",
    )
    return fn.when(fn.col("family") == "queue", waited).when(took > sla_us, slow)
