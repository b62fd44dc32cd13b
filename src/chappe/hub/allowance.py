"""Allowances: what a session may still send before somebody looks at the clock.

A session is given messages and bytes in advance, in small shares from its own buckets and its
app's, so that a message costs two subtractions. A session without any limit has no allowances.
"""

from __future__ import annotations

from chappe.clock import Clock
from chappe.errors import BadRequest, Overload
from chappe.hub.app import App
from chappe.hub.bucket import Bucket
from chappe.hub.options import Rate

# A hundredth of a second's worth: an idle session holds back little of its app's share.
_SHARES_PER_S = 100


class _Allowance:
    """What is left of one thing, and the buckets it comes from."""

    __slots__ = ("_buckets", "_most", "_share", "_unit", "left")

    def __init__(self, unit: str, buckets: tuple[Bucket, ...]) -> None:
        self._unit = unit
        self._buckets = buckets
        self._most = min(bucket.per_s for bucket in buckets)
        self._share = max(1, self._most // _SHARES_PER_S)
        self.left = 0.0

    def spend(self, amount: int, now: float) -> None:
        """Take an amount, and a share beyond it; raises Overload, and takes nothing, if some
        bucket has less than the amount, BadRequest if it never will have."""
        if amount > self._most:
            raise BadRequest(
                f"rate limit: {amount} {self._unit} at once, {self._most} a second are allowed"
            )
        needed = amount - self.left
        wanted = needed + self._share
        for bucket in self._buckets:
            wanted = min(wanted, bucket.level(now))
        if wanted < needed:
            raise Overload(f"rate limit: more {self._unit} a second than allowed")
        for bucket in self._buckets:
            bucket.take(wanted)
        self.left = wanted - needed

    def give_back(self) -> None:
        """Return what was not used."""
        for bucket in self._buckets:
            bucket.give_back(self.left)
        self.left = 0


class Allowances:
    """What one session may send."""

    __slots__ = ("_bytes", "_clock", "_messages")

    def __init__(self, rate: Rate, app: App, clock: Clock) -> None:
        self._clock = clock
        now = clock.monotonic()
        self._messages = _allowance("messages", rate.messages_per_s, app.message_bucket, now)
        self._bytes = _allowance("bytes", rate.bytes_per_s, app.byte_bucket, now)

    @property
    def bounded(self) -> bool:
        """Whether any bucket limits this session."""
        return self._messages is not None or self._bytes is not None

    def spend(self, size: int, messages: int = 1) -> None:
        """Pay for messages of that size together; raises Overload when that is too much now."""
        count, volume = self._messages, self._bytes
        if count is not None:
            if count.left >= messages:
                count.left -= messages
            else:
                count.spend(messages, self._clock.monotonic())
        if volume is not None:
            if volume.left >= size:
                volume.left -= size
            else:
                volume.spend(size, self._clock.monotonic())

    def give_back(self) -> None:
        """Return what a closing session did not use."""
        for allowance in (self._messages, self._bytes):
            if allowance is not None:
                allowance.give_back()


def _allowance(unit: str, per_s: int, of_app: Bucket | None, now: float) -> _Allowance | None:
    buckets = [Bucket(per_s, now)] if per_s else []
    if of_app is not None:
        buckets.append(of_app)
    return _Allowance(unit, tuple(buckets)) if buckets else None
