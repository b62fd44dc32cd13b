"""Sampling: which messages are recorded, decided by the id alone, so that all nodes decide alike.

A hash of the id is compared with a threshold: what is recorded at a small share is recorded at
every larger one, too. The hash is a product modulo a prime. So ids that follow each other, as those
of a run do, are looked at together: what is chosen of them is known from the last one, or found by
bisection, and a run costs as much as a message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol, TypeVar

# A prime: shares are told apart to one in a hundred thousand.
_MODULUS = 99_991
# By the golden ratio, so that the chosen lie far from each other.
_FACTOR = 61_799


class Numbered(Protocol):
    """Something that has an id."""

    @property
    def id(self) -> int:
        """Its id."""
        ...


T = TypeVar("T", bound=Numbered)


class Sampling:
    """Chooses a share of all ids."""

    __slots__ = ("_at", "_begin", "_chosen", "_residues", "quiet_from", "quiet_until", "share")

    def __init__(self, share: float) -> None:
        count = round(share * _MODULUS)
        # As it is, not as it was meant.
        self.share = count / _MODULUS
        self._residues = [n for n in range(_MODULUS) if n * _FACTOR % _MODULUS < count]
        self._chosen = frozenset(self._residues)
        # None from here up to there is chosen, as was seen last. Where many messages are, most runs
        # lie in between: who has so many to ask about looks here first.
        self.quiet_from = self.quiet_until = 0
        # Where that end is among the residues.
        self._begin = self._at = 0
        self._seek(0)

    def takes(self, id: int) -> bool:
        """Whether what has this id is recorded."""
        return id % _MODULUS in self._chosen

    def of(self, messages: Sequence[T], *, growing: bool = False) -> Sequence[T]:
        """Those of them that are recorded, in their order.

        `growing`: each id is larger than the one before, as they are at the node that gave them.
        Then none need be looked at but the first and the last if none is missing in between. What
        came from another node may be of several that gave ids, or late.
        """
        first, ahead = messages[0].id, len(messages) - 1
        last = messages[-1].id
        if last - first != ahead or not (growing or _follow(messages, first)):
            chosen = self._chosen
            return [message for message in messages if message.id % _MODULUS in chosen]
        # None is missing between the first and the last.
        if not self.quiet_from <= first <= self.quiet_until:
            self._seek(first)
        one = self.quiet_until
        if one > last:
            return ()
        found = [messages[one - first]]
        while (one := self._step()) <= last:
            found.append(messages[one - first])
        return found

    def _seek(self, id: int) -> None:
        """Find the first that is chosen from an id on."""
        residues, residue = self._residues, id % _MODULUS
        self.quiet_from = id
        if not residues:
            self.quiet_until = _NEVER
            return
        self._begin, self._at = id - residue, bisect_left(residues, residue)
        if self._at == len(residues):
            self._begin, self._at = self._begin + _MODULUS, 0
        self.quiet_until = self._begin + residues[self._at]

    def _step(self) -> int:
        """Go on to the next that is chosen."""
        at = self._at + 1
        if at == len(self._residues):
            self._begin, at = self._begin + _MODULUS, 0
        self._at, self.quiet_from = at, self.quiet_until + 1
        self.quiet_until = one = self._begin + self._residues[at]
        return one


def _follow(messages: Sequence[Numbered], first: int) -> bool:
    """Whether each id is the one after that before it."""
    return [one.id for one in messages] == list(range(first, first + len(messages)))


# Beyond all ids.
_NEVER = 1 << 64
