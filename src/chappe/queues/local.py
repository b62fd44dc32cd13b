"""Storage in a journal: the queues of a broker in one log on this machine's disk (Q11).

    commit --> records --> the journal's next batch        one write, one sync for all queues
    read   --> index: which batches have the lane's messages --> the journal

A segment of the journal begins with a snapshot of all queues, so a start folds the last segment
only; of older ones it reads the index, which was written when they were sealed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import structlog

from chappe.errors import Overload, RequestError, StorageError
from chappe.log.batch import Batch
from chappe.log.journal import Journal
from chappe.log.segment import Damage
from chappe.queues.index import LaneIndex
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.record import (
    AnyRecord,
    Done,
    Made,
    Record,
    Removed,
    Snapshot,
    Stored,
    Tried,
    decode_records,
    encode_record,
)
from chappe.queues.state import QueueState
from chappe.queues.storage import Committed, Found, Key

log = structlog.get_logger()

# Batches of messages that were read last.
_DECODED_MAX = 32
# How often, in messages that were done with, it is looked whether segments may go.
_TRIM_EVERY = 10_000
# Until what was under way when a commit failed has come to an end.
_REOPEN_S = 0.05

_Index = dict[tuple[int, int], LaneIndex]


class Timer(Protocol):
    """What this needs of an event loop."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        """Call back after a while."""
        ...


class LocalStorage:
    """The records of queues in a journal."""

    kind = "local"
    immediate = False
    marks_ahead = True

    def __init__(self, limits: QueueLimits, timer: Timer) -> None:
        self._limits = limits
        self._timer = timer
        self._journal: Journal
        self._states: dict[int, QueueState] = {}
        self._numbers: dict[Key, int] = {}
        self._next_number = 1
        self._indexes: _Index = {}
        self._decoded: OrderedDict[int, list[AnyRecord]] = OrderedDict()
        # Queues whose commit failed: what is known of them here is not what is on the disk.
        self._stale: set[int] = set()
        self._passed = 0
        # Who is told together with the commit that was begun last; None when all have ended.
        self._followers: list[Committed] | None = None

    def recover(self, journal: Journal) -> None:
        """Read what is in a journal that was made with `snapshot`, blocking; raises StorageError
        and OSError."""
        self._journal = journal
        journal.index = self._index_of
        for batch in journal.recover():
            for record in decode_records(batch.body, batch.count):
                self.fold(record, batch.lsn)
        folded = journal.bases[-1] if journal.bases else 0
        older: _Index = {}
        for base in journal.bases[:-1]:
            self._recall(base, older)
        for place, newer in self._indexes.items():
            index = older.setdefault(place, LaneIndex())
            for seq, lsn in zip(newer.firsts, newer.lsns, strict=True):
                if lsn >= folded:
                    index.add(seq, lsn)
        live = set(self._states)
        self._indexes = {place: index for place, index in older.items() if place[0] in live}

    def fold(self, record: AnyRecord, lsn: int) -> None:
        """Take a record that is in the journal."""
        number = record.queue
        if isinstance(record, Snapshot):
            state = self._states[number] = QueueState.restore(record)
            self._numbers[state.app, state.address] = number
        elif isinstance(record, Made) and number not in self._states:
            self._states[number] = QueueState(number, record.app, record.address, record.options)
            self._numbers[record.app, record.address] = number
        elif isinstance(record, Removed):
            self._drop(number)
            return
        self._next_number = max(self._next_number, number + 1)
        state_of = self._states.get(number)
        if state_of is None or isinstance(record, Snapshot):
            return
        if isinstance(record, Stored):
            self._indexes.setdefault((number, record.lane), LaneIndex()).add(record.seq, lsn)
        state_of.apply(record, self._limits)

    def _recall(self, base: int, indexes: _Index) -> None:
        """Read where messages lie in a sealed segment; from the segment if its index is lost."""
        raw = self._journal.read_index(base)
        if raw is None:
            raw = self._rebuild(base)
        for number, lane, firsts, lsns in msgspec.msgpack.decode(raw):
            index = indexes.setdefault((number, lane), LaneIndex())
            for seq, lsn in zip(firsts, lsns, strict=True):
                index.add(seq, lsn)

    def _rebuild(self, base: int) -> bytes:
        found: _Index = {}
        for batch in self._journal.scan(base):
            for record in decode_records(batch.body, batch.count):
                if isinstance(record, Stored):
                    place = (record.queue, record.lane)
                    found.setdefault(place, LaneIndex()).add(record.seq, batch.lsn)
        raw = _encode_index(found, base)
        self._journal.write_index(base, raw)
        return raw

    def _index_of(self, base: int) -> bytes:
        return _encode_index(self._indexes, base)

    def snapshot(self) -> list[bytes]:
        """All queues, as the first records of a segment."""
        self._trim()
        return [encode_record(state.snapshot()) for state in self._states.values()]

    def known(self) -> list[QueueState]:
        return list(self._states.values())

    def open(
        self,
        key: Key,
        options: QueueOptions,
        opened: Callable[[QueueState | None, RequestError | None], None],
    ) -> None:
        number = self._numbers.get(key)
        if number is None:
            number, self._next_number = self._next_number, self._next_number + 1
            state = self._states[number] = QueueState(number, *key, options)
            self._numbers[key] = number
            opened(state, None)
        elif number not in self._stale:
            opened(self._states[number], None)
        else:
            self._reopen(number, opened)

    def _reopen(
        self, number: int, opened: Callable[[QueueState | None, RequestError | None], None]
    ) -> None:
        """Fold a queue anew, once what was under way has come to an end."""
        journal = self._journal
        if journal.failed is not None:
            opened(None, Overload(journal.failed))
        elif journal.flushed != journal.end:
            self._timer.call_later(_REOPEN_S, lambda: self._reopen(number, opened))
        else:
            before = self._states.pop(number)
            try:
                for base in journal.bases[-1:]:
                    for batch in journal.scan(base):
                        for record in decode_records(batch.body, batch.count):
                            if record.queue == number:
                                self.fold(record, batch.lsn)
            except (StorageError, OSError) as error:
                self._states[number] = before
                opened(None, Overload(f"{before.address} cannot be read: {error}"))
                return
            state = self._states.setdefault(
                number, QueueState(number, before.app, before.address, before.options)
            )
            self._stale.discard(number)
            opened(state, None)

    def check(self) -> None:
        self._journal.check()

    def commit(self, state: QueueState, records: Sequence[Record], done: Committed) -> None:
        if not records:
            self._follow(done)
            return
        freeing = all(type(record) in (Done, Tried) for record in records)
        followers: list[Committed] = []

        def committed(error: RequestError | None) -> None:
            if self._followers is followers:
                self._followers = None
            done(error)
            for follower in followers:
                follower(error)

        lsn = self._journal.append(
            [encode_record(record) for record in records], committed, freeing=freeing
        )
        self._followers = followers
        indexes, number = self._indexes, state.number
        for record in records:
            if type(record) is Stored:
                index = indexes.get((number, record.lane))
                if index is None:
                    index = indexes[number, record.lane] = LaneIndex()
                index.add(record.seq, lsn)

    def _follow(self, done: Committed) -> None:
        """Call back when all that was committed before is durable."""
        if self._followers is None:
            done(None)
        else:
            self._followers.append(done)

    def read(
        self, state: QueueState, lane: int, seq: int, n: int, got: Callable[[Found], None]
    ) -> None:
        index = self._indexes.get((state.number, lane))
        if index is None or not len(index):
            got(Found([], max(seq - 1, state.heads.get(lane, 0))))
            return
        _Read(self, state.number, lane, index, seq, n, got).go_on()

    def discard(self, state: QueueState, lane: int, seqs: list[int]) -> None:
        self._passed += len(seqs)
        if self._passed >= _TRIM_EVERY:
            self._trim()

    def remove(self, state: QueueState, done: Committed) -> None:
        self._drop(state.number)
        try:
            self._journal.append([encode_record(Removed(state.number))], done, freeing=True)
        except Overload as error:
            done(error)
        self._trim()

    def forget(self, state: QueueState) -> None:
        if state.number in self._states:
            self._stale.add(state.number)

    def _drop(self, number: int) -> None:
        state = self._states.pop(number, None)
        if state is not None:
            self._numbers.pop((state.app, state.address), None)
        self._stale.discard(number)
        for place in [place for place in self._indexes if place[0] == number]:
            del self._indexes[place]

    def _trim(self) -> None:
        """Let the journal go that nobody needs any more."""
        self._passed = 0
        journal = self._journal
        needed = journal.end
        for (number, lane), index in self._indexes.items():
            state = self._states.get(number)
            if state is None or lane not in state.heads:
                continue
            low = state.low(lane)
            if low < state.heads[lane]:
                lsn = index.lsn_of(low + 1)
                needed = needed if lsn is None else min(needed, lsn)
        journal.trim(needed)
        for index in self._indexes.values():
            index.drop_below(journal.start)

    def records_at(self, batch: Batch) -> list[AnyRecord]:
        """The records of a batch; those read last are kept."""
        found = self._decoded.get(batch.lsn)
        if found is None:
            found = self._decoded[batch.lsn] = decode_records(batch.body, batch.count)
            if len(self._decoded) > _DECODED_MAX:
                self._decoded.popitem(last=False)
        return found

    @property
    def journal(self) -> Journal:
        """Where it all is."""
        return self._journal


class _Read:
    """Messages of a lane, batch after batch."""

    __slots__ = ("_at", "_found", "_got", "_index", "_lane", "_n", "_number", "_seq", "_storage")

    def __init__(
        self,
        storage: LocalStorage,
        number: int,
        lane: int,
        index: LaneIndex,
        seq: int,
        n: int,
        got: Callable[[Found], None],
    ) -> None:
        self._storage = storage
        self._number = number
        self._lane = lane
        self._index = index
        self._seq = seq
        self._n = n
        self._got = got
        self._found: list[Stored] = []
        # The first message of the batch to read next.
        self._at = index.firsts[index.find(seq)]

    def go_on(self) -> None:
        """Read the next batch, or tell what was found."""
        index = self._index
        at = index.find(self._at)
        if not len(index) or index.lsns[at] >= self._storage.journal.flushed:
            self._end(self._at - 1)
            return
        try:
            self._storage.journal.read(index.lsns[at], self._read)
        except Overload as error:
            self._got(Found([], self._seq - 1, StorageError(str(error))))

    def _read(self, batch: Batch | Damage) -> None:
        index = self._index
        if isinstance(batch, Batch):
            for record in self._storage.records_at(batch):
                if (
                    type(record) is Stored
                    and record.queue == self._number
                    and record.lane == self._lane
                    and record.seq >= self._seq
                    and len(self._found) < self._n
                ):
                    self._found.append(record)
        else:
            log.error("messages damaged", segment=batch.segment, offset=batch.offset)
        following = index.find(self._at) + 1
        if len(self._found) >= self._n:
            self._end(self._found[-1].seq)
        elif following >= len(index):
            last = self._found[-1].seq if self._found else self._at
            self._end(max(last, self._seq - 1))
        else:
            self._at = index.firsts[following]
            self.go_on()

    def _end(self, upto: int) -> None:
        self._got(Found(self._found, max(upto, self._seq - 1)))


def _encode_index(indexes: _Index, base: int) -> bytes:
    """The entries of one segment."""
    entries = []
    for (number, lane), index in indexes.items():
        firsts, lsns = index.since(base)
        if firsts:
            entries.append((number, lane, firsts, lsns))
    return msgspec.msgpack.encode(entries)
