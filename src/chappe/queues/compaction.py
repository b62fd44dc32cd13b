"""Compaction: a few messages must not hold back a whole log.

A journal lets go of its oldest segment first. Where only a few of its messages are still needed
(dead letters, say, or those of a queue that nobody reads) they are written down again at the end,
and the segment can go.
"""

from __future__ import annotations

from chappe.queues.index import Indexes, LaneIndex
from chappe.queues.record import DEAD_GROUP, DEAD_LANE, DELAY_LANE
from chappe.queues.state import QueueState

# More than this are a backlog, which is what a log is for.
MOVES_MAX = 1_000


def live(state: QueueState, lane: int, among: range) -> list[int] | None:
    """The messages of a lane that somebody still needs; None when they are too many."""
    if lane == DELAY_LANE:
        return _few([seq for seq in state.delayed if seq in among])
    if lane == DEAD_LANE:
        return _few([seq for seq in state.groups[DEAD_GROUP].at(lane).open if seq in among])
    needed: set[int] = set()
    groups = list(state.readers())
    last = min(among.stop - 1, state.heads.get(lane, 0))
    fresh = last - max(among.start - 1, state.begun(lane))
    if fresh > MOVES_MAX:
        return None
    needed.update(range(last - fresh + 1, last + 1))
    for group in groups:
        needed.update(seq for seq in group.at(lane).open if seq in among and seq <= last)
    return _few(list(needed))


def _few(seqs: list[int]) -> list[int] | None:
    return sorted(seqs) if len(seqs) <= MOVES_MAX else None


def oldest(state: QueueState, lane: int, index: LaneIndex) -> int | None:
    """The position of the oldest message of a lane that somebody needs; None if nobody does."""
    low, head = state.low(lane), state.heads.get(lane, 0)
    if low >= head:
        return None
    positions = [place for seq, place in index.moved.items() if seq > low]
    if index.firsts:
        # Of those below the first batch that is there, all that are not gone were moved: whoever
        # begins late may want some that are, and must not be waited for with the rest.
        there = range(max(low + 1, index.firsts[0]), head + 1)
        needed = live(state, lane, there) if index.moved else None
        stays = there if needed is None else needed
        first = next((seq for seq in stays if seq not in index.moved), None)
        place = None if first is None else index.lsn_of(first)
        if place is not None:
            positions.append(place)
    return min(positions, default=None)


def movable(
    states: dict[int, QueueState], indexes: Indexes, upto: int
) -> list[tuple[int, int, int]] | None:
    """The messages that keep what lies before a position: queue, lane and seq; None if they are
    too many to be moved."""
    found: list[tuple[int, int, int]] = []
    for (number, lane), index in indexes.items():
        state = states.get(number)
        if state is None:
            continue
        among = index.below(upto)
        needed = live(state, lane, among) if len(among) else []
        if needed is None:
            return None
        held = [seq for seq in needed if seq not in index.moved]
        held += [seq for seq, lsn in index.moved.items() if lsn < upto]
        found += [(number, lane, seq) for seq in held]
        if len(found) > MOVES_MAX:
            return None
    return found
