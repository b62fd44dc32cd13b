"""The tables of a push file, and the sweep of what expired in them.

Rows that expire carry their time: reads leave out what is past it, and the sweep deletes it.
"""

from __future__ import annotations

import sqlite3

from chappe.store.database import Schema

# Raised with each change of the tables.
SCHEMA_VERSION = 2
# "ChpP": tells our files from other databases, and from stores.
APPLICATION_ID = 0x43687050

_TABLES = """
CREATE TABLE apps (key TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, body BLOB NOT NULL);

CREATE TABLE jobs (
    id TEXT PRIMARY KEY, app TEXT NOT NULL, created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL, cancelled_ms INTEGER NOT NULL, body BLOB NOT NULL,
    aimed INTEGER NOT NULL, sent INTEGER NOT NULL DEFAULT 0, arrived INTEGER NOT NULL DEFAULT 0,
    clicked INTEGER NOT NULL DEFAULT 0, offline INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX jobs_of_app ON jobs (app, created_ms, id);
CREATE INDEX jobs_expire ON jobs (expires_ms);

CREATE TABLE clicks (
    client TEXT NOT NULL, note TEXT NOT NULL, expires_ms INTEGER NOT NULL,
    PRIMARY KEY (client, note)
);
CREATE INDEX clicks_expire ON clicks (expires_ms);

CREATE TABLE nonces (nonce TEXT PRIMARY KEY, expires_ms INTEGER NOT NULL);
CREATE INDEX nonces_expire ON nonces (expires_ms);

CREATE TABLE records (name TEXT PRIMARY KEY, value BLOB NOT NULL, expires_ms INTEGER NOT NULL);
CREATE INDEX records_expire ON records (expires_ms);

CREATE TABLE uses (name TEXT PRIMARY KEY, count INTEGER NOT NULL, expires_ms INTEGER NOT NULL);
CREATE INDEX uses_expire ON uses (expires_ms);

CREATE TABLE clients (
    id TEXT PRIMARY KEY, app TEXT NOT NULL, device TEXT NOT NULL, user TEXT, UNIQUE (app, device)
);
CREATE INDEX clients_of_user ON clients (app, user) WHERE user IS NOT NULL;

CREATE TABLE tokens (
    digest BLOB PRIMARY KEY, client TEXT NOT NULL, expires_ms INTEGER NOT NULL
);
CREATE INDEX tokens_of_client ON tokens (client);
CREATE INDEX tokens_expire ON tokens (expires_ms);

CREATE TABLE bridges (
    client TEXT NOT NULL, kind TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (client, kind)
);

CREATE TABLE routes (client TEXT PRIMARY KEY, server INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX routes_to_server ON routes (server);

CREATE TABLE bodies (id TEXT PRIMARY KEY, expires_ms INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX bodies_expire ON bodies (expires_ms);

CREATE TABLE waiting (
    number INTEGER PRIMARY KEY AUTOINCREMENT, client TEXT NOT NULL, note TEXT NOT NULL,
    expires_ms INTEGER NOT NULL, collapse BLOB, UNIQUE (client, note)
);
CREATE INDEX waiting_for_client ON waiting (client, number);
CREATE INDEX waiting_expire ON waiting (expires_ms);

CREATE TABLE topics (
    app TEXT NOT NULL, topic TEXT NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (app, topic)
) WITHOUT ROWID;

CREATE TABLE subscriptions (
    app TEXT NOT NULL, client TEXT NOT NULL, topic TEXT NOT NULL, server INTEGER NOT NULL,
    position INTEGER NOT NULL, beyond BLOB NOT NULL, PRIMARY KEY (app, client, topic)
) WITHOUT ROWID;
CREATE INDEX subscribers ON subscriptions (app, topic, client);
CREATE INDEX subscribers_on_server ON subscriptions (app, topic, server);

CREATE TABLE topic_notes (
    app TEXT NOT NULL, topic TEXT NOT NULL, position INTEGER NOT NULL, note TEXT NOT NULL,
    expires_ms INTEGER NOT NULL, collapse BLOB,
    UNIQUE (app, topic, position), UNIQUE (app, topic, note)
);
CREATE INDEX topic_notes_expire ON topic_notes (expires_ms)
"""

PUSH_SCHEMA = Schema("push", APPLICATION_ID, SCHEMA_VERSION, _TABLES.split(";"))

_EXPIRING = (
    "jobs",
    "clicks",
    "nonces",
    "records",
    "uses",
    "tokens",
    "bodies",
    "waiting",
    "topic_notes",
)
_SWEEPS = [
    f"DELETE FROM {table} WHERE rowid IN "  # noqa: S608 - our own names
    f"(SELECT rowid FROM {table} WHERE expires_ms <= ? LIMIT ?)"
    for table in _EXPIRING
]
# Nobody subscribes to them, and nothing is left in them.
_EMPTY_TOPICS = """
DELETE FROM topics WHERE (app, topic) IN (
    SELECT app, topic FROM topics AS t
    WHERE position < ?
    AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE app = t.app AND topic = t.topic)
    AND NOT EXISTS (SELECT 1 FROM topic_notes WHERE app = t.app AND topic = t.topic)
    LIMIT ?
)
"""


def sweep(connection: sqlite3.Connection, now_ms: int, most: int) -> int:
    """Delete what expired, of each table at most so many rows; how many in all."""
    sweeps = [*_SWEEPS, _EMPTY_TOPICS]
    return sum(connection.execute(sweeping, (now_ms, most)).rowcount for sweeping in sweeps)
