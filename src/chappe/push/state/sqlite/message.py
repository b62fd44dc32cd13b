"""Bodies of notes, and what waits for whom, in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from sqlite3 import Connection

import msgspec

from chappe.push.note import Note
from chappe.push.state.collapse import collapse_digest
from chappe.store.database import Database

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Note).decode

_PUT = (
    "INSERT INTO bodies VALUES (?, ?, ?) ON CONFLICT (id) "
    "DO UPDATE SET expires_ms = excluded.expires_ms, body = excluded.body"
)
_BODY = "SELECT body FROM bodies WHERE id = ? AND expires_ms > ?"
_WAITING = "SELECT note FROM waiting WHERE client = ? AND expires_ms > ? ORDER BY number"
_HAS = "SELECT 1 FROM waiting WHERE client = ? AND note = ? AND expires_ms > ?"
_ADD = "INSERT INTO waiting (client, note, expires_ms, collapse) VALUES (?, ?, ?, ?)"
_GONE = "DELETE FROM waiting WHERE client = ? AND expires_ms <= ?"
_COLLAPSED = "DELETE FROM waiting WHERE client = ? AND collapse = ? RETURNING note"
_COUNT = "SELECT count(*) FROM waiting WHERE client = ?"
_OLDEST = (
    "DELETE FROM waiting WHERE number IN "
    "(SELECT number FROM waiting WHERE client = ? ORDER BY number LIMIT ?) RETURNING note"
)
_SETTLE = "DELETE FROM waiting WHERE client = ? AND note = ?"


class SqliteMessages:
    """The tables of bodies and of what waits."""

    def __init__(self, database: Database, wall_ms: Callable[[], int]) -> None:
        self._database = database
        self._wall_ms = wall_ms

    async def put(self, note: Note) -> None:
        """Write a body."""
        body = _encode(note)
        row = (note.id, note.expires_ms, body)
        await self._database.do(lambda c: c.execute(_PUT, row), writes=True, size=len(body))

    async def bodies(self, ids: Sequence[str]) -> dict[str, Note]:
        """Those of these notes that are there: not expired, not cancelled."""
        now_ms = self._wall_ms()

        def read(connection: Connection) -> Iterator[bytes]:
            for note in ids:
                yield from (row[0] for row in connection.execute(_BODY, (note, now_ms)))

        found = await self._database.do(lambda c: list(read(c)), writes=False)
        return {note.id: note for note in map(_decode, found)}

    async def cancel(self, id: str) -> Note | None:
        """Forget a body, so that nobody gets it any more; what it was."""
        now_ms = self._wall_ms()

        def write(connection: Connection) -> bytes | None:
            row = connection.execute(_BODY, (id, now_ms)).fetchone()
            connection.execute("DELETE FROM bodies WHERE id = ?", (id,))
            return None if row is None else bytes(row[0])

        body = await self._database.do(write, writes=True)
        return None if body is None else _decode(body)

    async def add(self, note: Note, clients: Sequence[str], most: int) -> Mapping[str, str]:
        """Let a note wait for clients; which other it took the place of, by client."""
        now_ms = self._wall_ms()

        def write(connection: Connection) -> dict[str, str]:
            replaced = ((c, _add(connection, note, c, most, now_ms)) for c in clients)
            return {client: other for client, other in replaced if other is not None}

        size = sum(map(len, clients))
        return await self._database.do(write, writes=True, size=size)

    async def waiting(self, clients: Sequence[str]) -> dict[str, list[str]]:
        """The ids that wait for each of the clients, oldest first."""
        now_ms = self._wall_ms()

        def read(connection: Connection) -> dict[str, list[str]]:
            return {
                client: [row[0] for row in connection.execute(_WAITING, (client, now_ms))]
                for client in clients
            }

        return await self._database.do(read, writes=False)

    async def settle(self, settled: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Clients have acknowledged notes: they wait no more. Which did until now, by client."""
        now_ms = self._wall_ms()

        def write(connection: Connection) -> dict[str, list[str]]:
            did: dict[str, list[str]] = {}
            for client, ids in settled.items():
                for note in ids:
                    if connection.execute(_HAS, (client, note, now_ms)).fetchone():
                        did.setdefault(client, []).append(note)
                        connection.execute(_SETTLE, (client, note))
            return did

        return await self._database.do(write, writes=True)

    async def holders(self, id: str, clients: Sequence[str]) -> list[str]:
        """Those of these clients that a note waits for."""
        now_ms = self._wall_ms()

        def read(connection: Connection) -> list[str]:
            return [c for c in clients if connection.execute(_HAS, (c, id, now_ms)).fetchone()]

        return await self._database.do(read, writes=False)


def _add(connection: Connection, note: Note, client: str, most: int, now_ms: int) -> str | None:
    """Let a note wait for one client; the other whose place it took."""
    connection.execute(_GONE, (client, now_ms))
    if connection.execute(_HAS, (client, note.id, now_ms)).fetchone():
        return None
    out = []
    same = collapse_digest(note.collapse) or None
    if same is not None:
        out = connection.execute(_COLLAPSED, (client, same)).fetchall()
    ((count,),) = connection.execute(_COUNT, (client,))
    if count >= most:
        out += connection.execute(_OLDEST, (client, count - most + 1)).fetchall()
    connection.execute(_ADD, (client, note.id, note.expires_ms, same))
    return out[0][0] if out else None
