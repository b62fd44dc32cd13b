"""Where the messages of a lane lie in a journal: for each batch with some of them, its first.

One entry per batch, not per message: ten million messages that wait cost a few megabytes. Messages
that were moved, because all others of their segment are done with, have an entry each.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from typing import Any

import msgspec

Place = tuple[int, int]


class LaneIndex:
    """The batches of one lane, ascending."""

    __slots__ = ("firsts", "lsns", "moved", "moved_seqs", "moving")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.lsns = array("Q")
        self.moved: dict[int, int] = {}
        self.moved_seqs: list[int] = []
        # Those that were written down again, and are not yet durable there.
        self.moving: dict[int, int] = {}

    def add(self, seq: int, lsn: int) -> None:
        """A message lies in the batch at that position."""
        if not self.lsns or self.lsns[-1] != lsn:
            if self.firsts and seq <= self.firsts[-1]:
                return  # known already
            self.firsts.append(seq)
            self.lsns.append(lsn)

    def move(self, seq: int, lsn: int) -> None:
        """A message lies in that batch now."""
        if seq not in self.moved:
            insort(self.moved_seqs, seq)
        self.moved[seq] = max(lsn, self.moved.get(seq, 0))

    def moved_to(self, seq: int, lsn: int) -> None:
        """A message that was being moved is durable in its new place."""
        if self.moving.get(seq) == lsn:
            del self.moving[seq]
            self.move(seq, lsn)

    def next(self, seq: int) -> Place | None:
        """The batch that has a message, or the first one after it: from which seq on it has them,
        and its position. None beyond the last."""
        at = bisect_left(self.moved_seqs, seq)
        moved = self.moved_seqs[at] if at < len(self.moved_seqs) else None
        if not self.firsts or (moved is not None and moved < self.firsts[0]):
            return None if moved is None else (moved, self.moved[moved])
        found = max(0, bisect_right(self.firsts, seq) - 1)
        return max(seq, self.firsts[found]), self.lsns[found]

    def after(self, place: Place) -> int | None:
        """The first message behind those of a batch that `next` gave; None behind the last."""
        seq, lsn = place
        if self.is_moved(place):
            at = bisect_right(self.moved_seqs, seq)
            if at < len(self.moved_seqs) and (
                not self.firsts or self.moved_seqs[at] < self.firsts[0]
            ):
                return self.moved_seqs[at]
            return self.firsts[0] if self.firsts else None
        following = bisect_right(self.lsns, lsn)
        return self.firsts[following] if following < len(self.firsts) else None

    def is_moved(self, place: Place) -> bool:
        """Whether what `next` gave is the place of one message that was moved."""
        seq, lsn = place
        return self.moved.get(seq) == lsn and (not self.firsts or seq < self.firsts[0])

    def lsn_of(self, seq: int) -> int | None:
        """Where a message lies; None if it is nowhere."""
        if seq in self.moved:
            return self.moved[seq]
        at = bisect_right(self.firsts, seq) - 1
        return self.lsns[at] if at >= 0 else None

    def below(self, lsn: int) -> range:
        """The messages whose batches lie before a position."""
        at = bisect_left(self.lsns, lsn)
        if not at:
            return range(0)
        last = self.firsts[at] if at < len(self.firsts) else None
        return range(self.firsts[0], last if last is not None else 1 << 62)

    def drop_below(self, lsn: int) -> None:
        """Forget batches before a position: they are gone."""
        at = bisect_left(self.lsns, lsn)
        if at:
            del self.firsts[:at], self.lsns[:at]
        for seq in [seq for seq, place in self.moved.items() if place < lsn]:
            del self.moved[seq]
            self.moved_seqs.remove(seq)

    def forget(self, seqs: list[int]) -> None:
        """These messages are done with."""
        for seq in seqs:
            self.moving.pop(seq, None)
            if self.moved.pop(seq, None) is not None:
                self.moved_seqs.remove(seq)

    def since(self, lsn: int) -> list[Any]:
        """The entries from a position on."""
        at = bisect_left(self.lsns, lsn)
        places = (*self.moved.items(), *self.moving.items())
        moved = [(seq, place) for seq, place in places if place >= lsn]
        return [list(self.firsts[at:]), list(self.lsns[at:]), moved]

    def take(self, firsts: list[int], lsns: list[int], moved: list[Place]) -> None:
        """Take over entries of a later segment."""
        for seq, lsn in zip(firsts, lsns, strict=True):
            self.add(seq, lsn)
        for seq, lsn in moved:
            self.move(seq, lsn)


# By number of the queue, and lane.
Indexes = dict[tuple[int, int], LaneIndex]


def encode_indexes(indexes: Indexes, base: int) -> bytes:
    """The entries of the segment that begins there."""
    entries = []
    for (number, lane), index in indexes.items():
        some = index.since(base)
        if some[0] or some[2]:
            entries.append((number, lane, *some))
    return msgspec.msgpack.encode(entries)


def decode_indexes(raw: bytes, indexes: Indexes) -> None:
    """Take over the entries of a segment."""
    for number, lane, firsts, lsns, moved in msgspec.msgpack.decode(raw):
        indexes.setdefault((number, lane), LaneIndex()).take(firsts, lsns, moved)
