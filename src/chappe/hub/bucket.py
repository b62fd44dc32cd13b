"""A token bucket on a clock that is passed in."""

from __future__ import annotations


class Bucket:
    """Lets `per_s` tokens a second through, and up to one second's worth at once."""

    __slots__ = ("_level", "_per_s", "_then")

    def __init__(self, per_s: float, now: float) -> None:
        self._per_s = per_s
        self._level = per_s
        self._then = now

    def take(self, most: float, now: float) -> float:
        """Take up to `most` tokens; return how many there were."""
        level = min(self._per_s, self._level + (now - self._then) * self._per_s)
        taken = min(most, level)
        self._level = level - taken
        self._then = now
        return taken

    def give_back(self, tokens: float) -> None:
        """Return what was taken and not used."""
        self._level = min(self._per_s, self._level + tokens)
