"""Trimming: lets the journal go that nobody needs any more, and moves what little keeps it."""

from __future__ import annotations

from collections.abc import Callable

from chappe.errors import Overload, RequestError
from chappe.log.journal import Journal
from chappe.queues.catalog import Catalog
from chappe.queues.compaction import movable, oldest
from chappe.queues.index import LaneIndex
from chappe.queues.record import Moved, encode_record
from chappe.queues.state import QueueState
from chappe.queues.storage import Committed, Found

# How often, in messages that were done with, it is looked whether segments may go.
_TRIM_EVERY = 10_000
# Segments that may stay before anything is moved out of the oldest.
_SEGMENTS_KEPT = 4

Read = Callable[[QueueState, int, int, int, Callable[[Found], None]], None]


class Trimming:
    """Keeps a journal short: `follow` calls back when what was committed is durable, `read` finds
    messages to move."""

    def __init__(
        self, journal: Journal, catalog: Catalog, follow: Callable[[Committed], None], read: Read
    ) -> None:
        self._journal = journal
        self._catalog = catalog
        self._follow = follow
        self._read = read
        # Messages that were done with since it was looked last.
        self.passed = 0
        # Messages that are being read to be moved; and the bytes that moving has cost, since where.
        self._moving = 0
        self._moved_bytes = 0
        self.opened_at = 0

    def pass_over(self, count: int) -> None:
        """So many messages are done with."""
        self.passed += count
        if self.passed >= _TRIM_EVERY:
            self.trim()

    def trim(self) -> None:
        """Let the journal go that nobody needs any more."""
        self.passed = 0
        journal = self._journal
        if journal.failed is not None:
            return
        needed = journal.end
        states = self._catalog.states
        for (number, lane), index in self._catalog.indexes.items():
            state = states.get(number)
            place = None if state is None else oldest(state, lane, index)
            needed = needed if place is None else min(needed, place)
        # What makes them needless has to be on the disk before they go.
        self._follow(lambda error: self._let_go(needed) if error is None else None)

    def _let_go(self, needed: int) -> None:
        self._journal.trim(needed)
        for index in self._catalog.indexes.values():
            index.drop_below(self._journal.start)
        self._compact(needed)

    def _compact(self, needed: int) -> None:
        """Write down again what alone keeps the oldest segment, if that is little."""
        bases = self._journal.bases
        if len(bases) <= _SEGMENTS_KEPT or needed >= bases[1] or self._moving:
            return
        if not self._pays():
            return
        states = self._catalog.states
        moves = movable(states, self._catalog.indexes, bases[1])
        if moves:
            self._moving = len(moves)
            for number, lane, seq in moves:
                self._read(states[number], lane, seq, 1, self._move)

    def _pays(self) -> bool:
        """Whether moving is worth it: most of the log is waste, and moving most of what is written
        is not; it would feed itself."""
        journal = self._journal
        held = sum(state.waiting_bytes() for state in self._catalog.states.values())
        written = journal.end - self.opened_at
        return 2 * held < journal.end - journal.start and 2 * self._moved_bytes <= written

    def _move(self, found: Found) -> None:
        self._moving -= 1
        for message in found.messages:
            if message.queue not in self._catalog.states:
                continue
            record = Moved(message.queue, message.lane, message.seq, encode_record(message))
            self._write_moved(
                self._catalog.indexes[message.queue, message.lane], message.seq, record
            )

    def _write_moved(self, index: LaneIndex, seq: int, record: Moved) -> None:
        def moved(error: RequestError | None) -> None:
            if error is None:
                index.moved_to(seq, lsn)

        data = encode_record(record)
        try:
            lsn = self._journal.append([data], moved, freeing=True)
        except Overload:
            return  # when there is room again, it is tried again
        self._moved_bytes += len(data)
        index.moving[seq] = lsn
