"""Topics, their subscribers and their notes in SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sqlite3 import Connection
from typing import NamedTuple

import msgspec

from chappe.push.state.collapse import collapse_digest
from chappe.push.state.topic import Mark, Subscriber, merged
from chappe.store.database import Database

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, ...]).decode

_TOPICS = "SELECT topic, position, beyond FROM subscriptions WHERE app = ? AND client = ?"
_SERVER = "SELECT server FROM subscriptions WHERE app = ? AND client = ? LIMIT 1"
_POSITION = "SELECT position FROM topics WHERE app = ? AND topic = ?"
_SET_POSITION = (
    "INSERT INTO topics VALUES (?, ?, ?) "
    "ON CONFLICT (app, topic) DO UPDATE SET position = excluded.position"
)
_SUBSCRIBE = "INSERT INTO subscriptions VALUES (?, ?, ?, ?, ?, ?)"
_MOVE = "UPDATE subscriptions SET server = ? WHERE app = ? AND client = ?"
_LEAVE = "UPDATE subscriptions SET server = -1 WHERE app = ? AND client = ? AND server = ?"
_MARK = _TOPICS + " AND topic = ?"
_ADVANCE = (
    "UPDATE subscriptions SET position = ?, beyond = ? WHERE app = ? AND client = ? AND topic = ?"
)
_SINCE = (
    "SELECT position, note FROM topic_notes WHERE app = ? AND topic = ? AND position > ? "
    "AND expires_ms > ? ORDER BY position LIMIT ?"
)
_CROWDED_OUT = """
DELETE FROM topic_notes WHERE rowid IN (
    SELECT rowid FROM topic_notes WHERE app = ? AND topic = ?
    ORDER BY position DESC LIMIT -1 OFFSET ?
)
"""
_TAKE_OUT = "DELETE FROM topic_notes WHERE app = ? AND topic = ? AND note = ?"
_COUNT = "SELECT count(*) FROM subscriptions WHERE app = ? AND topic = ?"
_SERVERS = (
    "SELECT DISTINCT server FROM subscriptions WHERE app = ? AND topic = ? AND server >= 0 "
    "ORDER BY server"
)
_LIST = """
SELECT topic, (SELECT count(*) FROM subscriptions AS s WHERE s.app = t.app AND s.topic = t.topic)
FROM topics AS t WHERE app = ? AND topic > ? ORDER BY topic LIMIT ?
"""
_CLIENTS = (
    "SELECT client FROM subscriptions WHERE app = ? AND topic = ? AND client > ? "
    "ORDER BY client LIMIT ?"
)


class _Entry(NamedTuple):
    app: str
    topic: str
    note: str
    now_ms: int
    expires_ms: int
    collapse: bytes | None


class SqliteTopics:
    """The tables of topics, subscriptions and topics' notes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def subscribe(
        self, app: str, client: str, topics: Sequence[str], server: int, now_ms: int, most: int
    ) -> bool:
        """Subscribe a client that is on a server, from the topics' last notes on."""

        def write(connection: Connection) -> bool:
            has = _marks(connection, app, client)
            new = [topic for topic in dict.fromkeys(topics) if topic not in has]
            if len(has) + len(new) > most:
                return False
            before = connection.execute(_SERVER, (app, client)).fetchone()
            at = before[0] if before is not None and server < 0 else server
            for topic in new:
                position = _position(connection, app, topic)
                connection.execute(_SET_POSITION, (app, topic, position))
                connection.execute(_SUBSCRIBE, (app, client, topic, at, position, _encode(())))
            if before is not None and before[0] != at:
                connection.execute(_MOVE, (at, app, client))
            return True

        return await self._database.do(write, writes=True)

    async def unsubscribe(self, app: str, client: str, topics: Sequence[str]) -> None:
        """Unsubscribe a client."""
        leaving = "DELETE FROM subscriptions WHERE app = ? AND client = ? AND topic = ?"
        rows = [(app, client, topic) for topic in topics]
        await self._database.do(lambda c: c.executemany(leaving, rows), writes=True)

    async def topics_of(self, app: str, client: str) -> dict[str, Mark]:
        """The topics of a client, and how far it has got."""
        return await self._database.do(lambda c: _marks(c, app, client), writes=False)

    async def subscribers(self, app: str, clients: Sequence[str]) -> list[Subscriber]:
        """What is known of several clients, in their order."""

        def read(connection: Connection) -> list[Subscriber]:
            return [_subscriber(connection, app, client) for client in clients]

        return await self._database.do(read, writes=False)

    async def move(self, app: str, client: str, server: int) -> dict[str, Mark]:
        """A client is on another server now (-1: on none); its topics."""
        (topics,) = await self.move_all(app, [client], server)
        return topics

    async def move_all(
        self, app: str, clients: Sequence[str], server: int
    ) -> list[dict[str, Mark]]:
        """Several clients are on another server now; the topics of each, in their order."""

        def write(connection: Connection) -> list[dict[str, Mark]]:
            connection.executemany(_MOVE, [(server, app, client) for client in clients])
            return [_marks(connection, app, client) for client in clients]

        return await self._database.do(write, writes=True)

    async def leave(self, app: str, client: str, server: int) -> None:
        """A client left a server; one that is elsewhere by now stays there."""
        await self.leave_all(app, [client], server)

    async def leave_all(self, app: str, clients: Sequence[str], server: int) -> None:
        """Several clients left a server; those that are elsewhere by now stay there."""
        places = [(app, client, server) for client in clients]
        await self._database.do(lambda c: c.executemany(_LEAVE, places), writes=True)

    async def advance(self, app: str, marks: Mapping[tuple[str, str], Mark]) -> None:
        """Clients have got so far, and no less far than before: by (client, topic)."""

        def write(connection: Connection) -> None:
            for place, mark in marks.items():
                for _, position, beyond in connection.execute(_MARK, (app, *place)).fetchall():
                    now = merged(Mark(position, _decode(beyond)), mark)
                    row = (now.position, _encode(now.beyond), app, *place)
                    connection.execute(_ADVANCE, row)

        await self._database.do(write, writes=True)

    async def append(
        self,
        app: str,
        topic: str,
        id: str,
        now_ms: int,
        expires_ms: int,
        collapse: str | None,
        most: int,
    ) -> int:
        """Add a note to a topic, which keeps so many; its position."""
        same = collapse_digest(collapse) or None
        entry = _Entry(app, topic, id, now_ms, expires_ms, same)
        return await self._database.do(lambda c: _append(c, entry, most), writes=True)

    async def take_out(self, app: str, topic: str, id: str) -> None:
        """Nobody is to get a topic's note any more."""
        await self._database.do(lambda c: c.execute(_TAKE_OUT, (app, topic, id)), writes=True)

    async def since(
        self, app: str, topics: Mapping[str, int], now_ms: int, limit: int
    ) -> dict[str, list[tuple[int, str]]]:
        """Of each topic, the positions and ids of its first notes after a position."""

        def read(connection: Connection) -> dict[str, list[tuple[int, str]]]:
            return {
                topic: connection.execute(_SINCE, (app, topic, after, now_ms, limit)).fetchall()
                for topic, after in topics.items()
            }

        return await self._database.do(read, writes=False)

    async def count(self, app: str, topic: str) -> int:
        """How many clients subscribe to a topic."""

        def read(connection: Connection) -> int:
            ((count,),) = connection.execute(_COUNT, (app, topic))
            return int(count)

        return await self._database.do(read, writes=False)

    async def servers(self, app: str, topic: str) -> list[int]:
        """The servers that subscribers of a topic are on."""

        def read(connection: Connection) -> list[int]:
            return [server for (server,) in connection.execute(_SERVERS, (app, topic))]

        return await self._database.do(read, writes=False)

    async def list_topics(self, app: str, after: str, limit: int) -> list[tuple[str, int]]:
        """An app's topics by name, from the one after that, and how many subscribe."""

        def read(connection: Connection) -> list[tuple[str, int]]:
            return connection.execute(_LIST, (app, after, limit)).fetchall()

        return await self._database.do(read, writes=False)

    async def list_clients(self, app: str, topic: str, after: str, limit: int) -> list[str]:
        """Subscribers of a topic, from the one after that."""

        def read(connection: Connection) -> list[str]:
            return [row[0] for row in connection.execute(_CLIENTS, (app, topic, after, limit))]

        return await self._database.do(read, writes=False)

    async def remove(self, app: str, client: str) -> None:
        """Forget a client."""
        leaving = "DELETE FROM subscriptions WHERE app = ? AND client = ?"
        await self._database.do(lambda c: c.execute(leaving, (app, client)), writes=True)


