"""A token bucket on a clock that is passed in."""

from __future__ import annotations


class Bucket:
    """Lets `per_s` tokens a second through, and up to one second's worth at once."""

    __slots__ = ("_level", "_then", "per_s")

    def __init__(self, per_s: float, now: float) -> None:
        self.per_s = per_s
        self._level = per_s
        self._then = now

    def level(self, now: float) -> float:
        """How many tokens there are now."""
        self._level = min(self.per_s, self._level + (now - self._then) * self.per_s)
        self._then = now
        return self._level

    def take(self, tokens: float) -> None:
        """Take tokens that `level` has shown to be there."""
        self._level -= tokens

    def give_back(self, tokens: float) -> None:
        """Return what was taken and not used."""
        self._level = min(self.per_s, self._level + tokens)
