"""The catalog of a journal: which queues its records tell of, and where their messages lie.

It says what is in the journal, apart from what the queues themselves know: those are ahead of it,
by what they are about to commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from chappe.log.journal import Journal
from chappe.queues.index import Indexes, LaneIndex, decode_indexes, encode_indexes
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.record import (
    AnyRecord,
    Made,
    Moved,
    Record,
    Removed,
    Snapshot,
    Stored,
    decode_records,
)
from chappe.queues.snapshot import restore
from chappe.queues.state import QueueState
from chappe.queues.storage import Key


class Catalog:
    """The queues in a journal by number, and per lane an index of its batches."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self.states: dict[int, QueueState] = {}
        self.indexes: Indexes = {}
        self._numbers: dict[Key, int] = {}
        self._next_number = 1

    def recover(self, journal: Journal) -> None:
        """Read what is in a journal, blocking; raises StorageError and OSError."""
        journal.index = self._index_of
        for batch in journal.recover():
            for record in decode_records(batch.body, batch.count):
                self._fold(record, batch.lsn)
        older: Indexes = {}
        for base in journal.bases[:-1]:
            # From the segment itself if its index is lost.
            raw = journal.read_index(base)
            decode_indexes(_rebuild(journal, base) if raw is None else raw, older)
        for place, newer in self.indexes.items():
            older.setdefault(place, LaneIndex()).take(*newer.since(0))
        live = self.states.keys()
        self.indexes = {place: index for place, index in older.items() if place[0] in live}

    def _fold(self, record: AnyRecord, lsn: int) -> None:
        """Take a record that is in the journal."""
        number = record.queue
        if isinstance(record, Snapshot):
            state = self.states[number] = restore(record)
            self._numbers[state.app, state.address] = number
        elif isinstance(record, Made) and number not in self.states:
            self.states[number] = QueueState(number, record.app, record.address, record.options)
            self._numbers[record.app, record.address] = number
        elif isinstance(record, Removed):
            self.drop(number)
            return
        self._next_number = max(self._next_number, number + 1)
        state_of = self.states.get(number)
        if state_of is None or isinstance(record, Snapshot):
            return
        if isinstance(record, Stored | Moved):
            index = self.indexes.setdefault((number, record.lane), LaneIndex())
            if isinstance(record, Moved):
                index.move(record.seq, lsn)
                return
            index.add(record.seq, lsn)
        state_of.apply(record, self._limits)

    def _index_of(self, base: int) -> bytes:
        return encode_indexes(self.indexes, base)

    def made(self) -> list[QueueState]:
        """All queues but those that are about to be made: they have no lanes."""
        return [state for state in self.states.values() if state.lanes]

    def find(self, key: Key) -> int | None:
        """The number of a queue; None if there is none."""
        return self._numbers.get(key)

    def begin(self, key: Key, options: QueueOptions) -> int:
        """Give a number to a queue that is about to be made."""
        number, self._next_number = self._next_number, self._next_number + 1
        self.states[number] = QueueState(number, *key, options)
        self._numbers[key] = number
        return number

    def keep(self, number: int, records: Sequence[Record], lsn: int) -> None:
        """Take records that are about to be in the journal, messages of a lane together."""
        kept = self.states[number]
        run: list[Stored] = []
        for record in records:
            if type(record) is Stored:
                if run and run[0].lane != record.lane:
                    self._keep_run(kept, run, lsn)
                    run = []
                run.append(record)
                continue
            if run:
                self._keep_run(kept, run, lsn)
                run = []
            kept.apply(record, self._limits)
        if run:
            self._keep_run(kept, run, lsn)

    def _keep_run(self, kept: QueueState, run: list[Stored], lsn: int) -> None:
        lane = run[0].lane
        kept.take(run, lane, self._limits)
        self.indexes.setdefault((kept.number, lane), LaneIndex()).add(run[0].seq, lsn)

    def drop(self, number: int) -> None:
        """A queue is no more."""
        state = self.states.pop(number, None)
        if state is not None:
            self._numbers.pop((state.app, state.address), None)
        for place in [place for place in self.indexes if place[0] == number]:
            del self.indexes[place]

    def head(self, number: int, lane: int) -> int:
        """The last message of a lane."""
        state = self.states.get(number)
        return 0 if state is None else state.heads.get(lane, 0)


def _rebuild(journal: Journal, base: int) -> bytes:
    found: Indexes = {}
    for batch in journal.scan(base):
        for record in decode_records(batch.body, batch.count):
            if isinstance(record, Stored | Moved):
                index = found.setdefault((record.queue, record.lane), LaneIndex())
                add = index.add if isinstance(record, Stored) else index.move
                add(record.seq, batch.lsn)
    raw = encode_indexes(found, base)
    journal.write_index(base, raw)
    return raw
