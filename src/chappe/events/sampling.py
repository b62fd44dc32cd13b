"""Sampling: which messages are recorded, decided by the id alone, so that all nodes decide alike.

A hash of the id is compared with a threshold: what is recorded at a small share is recorded at
every larger one, too. The hash is a product modulo a prime. So ids that follow each other, as those
of a run do, are looked at together: what is chosen of them is found by bisection, and a run costs
as much as a message.
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

    __slots__ = ("_chosen", "_from", "_residues", "_until", "share")

    def __init__(self, share: float) -> None:
        count = round(share * _MODULUS)
        # As it is, not as it was meant.
        self.share = count / _MODULUS
        self._residues = [n for n in range(_MODULUS) if n * _FACTOR % _MODULUS < count]
        self._chosen = frozenset(self._residues)
        # None from here up to there is chosen: where many messages are, most runs lie in between.
        self._from = self._until = 0

    def takes(self, id: int) -> bool:
        """Whether what has this id is recorded."""
        return id % _MODULUS in self._chosen

    def of(self, messages: Sequence[T]) -> Sequence[T]:
        """Those of them that are recorded; their ids grow, as they do at the node that gave them.

        Of others, too: they only cost more.
        """
        first, ahead = messages[0].id, len(messages) - 1
        if not ahead:
            return messages if first % _MODULUS in self._chosen else ()
        last = messages[-1].id
        if last - first != ahead:
            return self._each(messages)
        # None is missing between the first and the last.
        if self._from <= first and last < self._until:
            return ()
        residues, low = self._residues, first % _MODULUS
        at = bisect_left(residues, low)
        if at == len(residues) or low + ahead >= _MODULUS:
            return self._each(messages)
        begin = residues[at]
        if begin > low + ahead:
            self._from, self._until = first, first - low + begin
            return ()
        return [messages[n - low] for n in residues[at : bisect_left(residues, low + ahead + 1)]]

    def _each(self, messages: Sequence[T]) -> Sequence[T]:
        chosen = self._chosen
        return [message for message in messages if message.id % _MODULUS in chosen]
