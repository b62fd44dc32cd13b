"""Records as rows of a push file, in place of those that they are of."""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection
from typing import Any

import msgspec

from chappe.push.state.meta import JOB_MS
from chappe.push.state.record import (
    App,
    Body,
    Bridge,
    Click,
    JobDone,
    Named,
    Nonce,
    Owner,
    Record,
    Subscriber,
    Token,
    Topic,
    TopicNote,
    Use,
    Waiting,
)
from chappe.push.state.sqlite.meta import NEVER_MS

_encode = msgspec.msgpack.Encoder().encode

# Not REPLACE: another app of the same name, or another client of the device, must not go unseen.
_APP = (
    "INSERT INTO apps VALUES (?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET name = excluded.name, body = excluded.body"
)
_OWNER = (
    "INSERT INTO clients VALUES (?, ?, ?, ?) ON CONFLICT (id) "
    "DO UPDATE SET app = excluded.app, device = excluded.device, user = excluded.user"
)
_WAIT = "INSERT INTO waiting (client, note, expires_ms, collapse) VALUES (?, ?, ?, ?)"
# On no server: who is connected now, connects again.
_SUBSCRIBE = "INSERT INTO subscriptions VALUES (?, ?, ?, -1, ?, ?)"


def _replacing(table: str, row: Callable[[Any], tuple[object, ...]]) -> Callable[..., None]:
    def write(connection: Connection, record: Record) -> None:
        values = row(record)
        writing = f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(values))})"  # noqa: S608
        connection.execute(writing, values)

    return write


def _app(connection: Connection, record: App) -> None:
    connection.execute(_APP, (record.app.key, record.app.name, _encode(record.app)))


def _job(record: JobDone) -> tuple[object, ...]:
    job = record.job
    known = (job.id, job.app, job.created_ms, job.created_ms + JOB_MS, job.cancelled_ms)
    return (*known, _encode(job), *msgspec.structs.astuple(record.tally))


def _owner(connection: Connection, record: Owner) -> None:
    connection.execute(_OWNER, (record.id, record.app, record.device, record.user))


def _waiting(connection: Connection, record: Waiting) -> None:
    connection.execute("DELETE FROM waiting WHERE client = ?", (record.client,))
    rows = [
        (record.client, note.note, note.expires_s * 1000, note.collapse or None)
        for note in record.notes
    ]
    connection.executemany(_WAIT, rows)


def _topic_note(record: TopicNote) -> tuple[object, ...]:
    known = (record.app, record.topic, record.position, record.note, record.expires_ms)
    return (*known, record.collapse or None)


def _subscriber(connection: Connection, record: Subscriber) -> None:
    who = (record.app, record.client)
    connection.execute("DELETE FROM subscriptions WHERE app = ? AND client = ?", who)
    rows = [(*who, mark.topic, mark.position, _encode(mark.beyond)) for mark in record.marks]
    connection.executemany(_SUBSCRIBE, rows)


WRITERS: dict[type[Record], Callable[..., None]] = {
    App: _app,
    JobDone: _replacing("jobs", _job),
    Click: _replacing("clicks", msgspec.structs.astuple),
    Nonce: _replacing("nonces", msgspec.structs.astuple),
    Named: _replacing("records", lambda r: (r.name, r.value, r.expires_ms or NEVER_MS)),
    Use: _replacing("uses", msgspec.structs.astuple),
    Owner: _owner,
    Token: _replacing("tokens", msgspec.structs.astuple),
    Bridge: _replacing("bridges", msgspec.structs.astuple),
    Body: _replacing("bodies", lambda r: (r.note.id, r.note.expires_ms, _encode(r.note))),
    Waiting: _waiting,
    Topic: _replacing("topics", msgspec.structs.astuple),
    TopicNote: _replacing("topic_notes", _topic_note),
    Subscriber: _subscriber,
}
