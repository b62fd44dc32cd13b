"""Storage in a journal: the queues of a broker in one log on this machine's disk (Q11).

    commit --> records --> the journal's next batch        one write, one sync for all queues
    read   --> index: which batches have the lane's messages --> the journal

A segment of the journal begins with a snapshot of all queues, so a start folds the last segment
only; of older ones it reads the index, which was written when they were sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from chappe.errors import Overload, RequestError
from chappe.log.journal import Journal
from chappe.queues.catalog import Catalog
from chappe.queues.options import QueueLimits, QueueOptions
from chappe.queues.reading import Readings
from chappe.queues.record import (
    DEAD_LANE,
    Done,
    Record,
    Registered,
    Removed,
    Stored,
    Tried,
    Unregistered,
    encode_record,
)
from chappe.queues.snapshot import copy_of, snapshot_of
from chappe.queues.state import QueueState
from chappe.queues.storage import Committed, Found, Key
from chappe.queues.trimming import Trimming
from chappe.queues.untold import Retelling, Untold

# What lets messages go, or lets somebody take them: a full journal has room for that.
_FREEING = (Done, Tried, Registered, Unregistered)
# What is asked for ahead.
_MARGIN_BYTES = 256 * 1024


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
        self._timer = timer
        self._catalog = Catalog(limits)
        self._journal: Journal
        self._readings: Readings
        self._trimming: Trimming
        # So many bytes there is room for until the next commit.
        self._margin = 0
        # Who is told together with the commit that was begun last; None when all have ended.
        self._followers: list[Committed] | None = None

    @property
    def journal(self) -> Journal:
        """Where it all is."""
        return self._journal

    def recover(self, journal: Journal) -> None:
        """Read what is in a journal that was made with `snapshot`, blocking; raises StorageError
        and OSError."""
        self._journal = journal
        self._readings = Readings(journal)
        self._trimming = Trimming(journal, self._catalog, self._follow, self.read)
        self._catalog.recover(journal)
        self._trimming.opened_at = journal.end

    def untold(self, lsn: int, until_ms: int, epoch: int | None = None) -> Iterator[Untold]:
        """What was written from a position on, up to that time and in no later epoch, of which
        nobody may have been told; blocking. Raises OSError and StorageError."""
        return Retelling(self._journal, self._catalog).since(lsn, until_ms, epoch)

    def snapshot(self) -> list[bytes]:
        """All queues, as the first records of a segment."""
        # Not now: what it moves goes to the end of the log, which is here.
        self._timer.call_later(0, self._trimming.trim)
        return [encode_record(snapshot_of(state)) for state in self._catalog.made()]

    def known(self) -> list[QueueState]:
        return [copy_of(state) for state in self._catalog.made()]

    def open(
        self,
        key: Key,
        options: QueueOptions,
        opened: Callable[[QueueState | None, RequestError | None], None],
    ) -> None:
        number = self._catalog.find(key)
        if number is None:
            number = self._catalog.begin(key, options)
            opened(QueueState(number, *key, options), None)
        else:
            # What is under way may still fail, and cannot be read before it is there.
            self._follow(lambda error: self._opened(number, opened))

    def _opened(
        self, number: int, opened: Callable[[QueueState | None, RequestError | None], None]
    ) -> None:
        state = self._catalog.states.get(number)
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
            if self._trimming.passed:
                # Perhaps what was done with since is in the way.
                self._trimming.trim()
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
        self._catalog.keep(state.number, records, lsn)

    def _follow(self, done: Committed) -> None:
        """Call back when all that was committed before is durable."""
        if self._followers is None:
            done(None)
        else:
            self._followers.append(done)

    def read(
        self, state: QueueState, lane: int, seq: int, n: int, got: Callable[[Found], None]
    ) -> None:
        number = state.number
        index = self._catalog.indexes.get((number, lane))
        if index is None:
            got(Found([], max(seq - 1, state.heads.get(lane, 0))))
            return
        head = self._catalog.head(number, lane)
        self._readings.begin(number, lane, index, head, seq, n, got)

    def discard(self, state: QueueState, lane: int, seqs: list[int]) -> None:
        index = self._catalog.indexes.get((state.number, lane))
        if index is not None and index.moved:
            index.forget(seqs)
        self._trimming.pass_over(len(seqs))

    def remove(self, state: QueueState, done: Committed) -> None:
        self._catalog.drop(state.number)
        try:
            self._journal.append([encode_record(Removed(state.number))], done, freeing=True)
        except Overload as error:
            done(error)
        self._trimming.trim()

    def forget(self, state: QueueState) -> None:
        """What is known of a queue is what is in the journal; nothing, if it was never made."""
        kept = self._catalog.states.get(state.number)
        if kept is not None and not kept.lanes:
            self._catalog.drop(state.number)
