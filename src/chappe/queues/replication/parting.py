"""Where two logs part: up to there a replica's copy is what its master has (KIP-101).

    master   |--- epoch 1 ---|------ epoch 3 ------|        epoch 3 began where the master, then a
    replica  |--- epoch 1 -------|-- epoch 2 --|            replica, had the end of epoch 1
                             ^ they part here

An epoch has one master, who writes it from one position on. So two logs that have an epoch in
common are the same up to where it ends in either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Extent(NamedTuple):
    """A log: from where to where it is kept, and at which position each of its epochs began."""

    epochs: Sequence[tuple[int, int]]
    start: int
    end: int


def parting(master: Extent, replica: Extent) -> int | None:
    """The position where they part; None when the replica has to begin anew."""
    point = _common_end(master, replica)
    if point is None or point < master.start or point < replica.start:
        return None
    return point


def epoch_at(epochs: Sequence[tuple[int, int]], lsn: int) -> int:
    """The epoch in which a position was written."""
    return max((epoch for epoch, began in epochs if began <= lsn), default=0)


def _common_end(master: Extent, replica: Extent) -> int | None:
    if replica.end == 0:
        return 0
    began_here = dict(master.epochs)
    for epoch, began in reversed(replica.epochs):
        here = began_here.get(epoch)
        if here is not None and (here == began or _is_cut(began, replica) or _is_cut(here, master)):
            return min(_end(master, epoch), _end(replica, epoch))
    return None


def _end(log: Extent, epoch: int) -> int:
    return min((began for later, began in log.epochs if later > epoch), default=log.end)


def _is_cut(began: int, log: Extent) -> bool:
    """Whether a log was begun anew in an epoch, and so knows only the later part of it."""
    return began == log.start > 0
