"""How far a journal is copied: which segment is next, and which have to stay until they are.

The journal itself is the queue of what waits: its segments are copied in order, and none that waits
is let go. Only what is committed is copied, so that nothing is that a new master would take back.
"""

from __future__ import annotations

from bisect import bisect_right

import structlog

from chappe.log.journal import Journal
from chappe.log.parquet.order import QUEUES, Order
from chappe.log.parquet.retention import Retention
from chappe.log.segment import Segments

log = structlog.get_logger()


class Copies:
    """The copies of one journal."""

    def __init__(
        self,
        broker: str,
        journal: Journal,
        waiting_bytes_max: int,
        *,
        kind: str = QUEUES,
        folder: str = "",
        retention: Retention | None = None,
    ) -> None:
        self.broker = broker
        self._kind = kind
        self._folder = folder
        self._retention = retention or Retention()
        self.journal = journal
        self._waiting_bytes_max = waiting_bytes_max
        self._segments = Segments(journal.folder)
        # All below was copied, or passed over; what was copied earlier is found out by asking.
        self._end = -1
        # Segments that nobody copied: they had to go before, or could not be.
        self.missed = 0
        # Whether the journal was closed: then its last segment is over, too.
        self.whole = False
        before = journal.keep
        journal.keep = lambda base: self.keeps(base) or (before is not None and before(base))

    def next(self) -> Order | None:
        """The oldest segment that is not copied, if there is one that can be."""
        bases = self._bounds()
        at = bisect_right(bases, self._end - 1)
        if at + 1 >= len(bases) or bases[at + 1] > self.journal.committed:
            return None
        base, end = bases[at], bases[at + 1]
        if 0 <= self._end < base:
            self._miss(self._end, "it had to go")
            self._end = base
        return self._order(base, end)

    def _bounds(self) -> list[int]:
        """Where segments begin that are over, and where the last of them ends."""
        bases = self.journal.bases
        if self.whole and bases and self.journal.flushed > bases[-1]:
            bases.append(self.journal.flushed)
        return bases

    def _order(self, base: int, end: int) -> Order:
        path = self._segments.path(base)
        return Order(self.broker, path, base, end, self._kind, self._folder, self._retention)

    @property
    def waiting(self) -> int:
        """How many segments are sealed and not copied."""
        bases = self._bounds()
        return max(0, len(bases) - 1 - bisect_right(bases, self._end - 1))

    def keeps(self, base: int) -> bool:
        """Whether a segment has to stay, since it is not copied yet."""
        most = self._waiting_bytes_max
        return base >= self._end and not 0 < most < self.journal.end - base

    def copied(self, order: Order) -> None:
        """A segment is copied: it may go."""
        self._end = order.end
        if not self.whole:
            self.journal.trim(0)

    def pass_over(self, order: Order, reason: str) -> None:
        """Go on without a segment."""
        self._miss(order.base, reason)
        self.copied(order)

    def _miss(self, base: int, reason: str) -> None:
        self.missed += 1
        log.error("segment not copied", segment=self._segments.path(base), reason=reason)
