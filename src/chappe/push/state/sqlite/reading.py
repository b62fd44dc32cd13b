"""Rows of a push file as records, some at a time, from the one after that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sqlite3 import Connection
from typing import Any, Protocol

import msgspec

from chappe.push.app import PushApp
from chappe.push.job import Job, Tally
from chappe.push.note import Note
from chappe.push.state.record import (
    App,
    Body,
    Bridge,
    Click,
    JobDone,
    Marked,
    Named,
    Nonce,
    Owner,
    Record,
    Subscriber,
    Token,
    Topic,
    TopicNote,
    Use,
    Wait,
    Waiting,
)
from chappe.push.state.sqlite.meta import NEVER_MS

TABLES = {
    "meta": ("apps", "jobs", "clicks", "nonces", "records", "uses"),
    "user": ("clients", "tokens", "bridges"),
    "message": ("bodies", "waiting"),
    "topic": ("topics", "topic_notes", "subscriptions"),
}
# Rows in a page: some hundred kilobytes; of bodies, which may be sixty each, ten megabytes.
PAGE_ROWS = 1000
PAGE_BODIES = 200
# Clients in a page, each with all that waits for it, or all its topics.
PAGE_CLIENTS = 100

Key = tuple[Any, ...]
Page = tuple[Sequence[Record], Key]


class Reader(Protocol):
    """Gives the records after a key, and the last one's; None: there are no more."""

    def __call__(self, connection: Connection, /, after: Key | None) -> Page | None:
        """Read a page."""
        ...


_decode_app = msgspec.msgpack.Decoder(PushApp).decode
_decode_job = msgspec.msgpack.Decoder(Job).decode
_decode_note = msgspec.msgpack.Decoder(Note).decode
_decode_beyond = msgspec.msgpack.Decoder(tuple[int, ...]).decode
_COUNTED = Tally.__struct_fields__


def _rows(
    columns: str, table: str, keys: int, make: Callable[..., Record], rows: int = PAGE_ROWS
) -> Reader:
    """Read a table in the order of its first columns, so many of them its key."""
    key = ", ".join(columns.split(", ")[:keys])
    after_that = f" WHERE ({key}) > ({', '.join('?' * keys)})"
    start = f"SELECT {columns} FROM {table}"  # noqa: S608 - our own names
    end = f" ORDER BY {key} LIMIT {rows}"

    def read(connection: Connection, after: Key | None) -> Page | None:
        reading = start + (after_that if after else "") + end
        found = connection.execute(reading, after or ()).fetchall()
        return ([make(*row) for row in found], found[-1][:keys]) if found else None

    return read


def _job(id: str, body: bytes, cancelled_ms: int, *counted: int) -> JobDone:
    job = msgspec.structs.replace(_decode_job(body), cancelled_ms=cancelled_ms)
    return JobDone(job, Tally(**dict(zip(_COUNTED, counted, strict=True))))


def _named(name: str, value: bytes, expires_ms: int) -> Named:
    return Named(name, bytes(value), 0 if expires_ms == NEVER_MS else expires_ms)


def _topic_note(
    app: str, topic: str, position: int, note: str, expires_ms: int, collapse: bytes | None
) -> TopicNote:
    return TopicNote(app, topic, position, note, expires_ms, collapse or b"")


def _tokens(connection: Connection, after: Key | None) -> Page | None:
    """Those whose clients are there: nobody logs in with another."""
    reading = "SELECT digest, client, expires_ms FROM tokens {} ORDER BY digest LIMIT ?"
    where = "WHERE digest > ?" if after else ""
    rows = connection.execute(reading.format(where), (*(after or ()), PAGE_ROWS)).fetchall()
    there = "SELECT 1 FROM clients WHERE id = ?"
    held = [row for row in rows if connection.execute(there, (row[1],)).fetchone()]
    return ([Token(bytes(row[0]), *row[1:]) for row in held], rows[-1][:1]) if rows else None


def _waiting(connection: Connection, after: Key | None) -> Page | None:
    listing = "SELECT DISTINCT client FROM waiting WHERE client > ? ORDER BY client LIMIT ?"
    clients = connection.execute(listing, (*(after or ("",)), PAGE_CLIENTS)).fetchall()
    reading = "SELECT note, expires_ms, collapse FROM waiting WHERE client = ? ORDER BY number"
    found = [(client, connection.execute(reading, (client,)).fetchall()) for (client,) in clients]
    records = [
        Waiting(client, tuple(Wait(note, -(-ms // 1000), same or b"") for note, ms, same in rows))
        for client, rows in found
    ]
    return (records, clients[-1]) if clients else None


def _subscribers(connection: Connection, after: Key | None) -> Page | None:
    where = "WHERE (app, client) > (?, ?)" if after else ""
    listing = f"SELECT DISTINCT app, client FROM subscriptions {where} ORDER BY app, client LIMIT ?"  # noqa: S608
    clients = connection.execute(listing, (*(after or ()), PAGE_CLIENTS)).fetchall()
    reading = (
        "SELECT topic, position, beyond FROM subscriptions WHERE app = ? AND client = ? "
        "ORDER BY topic"
    )
    records = []
    for app, client in clients:
        rows = connection.execute(reading, (app, client)).fetchall()
        marks = (Marked(topic, max(0, at), _decode_beyond(beyond)) for topic, at, beyond in rows)
        records.append(Subscriber(app, client, tuple(marks)))
    return (records, clients[-1]) if clients else None


READERS: dict[str, tuple[Reader, ...]] = {
    "meta": (
        _rows("key, body", "apps", 1, lambda _, body: App(_decode_app(body))),
        _rows(f"id, body, cancelled_ms, {', '.join(_COUNTED)}", "jobs", 1, _job),
        _rows("client, note, expires_ms", "clicks", 2, Click),
        _rows("nonce, expires_ms", "nonces", 1, Nonce),
        _rows("name, value, expires_ms", "records", 1, _named),
        _rows("name, count, expires_ms", "uses", 1, Use),
    ),
    "user": (
        _rows("id, app, device, user", "clients", 1, Owner),
        _tokens,
        _rows("client, kind, value", "bridges", 2, Bridge),
    ),
    "message": (
        _rows("id, body", "bodies", 1, lambda _, body: Body(_decode_note(body)), PAGE_BODIES),
        _waiting,
    ),
    "topic": (
        _rows("app, topic, position", "topics", 2, Topic),
        _rows("app, topic, position, note, expires_ms, collapse", "topic_notes", 3, _topic_note),
        _subscribers,
    ),
}
