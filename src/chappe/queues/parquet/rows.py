"""Rows: what the records of a journal say, as tables have it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chappe.log.batch import Batch
from chappe.queues.record import (
    AnyRecord,
    Done,
    Made,
    Registered,
    Removed,
    Snapshot,
    Stored,
    Tried,
    Unregistered,
)

Row = dict[str, Any]


class Rows:
    """Turns records into rows, in the order of the journal: queues are known by their numbers,
    and a segment begins with the names of all."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._names: dict[int, tuple[str, str]] = {}

    def learn(self, record: AnyRecord) -> None:
        """Note the name of a queue if the record has one; before its rows are made."""
        if isinstance(record, Made | Snapshot):
            self._names[record.queue] = (record.app, record.address)

    def message(self, record: AnyRecord, batch: Batch) -> Row | None:
        """The row of a message that got a place in a lane."""
        if not isinstance(record, Stored) or record.lane < 1:
            return None
        return self._place(record, batch) | {
            "lane": record.lane,
            "seq": record.seq,
            "message": record.id,
            "ts": record.ts_ms,
            "sender": record.sender,
            "type": record.type,
            "num": record.num,
            "key": record.key,
            "headers": None if record.headers is None else list(record.headers.items()),
            "tags": record.tags,
            "consumers": record.consumers,
            "producer": record.producer,
            "producer_seq": record.producer_seq,
            "payload": record.payload,
            "binary": record.binary,
        }

    def events(self, record: AnyRecord, batch: Batch) -> Iterator[Row]:
        """The rows of what happened."""
        place = self._place(record, batch)
        for event in _events(record):
            yield place | event

    def _place(self, record: AnyRecord, batch: Batch) -> Row:
        app, queue = self._names.get(record.queue, (None, None))
        return {
            "broker": self._broker,
            "lsn": batch.lsn,
            "written_at": batch.ts_ms,
            "app": app,
            "queue": queue,
        }


def _events(record: AnyRecord) -> Iterator[Row]:
    if isinstance(record, Done):
        pairs = zip(record.ranges[::2], record.ranges[1::2], strict=False)
        for first, last in pairs:
            yield _seqs("done", record.lane, first, last) | {"group_name": record.group}
    elif isinstance(record, Tried):
        # With 0, all up to it may have been given once.
        first_seq = record.seq if record.attempts else None
        yield _seqs("tried", record.lane, first_seq, record.seq) | {
            "group_name": record.group,
            "attempts": record.attempts or 1,
        }
    elif isinstance(record, Stored):
        yield from _aside(record)
    elif isinstance(record, Registered | Unregistered):
        event = "registered" if isinstance(record, Registered) else "unregistered"
        yield {"event": event, "group_name": record.group, "consumer": record.consumer or None}
    elif isinstance(record, Made | Removed):
        yield {"event": "made" if isinstance(record, Made) else "removed"}


def _aside(record: Stored) -> Iterator[Row]:
    """A message that is not to be delivered now."""
    death = record.death
    if death is not None and record.lane < 1:
        yield _seqs("dead", death.lane, death.seq, death.seq) | {
            "group_name": death.group,
            "attempts": death.attempts,
            "message": record.id,
            "reason": death.reason,
            "place": record.seq,
        }
    elif record.lane < 1:
        yield _seqs("delayed", record.lane, record.seq, record.seq) | {
            "message": record.id,
            "due": record.due_ms,
            "place": record.seq,
        }


def _seqs(event: str, lane: int, first: int | None, last: int) -> Row:
    return {"event": event, "lane": lane, "first_seq": first, "last_seq": last}
