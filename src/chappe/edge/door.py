"""The door: how often one address may connect."""

from __future__ import annotations

from chappe.clock import Clock
from chappe.hub.bucket import Bucket

# A stranger with many addresses must not fill memory; the longest unseen is forgotten.
_ADDRESSES_MAX = 65_536


class Door:
    """Lets each address in so many times a second; 0 lets everybody in."""

    __slots__ = ("_buckets", "_clock", "_per_s")

    def __init__(self, per_s: float, clock: Clock) -> None:
        self._per_s = per_s
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}

    def allow(self, address: str) -> bool:
        """Whether a connection from there may come in now."""
        if not self._per_s:
            return True
        now = self._clock.monotonic()
        bucket = self._buckets.pop(address, None) or Bucket(self._per_s, now)
        self._buckets[address] = bucket  # last in the order: seen just now
        if len(self._buckets) > _ADDRESSES_MAX:
            del self._buckets[next(iter(self._buckets))]
        if bucket.level(now) < 1:
            return False
        bucket.take(1)
        return True
