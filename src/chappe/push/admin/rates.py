"""Rates: how often each app may ask, in this process."""

from __future__ import annotations

from math import ceil

from chappe.clock import Clock
from chappe.errors import Throttled
from chappe.hub.bucket import Bucket

# The longest unseen is forgotten: its bucket would be full again by then.
_BUCKETS_MAX = 10_000


class Rates:
    """A bucket for each app; not shared between processes, so that it costs nothing to ask."""

    __slots__ = ("_buckets", "_clock")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def take(self, app: str, per_s: float, cost: float = 1.0) -> None:
        """Let something through; raises Throttled. 0 a second: there is no limit.

        What costs more than a second's worth takes all of it.
        """
        if not per_s:
            return
        now = self._clock.monotonic()
        bucket = self._buckets.pop(app, None)
        if bucket is None or bucket.per_s != per_s:
            bucket = Bucket(per_s, now)
        self._buckets[app] = bucket
        if len(self._buckets) > _BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]
        cost = min(cost, per_s)
        missing = cost - bucket.level(now)
        if missing > 0:
            raise Throttled(f"app: more than {per_s:g} a second", max(1, ceil(missing / per_s)))
        bucket.take(cost)
