"""Reading: the messages of a lane, found in a journal batch after batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import structlog

from chappe.errors import Overload, StorageError
from chappe.log.batch import Batch
from chappe.log.journal import Journal
from chappe.log.segment import Damage
from chappe.queues.index import LaneIndex
from chappe.queues.record import AnyRecord, Moved, Stored, decode_records, stored_in
from chappe.queues.storage import Found

log = structlog.get_logger()

# Batches of messages that were read last.
_DECODED_MAX = 32
# One read brings about so much, and one message at least.
_READ_BYTES = 1024 * 1024


class Readings:
    """Reads from one journal."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._decoded: OrderedDict[int, list[AnyRecord]] = OrderedDict()

    def begin(
        self,
        number: int,
        lane: int,
        index: LaneIndex,
        head: int,
        seq: int,
        n: int,
        got: Callable[[Found], None],
    ) -> None:
        """Find up to `n` messages of a lane that ends with `head`, from a seq on."""
        _Reading(self, number, lane, index, head, seq, n, got).go_on()

    def records_at(self, batch: Batch) -> list[AnyRecord]:
        """The records of a batch; those read last are kept."""
        found = self._decoded.get(batch.lsn)
        if found is None:
            found = self._decoded[batch.lsn] = decode_records(batch.body, batch.count)
            if len(self._decoded) > _DECODED_MAX:
                self._decoded.popitem(last=False)
        return found


class _Reading:
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
        "_readings",
        "_seq",
        "_within",
    )

    def __init__(
        self,
        readings: Readings,
        number: int,
        lane: int,
        index: LaneIndex,
        head: int,
        seq: int,
        n: int,
        got: Callable[[Found], None],
    ) -> None:
        self._readings = readings
        self._number = number
        self._lane = lane
        self._index = index
        self._seq = seq
        self._n = n
        self._got = got
        self._head = head
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
        if self._at >= self._readings.journal.flushed:
            self._end(self._next - 1)
            return
        try:
            self._readings.journal.read(self._at, self._read)
        except (Overload, StorageError) as error:
            self._got(Found([], self._seq - 1, StorageError(str(error))))

    def _read(self, batch: Batch | Damage) -> None:
        if isinstance(batch, Batch):
            self._pick(batch, self._following)
        elif self._at < self._readings.journal.start:
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
        for record in self._readings.records_at(batch):
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
                    self._bytes += len(message.payload) + message.extra

    def _end(self, upto: int) -> None:
        self._got(Found(self._found, max(upto, self._seq - 1)))
