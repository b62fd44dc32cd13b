"""Untold: what became durable in a journal, of which its node had no time to tell anybody.

A node that is killed between the write of a batch and its callbacks has told nobody of what is in
it: neither those who wait for an answer, nor the event log. The journal knows. Up to where it was
told is known, too: so from there on the node's next life reads it, and tells the rest. What another
node wrote meanwhile, as its master, that node told: each master has an epoch of its own, and every
batch says in which it was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from chappe.log.batch import LSN_MAX, Batch
from chappe.log.journal import Journal
from chappe.queues.catalog import Catalog
from chappe.queues.filter import wants
from chappe.queues.record import (
    DEAD_GROUP,
    DEAD_LANE,
    DELAY_GROUP,
    AnyRecord,
    Done,
    Stored,
    decode_records,
    stored_in,
)

# What a group of a queue's own is done with is gone from there: taken back, or purged.
_GONE = {DELAY_GROUP: "cancelled", DEAD_GROUP: "purged"}


class Untold(NamedTuple):
    """One thing that happened to a message: a kind of event."""

    kind: str
    app: str
    queue: str
    at_ms: int
    message: Stored
    group: str = ""
    attempts: int = 0
    reason: str = ""


class Retelling:
    """Reads again what is in a journal, blocking, once its catalog is recovered."""

    def __init__(self, journal: Journal, catalog: Catalog) -> None:
        self._journal = journal
        self._catalog = catalog
        # Messages by queue, lane and seq, as far as they were met.
        self._known: dict[tuple[int, int, int], Stored] = {}
        self._buried: set[tuple[int, str, int, int]] = set()

    def since(self, lsn: int, until_ms: int, epoch: int | None = None) -> Iterator[Untold]:
        """What was written from a position on, up to that time, and in no later epoch than this.
        Raises OSError and StorageError."""
        for base, end in pairwise((*self._journal.bases, LSN_MAX)):
            if end <= lsn:
                continue
            for batch in self._journal.scan(base):
                if batch.ts_ms > until_ms or (epoch is not None and batch.epoch > epoch):
                    return
                if batch.lsn >= lsn:
                    yield from self._told_by(batch)

    def _told_by(self, batch: Batch) -> Iterator[Untold]:
        records = [
            one
            for one in decode_records(batch.body, batch.count)
            if one.queue in self._catalog.states
        ]
        self._learn(records)
        messages = [one for one in records if isinstance(one, Stored)]
        placed = {(one.queue, one.id) for one in messages if one.lane > 0}
        done = [self._done(one, batch.ts_ms, placed) for one in records if isinstance(one, Done)]
        # What left another lane for an ordinary one was stored before.
        again = {
            (one.message.queue, one.message.id)
            for facts in done
            for one in facts
            if one.kind in ("replayed", "released")
        }
        for message in messages:
            if message.lane <= 0 or (message.queue, message.id) not in again:
                yield self._stored(message, batch.ts_ms)
        for facts in done:
            yield from (fact for fact in facts if fact.kind != "released")

    def _learn(self, records: list[AnyRecord]) -> None:
        for record in records:
            message = stored_in(record)
            if message is not None:
                self._known[record.queue, message.lane, message.seq] = message
            if isinstance(record, Stored) and record.death is not None:
                death = record.death
                self._buried.add((record.queue, death.group, death.lane, death.seq))

    def _stored(self, message: Stored, at_ms: int) -> Untold:
        state, death = self._catalog.states[message.queue], message.death
        if message.lane != DEAD_LANE or death is None:
            return Untold("stored", state.app, state.address, at_ms, message)
        fate = (death.group, death.attempts, death.reason)
        return Untold("died", state.app, state.address, at_ms, message, *fate)

    def _done(self, record: Done, at_ms: int, placed: set[tuple[int, int]]) -> list[Untold]:
        """What it says that a group is done with messages."""
        state = self._catalog.states[record.queue]
        group = state.groups.get(record.group)
        gone = _GONE.get(record.group)
        found: list[Untold] = []
        for seq in _seqs(record.ranges):
            message = self._find(record.queue, record.lane, seq)
            if message is None:
                continue
            if gone is not None:
                left = (record.queue, message.id) in placed
                kind = gone if not left else _LEFT[record.group]
                found.append(Untold(kind, state.app, state.address, at_ms, message))
            elif (record.queue, record.group, record.lane, seq) not in self._buried and (
                group is None or (not group.expected and wants(group, message))
            ):
                found.append(
                    Untold("acked", state.app, state.address, at_ms, message, record.group)
                )
        return found

    def _find(self, queue: int, lane: int, seq: int) -> Stored | None:
        """A message by its place; None when it is no longer kept."""
        known = self._known.get((queue, lane, seq))
        index = self._catalog.indexes.get((queue, lane))
        if known is not None or index is None:
            return known
        lsn = index.lsn_of(seq)
        batch = None if lsn is None else self._journal.look(lsn)
        if batch is not None:
            self._learn(decode_records(batch.body, batch.count))
        return self._known.get((queue, lane, seq))


# What becomes of those that got a place in an ordinary lane in the same commit.
_LEFT = {DELAY_GROUP: "released", DEAD_GROUP: "replayed"}


def _seqs(ranges: list[int]) -> Iterator[int]:
    for first, last in zip(ranges[::2], ranges[1::2], strict=True):
        yield from range(first, last + 1)
