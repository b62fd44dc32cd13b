"""Runs: what of messages is kept, taken from many of them at once (record.py says what they are).

What all have in common is said once, and ids that follow each other are told by the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from chappe.events.record import (
    APP,
    AT,
    ATTEMPT,
    BYTES,
    CAME,
    DUE,
    FOLLOWING,
    MESSAGE,
    SENDER,
    SHARE,
    TARGET,
    N,
    Run,
)
from chappe.events.recorder import Lent, Queued
from chappe.message import Message

_ID, _SENDER, _PAYLOAD = attrgetter("id"), attrgetter("sender"), attrgetter("payload")
NONE: dict[int, Sequence[Any]] = {}
_HOUR_US = 3_600_000_000


def run_of_messages(
    kind: str, messages: Sequence[Message], shared: dict[int, Any], *, own: bool
) -> Run:
    """A run of several messages to one address; `own`: their ids are of this node, so they grow."""
    first, count = messages[0], len(messages)
    each: dict[int, Sequence[Any]] = {}
    if own and messages[-1].id - first.id == count - 1:
        shared[FOLLOWING] = first.id
    else:
        _put_ids(messages, shared, each)
    _put(SENDER, list(map(_SENDER, messages)), shared, each)
    _put(BYTES, list(map(len, map(_PAYLOAD, messages))), shared, each)
    return kind, count, shared, each


# A message that was alone, and went to sessions of its own node: there are very many.
Row = tuple[int, str, int, str, str, int, int, int]
_ROW = (AT, APP, MESSAGE, SENDER, TARGET, CAME, N, BYTES)


def runs_of_rows(kind: str, rows: Sequence[Row], share: float) -> list[Run]:
    """What became of messages one by one, told together; those of an hour, at least."""
    shared = {SHARE: share}
    if rows[0][0] // _HOUR_US == rows[-1][0] // _HOUR_US:
        return [(kind, len(rows), shared, dict(zip(_ROW, zip(*rows, strict=True), strict=True)))]
    return [(kind, 1, shared | dict(zip(_ROW, row, strict=True)), NONE) for row in rows]


def run_of_stored(messages: Sequence[Queued], shared: dict[int, Any]) -> Run:
    """A run of messages that a queue has."""
    each: dict[int, Sequence[Any]] = {}
    _put_ids(messages, shared, each)
    _put(SENDER, list(map(_SENDER, messages)), shared, each)
    _put(BYTES, list(map(len, map(_PAYLOAD, messages))), shared, each)
    if any(message.due_ms is not None for message in messages):
        due = [None if one.due_ms is None else one.due_ms * 1000 for one in messages]
        _put(DUE, due, shared, each)
    return "stored", len(messages), shared, each


def run_of_lent(kind: str, items: Sequence[Lent], shared: dict[int, Any]) -> Run:
    """A run of messages that were in the hands of a group."""
    each: dict[int, Sequence[Any]] = {}
    _put_ids([item.record for item in items], shared, each)
    _put(ATTEMPT, [item.attempts for item in items], shared, each)
    return kind, len(items), shared, each


def retold_run(kind: str, message: Queued, shared: dict[int, Any]) -> Run:
    """One event of an earlier life, as a queue's journal tells it."""
    shared[MESSAGE] = message.id
    if kind == "stored":
        shared |= {SENDER: message.sender, BYTES: len(message.payload)}
        shared[CAME] = message.ts_ms * 1000
        if message.due_ms is not None:
            shared[DUE] = message.due_ms * 1000
    return kind, 1, shared, NONE


def queue_event(at: int, app: str, queue: str, told: dict[int, Any]) -> dict[int, Any]:
    """What all events of a queue have."""
    return {AT: at, APP: app, TARGET: queue, **told}


def _put_ids(
    messages: Sequence[Any], shared: dict[int, Any], each: dict[int, Sequence[Any]]
) -> None:
    first, last, count = messages[0].id, messages[-1].id, len(messages)
    if count == 1:
        shared[MESSAGE] = first
        return
    ids = list(map(_ID, messages))
    if last - first == count - 1 and ids == list(range(first, last + 1)):
        shared[FOLLOWING] = first
    else:
        each[MESSAGE] = ids


def _put(
    column: int, values: list[Any], shared: dict[int, Any], each: dict[int, Sequence[Any]]
) -> None:
    """Say what is the same for all of them once."""
    if values.count(values[0]) == len(values):
        shared[column] = values[0]
    else:
        each[column] = values


def mark_of(session: str) -> str:
    """What a session is told by: enough to tell it from all others, too little to be it. Who knows
    the whole id of a session that polls can speak for it."""
    return session[:12]
