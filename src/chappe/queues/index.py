"""Where the messages of a lane lie in a journal: for each batch with some of them, its first.

One entry per batch, not per message: ten million messages that wait cost a few megabytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right


class LaneIndex:
    """The batches of one lane, ascending."""

    __slots__ = ("firsts", "lsns")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.lsns = array("Q")

    def __len__(self) -> int:
        return len(self.firsts)

    def add(self, seq: int, lsn: int) -> None:
        """A message lies in the batch at that position."""
        if not self.lsns or self.lsns[-1] != lsn:
            if self.firsts and seq <= self.firsts[-1]:
                return  # known already
            self.firsts.append(seq)
            self.lsns.append(lsn)

    def find(self, seq: int) -> int:
        """The entry of the batch that has a message, if it is there at all."""
        return max(0, bisect_right(self.firsts, seq) - 1)

    def lsn_of(self, seq: int) -> int | None:
        """The position of the batch that has a message or the next one; None beyond the last."""
        return self.lsns[self.find(seq)] if self.lsns else None

    def since(self, lsn: int) -> tuple[list[int], list[int]]:
        """The entries from a position on."""
        at = bisect_left(self.lsns, lsn)
        return list(self.firsts[at:]), list(self.lsns[at:])

    def drop_below(self, lsn: int) -> None:
        """Forget batches before a position: they are gone."""
        at = bisect_left(self.lsns, lsn)
        if at:
            del self.firsts[:at], self.lsns[:at]
