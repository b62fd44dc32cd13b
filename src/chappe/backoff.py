"""Backoff: how long to wait before the next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


class Backoff:
    """Full jitter below a ceiling that doubles with each attempt."""

    __slots__ = ("_ceiling_s", "_first_s", "_max_s", "_rng")

    def __init__(self, first_s: float, max_s: float, rng: Random) -> None:
        self._first_s = self._ceiling_s = min(first_s, max_s)
        self._max_s = max_s
        self._rng = rng

    def next_s(self) -> float:
        """Draw the next delay."""
        delay = self._rng.uniform(0, self._ceiling_s)
        self._ceiling_s = min(self._ceiling_s * 2, self._max_s)
        return delay

    def stretch_s(self, delay_s: float) -> float:
        """A delay that was asked for, made longer by up to half, and by the first ceiling if 0."""
        return delay_s + self._rng.uniform(0, delay_s / 2 or self._first_s)

    def reset(self) -> None:
        """Begin anew: the last connection held."""
        self._ceiling_s = self._first_s
