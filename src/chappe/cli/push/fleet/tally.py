"""What a fleet of devices has seen: counts, and how long things took; those of several add up."""

from __future__ import annotations

import math
from typing import Any

import msgspec

# Buckets grow by a twentieth, from a tenth of a millisecond to some hours: percentiles are right to
# 5 %, and whatever comes takes the same few kilobytes.
_FIRST_MS = 0.1
_GROWTH = math.log(1.05)
_BUCKETS = 400
_SHOWN = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
# A comet says few different things; a stranger in its place may say many.
_ERRORS_MAX = 50


class Histogram(msgspec.Struct):
    """How often something took about so long."""

    buckets: dict[int, int] = {}

    def add(self, took_ms: float) -> None:
        """Count one."""
        at = int(math.log(took_ms / _FIRST_MS) / _GROWTH) + 1 if took_ms > _FIRST_MS else 0
        at = min(at, _BUCKETS)
        self.buckets[at] = self.buckets.get(at, 0) + 1

    def merge(self, other: Histogram) -> None:
        """Add another's counts."""
        for at, count in other.buckets.items():
            self.buckets[at] = self.buckets.get(at, 0) + count

    def percentile(self, share: float) -> float | None:
        """The time, in ms, that this share did not exceed; None if there is nothing."""
        left = share * sum(self.buckets.values())
        for at in sorted(self.buckets):
            left -= self.buckets[at]
            if left <= 0:
                return round(_FIRST_MS * math.exp(at * _GROWTH), 2)
        return None

    def summary(self) -> dict[str, float | None]:
        """The percentiles that people look at."""
        return {name: self.percentile(share) for name, share in _SHOWN.items()}


class Tally(msgspec.Struct):
    """Counts of one process, or of several."""

    devices: int = 0
    # Now.
    connected: int = 0
    logged_in: int = 0
    # Ever.
    logins: int = 0
    lost: int = 0
    notes: int = 0
    # Of the notes, those that had waited for a login.
    waited: int = 0
    retractions: int = 0
    acks: int = 0
    errors: dict[str, int] = {}
    cpu_s: float = 0.0
    rss_bytes: int = 0
    # From sending to having it decrypted, of notes that came at once; and of logging in.
    latency: Histogram = msgspec.field(default_factory=Histogram)
    login: Histogram = msgspec.field(default_factory=Histogram)

    def fail(self, what: str) -> None:
        """Count an error."""
        if what not in self.errors and len(self.errors) >= _ERRORS_MAX:
            what = "others"
        self.errors[what] = self.errors.get(what, 0) + 1

    def merge(self, other: Tally) -> None:
        """Add another's counts."""
        for name in self.__struct_fields__:
            mine, its = getattr(self, name), getattr(other, name)
            if isinstance(mine, Histogram):
                mine.merge(its)
            elif isinstance(mine, dict):
                for what, count in its.items():
                    mine[what] = mine.get(what, 0) + count
            else:
                setattr(self, name, mine + its)

    def summary(self) -> dict[str, Any]:
        """All of it, with percentiles in place of buckets."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        del told["latency"], told["login"]
        told["cpu_s"] = round(self.cpu_s, 3)
        return told | {
            "latency_ms": self.latency.summary(),
            "login_ms": self.login.summary(),
        }
