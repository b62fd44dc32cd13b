"""How far a subscriber has got in a topic, and what a comet knows of the topic's notes.

A mark may be moved past a position only if all that is before it was settled. Notes may overtake
each other on their way here, and one may never come, so what was handed to a device does not say
what there is: the store does. What it listed for a session is complete from the session's mark on
(`known`); what it listed for the topic is complete from a floor on, and serves all its subscribers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence

from chappe.push.comet.session import DeviceSession
from chappe.push.state.topic import BEYOND_MAX, Mark

# Positions that are remembered of a topic; a subscriber who is further behind lists anew.
POSITIONS_MAX = 512


class Progress:
    """One subscriber of one topic."""

    __slots__ = ("_known", "beyond", "mark")

    def __init__(self, mark: Mark) -> None:
        self.mark = mark.position
        # Settled positions above the mark, in order; most have none.
        self.beyond: list[int] | None = list(mark.beyond) or None
        self._known: list[int] | None = None

    def has(self, position: int) -> bool:
        """Whether that note is settled."""
        beyond = self.beyond
        if beyond is None or position <= self.mark:
            return position <= self.mark
        at = bisect_left(beyond, position)
        return at < len(beyond) and beyond[at] == position

    def settle(self, position: int) -> bool:
        """A note is settled; whether it was not before."""
        if self.has(position):
            return False
        if self.beyond is None:
            self.beyond = [position]
        else:
            insort(self.beyond, position)
        if self._known is not None:
            self._known = self._known[self.climb(self._known) :] or None
        return True

    def listed(self, positions: Iterable[int]) -> None:
        """The store says that these come after the mark, and no others among them."""
        known = list(positions)
        self._known = known[self.climb(known) :] or None

    def climb(self, positions: Sequence[int]) -> int:
        """Move the mark along a complete list of positions as far as they are settled; how many of
        them that are."""
        at = bisect_right(positions, self.mark)
        while at < len(positions) and self.has(positions[at]):
            self.mark = positions[at]
            at += 1
        self._trim()
        return at

    def absorb(self, other: Progress) -> None:
        """What another has settled is settled here."""
        self.mark = max(self.mark, other.mark)
        for position in other.beyond or ():
            self.settle(position)
        self._trim()

    def _trim(self) -> None:
        """Keep only what is above the mark."""
        if self.beyond is not None:
            self.beyond = self.beyond[bisect_right(self.beyond, self.mark) :] or None

    def as_mark(self) -> Mark:
        """What the store is told."""
        return Mark(self.mark, tuple((self.beyond or ())[:BEYOND_MAX]))


class LocalTopic:
    """A topic that sessions of this comet subscribe to."""

    __slots__ = ("_ids", "floor", "name", "positions", "sessions", "verified")

    def __init__(self, name: str, mark: int) -> None:
        self.name = name
        self.sessions: dict[DeviceSession, None] = {}
        # Between these two all positions are known, in order.
        self.floor = self.verified = mark
        self.positions: list[int] = []
        self._ids: list[str] = []

    def verify(self, listed: Iterable[tuple[int, str]]) -> None:
        """The store says that these come after what is known, and no others among them."""
        for position, note_id in listed:
            if position > self.verified:
                self.positions.append(position)
                self._ids.append(note_id)
                self.verified = position
        excess = len(self.positions) - POSITIONS_MAX
        if excess > 0:
            self.floor = self.positions[excess - 1]
            del self.positions[:excess], self._ids[:excess]

    def take_out(self, note_id: str) -> None:
        """Nobody gets that note any more, so nobody need settle it."""
        if note_id in self._ids:
            at = self._ids.index(note_id)
            del self.positions[at], self._ids[at]

    def lift(self, progress: Progress) -> None:
        """Move a subscriber's mark as far as is known here."""
        if progress.beyond and progress.mark >= self.floor:
            progress.climb(self.positions)
