"""Rows: what the records of a journal say, as tables have it (schema.py, in the same order)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

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

Row = tuple[Any, ...]


class Place(NamedTuple):
    """What rows of both tables begin with."""

    broker: str
    lsn: int
    written_at: int
    app: str | None
    queue: str | None


class Message(NamedTuple):
    """A message that got a place in a lane."""

    lane: int
    seq: int
    message: int
    ts: int
    sender: str
    type: int
    num: int | None
    key: str | None
    headers: list[tuple[str, str]] | None
    tags: list[str] | None
    consumers: list[str] | None
    producer: str | None
    producer_seq: int | None
    payload: bytes
    binary: bool


class Event(NamedTuple):
    """Something that happened."""

    event: str
    lane: int | None = None
    first_seq: int | None = None
    last_seq: int | None = None
    group_name: str | None = None
    consumer: str | None = None
    attempts: int | None = None
    message: int | None = None
    reason: str | None = None
    due: int | None = None
    place: int | None = None


class Rows:
    """Turns records into rows, in the order of the journal: queues are known by their numbers,
    and a segment begins with the names of all."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._names: dict[int, tuple[str, str]] = {}

    def place(self, record: AnyRecord, batch: Batch) -> Place:
        """Where a record belongs; to be asked of each, in order."""
        if isinstance(record, Made | Snapshot):
            self._names[record.queue] = (record.app, record.address)
        names = self._names.get(record.queue, (None, None))
        return Place(self._broker, batch.lsn, batch.ts_ms, *names)


def message_in(record: AnyRecord) -> Message | None:
    """The message that got a place in a lane, if one did."""
    if not isinstance(record, Stored) or record.lane < 1:
        return None
    headers = record.headers
    return Message(
        record.lane,
        record.seq,
        record.id,
        record.ts_ms,
        record.sender,
        record.type,
        record.num,
        record.key,
        None if headers is None else list(headers.items()),
        record.tags,
        record.consumers,
        record.producer,
        record.producer_seq,
        record.payload,
        record.binary,
    )


def events_in(record: AnyRecord) -> Iterator[Event]:
    """What happened."""
    if isinstance(record, Done):
        for first, last in zip(record.ranges[::2], record.ranges[1::2], strict=False):
            yield Event("done", record.lane, first, last, record.group)
    elif isinstance(record, Tried):
        # With 0, all up to it may have been given once.
        first_seq = record.seq if record.attempts else None
        attempts = record.attempts or 1
        yield Event("tried", record.lane, first_seq, record.seq, record.group, attempts=attempts)
    elif isinstance(record, Stored):
        if record.lane < 1:
            yield _aside(record)
    elif isinstance(record, Registered | Unregistered):
        event = "registered" if isinstance(record, Registered) else "unregistered"
        yield Event(event, group_name=record.group, consumer=record.consumer or None)
    elif isinstance(record, Made | Removed):
        yield Event("made" if isinstance(record, Made) else "removed")


def _aside(record: Stored) -> Event:
    """A message that is not to be delivered now."""
    death, lane, seq = record.death, record.lane, record.seq
    if death is None:
        due = record.due_ms
        return Event("delayed", lane, seq, seq, message=record.id, due=due, place=seq)
    return Event(
        "dead",
        death.lane,
        death.seq,
        death.seq,
        death.group,
        attempts=death.attempts,
        message=record.id,
        reason=death.reason,
        place=seq,
    )
