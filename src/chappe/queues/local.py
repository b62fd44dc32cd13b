"""Storage in a journal: the queues of a broker in one log on this machine's disk (Q11).

    commit --> records --> the journal's next batch        one write, one sync for all queues
    read   --> index: which batches have the lane's messages --> the journal

A segment of the journal begins with a snapshot of all queues, so a start folds the last segment
only; of older ones it reads the index, which was written when they were sealed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from chappe.errors import Overload, RequestError, StorageError
from chappe.log.batch import Batch
from chappe.log.journal import Journal
from chappe.log.segment import Damage
from chappe.queues.compaction import movable, oldest
from chappe.queues.index import Indexes, LaneIndex, decode_indexes, encode_indexes
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.record import (
    DEAD_LANE,
    AnyRecord,
    Done,
    Made,
    Moved,
    Record,
    Registered,
    Removed,
    Snapshot,
    Stored,
    Tried,
    Unregistered,
    decode_records,
    encode_record,
    stored_in,
)
from chappe.queues.snapshot import copy_of, restore, snapshot_of
from chappe.queues.state import QueueState
from chappe.queues.storage import Committed, Found, Key

log = structlog.get_logger()

# Batches of messages that were read last.
_DECODED_MAX = 32
# How often, in messages that were done with, it is looked whether segments may go.
_TRIM_EVERY = 10_000
# What lets messages go, or lets somebody take them: a full journal has room for that.
_FREEING = (Done, Tried, Registered, Unregistered)
# What is asked for ahead.
_MARGIN_BYTES = 256 * 1024
# One read brings about so much, and one message at least.
_READ_BYTES = 1024 * 1024
# Segments that may stay before anything is moved out of the oldest.
_SEGMENTS_KEPT = 4


class Timer(Protocol):
    """What this needs of an event loop."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        """Call back after a while."""
        ...


def _frees(record: Record) -> bool:
    """Whether a full journal has room for a record; a dead letter takes the place of a message."""
    if isinstance(record, Stored):
        return record.lane == DEAD_LANE
    return isinstance(record, _FREEING)


class LocalStorage:
    """The records of queues in a journal."""

    kind = "local"
    immediate = False
    marks_ahead = True

    def __init__(self, limits: QueueLimits, timer: Timer) -> None:
        self._limits = limits
        self._timer = timer
        self._journal: Journal
        # What the records in the journal say, apart from what the queues themselves know: those are
        # ahead of it, by what they are about to commit.
        self._states: dict[int, QueueState] = {}
        self._numbers: dict[Key, int] = {}
        self._next_number = 1
        self._indexes: Indexes = {}
        self._decoded: OrderedDict[int, list[AnyRecord]] = OrderedDict()
        self._passed = 0
        # Messages that are being read to be moved; and the bytes that moving has cost, since where.
        self._moving = 0
        self._moved_bytes = 0
        self._opened_at = 0
        # So many bytes there is room for until the next commit.
        self._margin = 0
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
        older: Indexes = {}
        for base in journal.bases[:-1]:
            self._recall(base, older)
        for place, newer in self._indexes.items():
            older.setdefault(place, LaneIndex()).take(*newer.since(0))
        live = self._states.keys()
        self._indexes = {place: index for place, index in older.items() if place[0] in live}
        self._opened_at = journal.end

    def fold(self, record: AnyRecord, lsn: int) -> None:
        """Take a record that is in the journal."""
        number = record.queue
        if isinstance(record, Snapshot):
            state = self._states[number] = restore(record)
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
        if isinstance(record, Stored | Moved):
            index = self._indexes.setdefault((number, record.lane), LaneIndex())
            if isinstance(record, Moved):
                index.move(record.seq, lsn)
                return
            index.add(record.seq, lsn)
        state_of.apply(record, self._limits)

    def _recall(self, base: int, indexes: Indexes) -> None:
        """Read where messages lie in a sealed segment; from the segment if its index is lost."""
        raw = self._journal.read_index(base)
        if raw is None:
            raw = self._rebuild(base)
        decode_indexes(raw, indexes)

    def _rebuild(self, base: int) -> bytes:
        found: Indexes = {}
        for batch in self._journal.scan(base):
            for record in decode_records(batch.body, batch.count):
                if isinstance(record, Stored | Moved):
                    index = found.setdefault((record.queue, record.lane), LaneIndex())
                    add = index.add if isinstance(record, Stored) else index.move
                    add(record.seq, batch.lsn)
        raw = encode_indexes(found, base)
        self._journal.write_index(base, raw)
        return raw

    def _index_of(self, base: int) -> bytes:
        return encode_indexes(self._indexes, base)

    def snapshot(self) -> list[bytes]:
        """All queues, as the first records of a segment."""
        # Not now: what it moves goes to the end of the log, which is here.
        self._timer.call_later(0, self._trim)
        # One without lanes is about to be made.
        made = [state for state in self._states.values() if state.lanes]
        return [encode_record(snapshot_of(state)) for state in made]

    def known(self) -> list[QueueState]:
        return [copy_of(state) for state in self._states.values() if state.lanes]

    def open(
        self,
        key: Key,
        options: QueueOptions,
        opened: Callable[[QueueState | None, RequestError | None], None],
    ) -> None:
        number = self._numbers.get(key)
        if number is None:
            number, self._next_number = self._next_number, self._next_number + 1
            self._states[number] = QueueState(number, *key, options)
            self._numbers[key] = number
            opened(QueueState(number, *key, options), None)
        else:
            # What is under way may still fail, and cannot be read before it is there.
            self._follow(lambda error: self._opened(number, opened))

    def _opened(
        self, number: int, opened: Callable[[QueueState | None, RequestError | None], None]
    ) -> None:
        state = self._states.get(number)
        if self._journal.failed is not None or state is None:
            opened(None, Overload(self._journal.failed or "it was removed"))
        else:
            opened(copy_of(state), None)

    def check(self, size: int = 0, *, freeing: bool = False) -> None:
        if size < self._margin:
            return
        try:
            self._journal.check(size, freeing=freeing)
        except Overload:
            if self._passed:
                # Perhaps what was done with since is in the way.
                self._trim()
            raise
        if not freeing:
            # Room for some is room for one more: not each message of a turn has to ask.
            with suppress(Overload):
                self._journal.check(size + _MARGIN_BYTES)
                self._margin = size + _MARGIN_BYTES

    def commit(self, state: QueueState, records: Sequence[Record], done: Committed) -> None:
        self._margin = 0
        if not records:
            self._follow(done)
            return
        freeing = all(_frees(record) for record in records)
        followers: list[Committed] = []

        def committed(error: RequestError | None) -> None:
            if self._followers is followers:
                self._followers = None
            done(error)
            for follower in followers:
                follower(error)

        lsn = self._journal.append(list(map(encode_record, records)), committed, freeing=freeing)
        self._followers = followers
        self._keep(self._states[state.number], records, lsn)

    def _keep(self, kept: QueueState, records: Sequence[Record], lsn: int) -> None:
        """Take records that are about to be in the journal, messages of a lane together."""
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
        self._indexes.setdefault((kept.number, lane), LaneIndex()).add(run[0].seq, lsn)

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
        if index is None:
            got(Found([], max(seq - 1, state.heads.get(lane, 0))))
            return
        _Read(self, state.number, lane, index, seq, n, got).go_on()

    def discard(self, state: QueueState, lane: int, seqs: list[int]) -> None:
        index = self._indexes.get((state.number, lane))
        if index is not None and index.moved:
            index.forget(seqs)
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
        """What is known of a queue is what is in the journal; nothing, if it was never made."""
        kept = self._states.get(state.number)
        if kept is not None and not kept.lanes:
            self._drop(state.number)

    def _drop(self, number: int) -> None:
        state = self._states.pop(number, None)
        if state is not None:
            self._numbers.pop((state.app, state.address), None)
        for place in [place for place in self._indexes if place[0] == number]:
            del self._indexes[place]

    def _trim(self) -> None:
        """Let the journal go that nobody needs any more."""
        self._passed = 0
        journal = self._journal
        if journal.failed is not None:
            return
        needed = journal.end
        for (number, lane), index in self._indexes.items():
            state = self._states.get(number)
            place = None if state is None else oldest(state, lane, index)
            needed = needed if place is None else min(needed, place)
        # What makes them needless has to be on the disk before they go.
        self._follow(lambda error: self._let_go(needed) if error is None else None)

    def _let_go(self, needed: int) -> None:
        self._journal.trim(needed)
        for index in self._indexes.values():
            index.drop_below(self._journal.start)
        self._compact(needed)

    def _compact(self, needed: int) -> None:
        """Write down again what alone keeps the oldest segment, if that is little."""
        bases = self._journal.bases
        if len(bases) <= _SEGMENTS_KEPT or needed >= bases[1] or self._moving:
            return
        if not self._pays():
            return
        moves = movable(self._states, self._indexes, bases[1])
        if moves:
            self._moving = len(moves)
            for number, lane, seq in moves:
                self.read(self._states[number], lane, seq, 1, self._move)

    def _pays(self) -> bool:
        """Whether moving is worth it: most of the log is waste, and moving most of what is written
        is not; it would feed itself."""
        journal = self._journal
        held = sum(state.waiting_bytes() for state in self._states.values())
        written = journal.end - self._opened_at
        return 2 * held < journal.end - journal.start and 2 * self._moved_bytes <= written

    def _move(self, found: Found) -> None:
        self._moving -= 1
        for message in found.messages:
            if message.queue not in self._states:
                continue
            record = Moved(message.queue, message.lane, message.seq, encode_record(message))
            self._write_moved(self._indexes[message.queue, message.lane], message.seq, record)

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

    def records_at(self, batch: Batch) -> list[AnyRecord]:
        """The records of a batch; those read last are kept."""
        found = self._decoded.get(batch.lsn)
        if found is None:
            found = self._decoded[batch.lsn] = decode_records(batch.body, batch.count)
            if len(self._decoded) > _DECODED_MAX:
                self._decoded.popitem(last=False)
        return found

    def head(self, number: int, lane: int) -> int:
        """The last message of a lane."""
        state = self._states.get(number)
        return 0 if state is None else state.heads.get(lane, 0)

    @property
    def journal(self) -> Journal:
        """Where it all is."""
        return self._journal


class _Read:
    """Messages of a lane, batch after batch."""

    __slots__ = (
        "_answered",
        "_at",
        "_bytes",
        "_following",
        "_found",
        "_got",
        "_head",
        "_index",
        "_lane",
        "_moved",
        "_n",
        "_next",
        "_number",
        "_seq",
        "_storage",
        "_within",
    )

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
        self._head = storage.head(number, lane)
        self._found: list[Stored] = []
        self._bytes = 0
        # The message to find next; the batch that should have it, and the first one behind that.
        self._next = seq
        self._at = 0
        self._following: int | None = None
        self._moved = False
        # Whether `go_on` is under way, and is to look again: many batches may be in memory.
        self._within = False
        self._answered = False

    def go_on(self) -> None:
        """Read batch after batch, and tell what was found."""
        self._answered = True
        if self._within:
            return
        self._within = True
        while self._answered:
            self._answered = False
            self._step()
        self._within = False

    def _step(self) -> None:
        """Read the next batch, or tell what was found."""
        place = self._index.next(self._next)
        if place is None:
            self._end(self._head)
            return
        # Known before the batch is read: what lies where may have changed when it is.
        self._following = self._index.after(place)
        self._moved = self._index.is_moved(place)
        self._next, self._at = place
        if self._at >= self._storage.journal.flushed:
            self._end(self._next - 1)
            return
        try:
            self._storage.journal.read(self._at, self._read)
        except (Overload, StorageError) as error:
            self._got(Found([], self._seq - 1, StorageError(str(error))))

    def _read(self, batch: Batch | Damage) -> None:
        if isinstance(batch, Batch):
            self._pick(batch, self._following)
        elif self._at < self._storage.journal.start:
            self.go_on()  # its segment went while it was being read: it was moved before
            return
        elif batch.unread:
            self._got(Found([], self._seq - 1, StorageError(str(batch))))
            return
        else:
            log.error("messages damaged", segment=batch.segment, offset=batch.offset)
        if len(self._found) >= self._n or self._bytes >= _READ_BYTES:
            self._end(self._found[-1].seq)
        elif self._following is None:
            self._end(self._head)
        else:
            self._next = self._following
            self.go_on()

    def _pick(self, batch: Batch, following: int | None) -> None:
        """Take what is wanted of a batch: its own messages, or the one that was moved there."""
        kind = Moved if self._moved else Stored
        for record in self._storage.records_at(batch):
            if self._bytes >= _READ_BYTES or len(self._found) >= self._n:
                return
            if not isinstance(record, kind) or record.queue != self._number:
                continue
            seq, wanted = record.seq, self._next
            if record.lane != self._lane or seq < wanted or (self._moved and seq != wanted):
                continue
            if self._found and seq <= self._found[-1].seq:
                continue  # it was moved there more than once
            if following is None or seq < following:
                message = stored_in(record)
                if message is not None:
                    self._found.append(message)
                    self._bytes += len(message.payload)

    def _end(self, upto: int) -> None:
        self._got(Found(self._found, max(upto, self._seq - 1)))