def _subscriber(connection: Connection, app: str, client: str) -> Subscriber:
    server = connection.execute(_SERVER, (app, client)).fetchone()
    return Subscriber(-1 if server is None else server[0], _marks(connection, app, client))


def _marks(connection: Connection, app: str, client: str) -> dict[str, Mark]:
    rows = connection.execute(_TOPICS, (app, client))
    return {topic: Mark(position, _decode(beyond)) for topic, position, beyond in rows}


def _position(connection: Connection, app: str, topic: str) -> int:
    row = connection.execute(_POSITION, (app, topic)).fetchone()
    return 0 if row is None else int(row[0])


def _append(connection: Connection, entry: _Entry, most: int) -> int:
    app, topic, note, now_ms, expires_ms, collapse = entry
    has = "SELECT position FROM topic_notes WHERE app = ? AND topic = ? AND note = ?"
    if row := connection.execute(has, (app, topic, note)).fetchone():
        return int(row[0])
    position = max(now_ms, _position(connection, app, topic) + 1)
    connection.execute(_SET_POSITION, (app, topic, position))
    if collapse is not None:
        collapsing = "DELETE FROM topic_notes WHERE app = ? AND topic = ? AND collapse = ?"
        connection.execute(collapsing, (app, topic, collapse))
    adding = "INSERT INTO topic_notes VALUES (?, ?, ?, ?, ?, ?)"
    connection.execute(adding, (app, topic, position, note, expires_ms, collapse))
    connection.execute(_CROWDED_OUT, (app, topic, most))
    return position
