"""Routes in SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from sqlite3 import Connection

from chappe.store.database import Database

_FIND = "SELECT server FROM routes WHERE client = ?"
_MOVE = (
    "INSERT INTO routes VALUES (?, ?) ON CONFLICT (client) DO UPDATE SET server = excluded.server"
)
_CLAIM = "INSERT INTO routes VALUES (?, ?) ON CONFLICT (client) DO NOTHING"
_LEAVE = "DELETE FROM routes WHERE client = ? AND server = ?"
# Not DISTINCT, which reads every route: each step finds the next larger one by the index.
_SERVERS = """
WITH RECURSIVE found (server) AS (
    SELECT min(server) FROM routes
    UNION ALL
    SELECT (SELECT min(server) FROM routes WHERE server > found.server) FROM found
    WHERE found.server IS NOT NULL
)
SELECT server FROM found WHERE server IS NOT NULL
"""


class SqliteRoutes:
    """The table of who is where."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def move(self, routes: Mapping[str, int]) -> dict[str, int]:
        """Clients logged in on these servers; where those were that were elsewhere before."""

        return await self._write(_MOVE, routes)

    async def claim(self, routes: Mapping[str, int]) -> dict[str, int]:
        """Clients are on these servers if they are nowhere; where those are that are elsewhere."""
        return await self._write(_CLAIM, routes)

    async def find(self, clients: Sequence[str]) -> dict[str, int]:
        """Where those are that are somewhere."""
        return await self._database.do(lambda c: _find(c, clients), writes=False)

    async def leave(self, routes: Mapping[str, int]) -> None:
        """Clients left these servers; those that are elsewhere by now stay there."""
        await self._database.do(lambda c: c.executemany(_LEAVE, routes.items()), writes=True)

    async def clear(self, server: int) -> int:
        """Nobody is on a server any more: it was killed. How many were."""

        def write(connection: Connection) -> int:
            return connection.execute("DELETE FROM routes WHERE server = ?", (server,)).rowcount

        return await self._database.do(write, writes=True)

    async def servers(self) -> Iterable[int]:
        """The servers that anybody may be on."""

        def read(connection: Connection) -> list[int]:
            return [server for (server,) in connection.execute(_SERVERS)]

        return await self._database.do(read, writes=False)

    async def _write(self, statement: str, routes: Mapping[str, int]) -> dict[str, int]:
        def write(connection: Connection) -> dict[str, int]:
            before = _find(connection, routes)
            connection.executemany(statement, routes.items())
            return {client: at for client, at in before.items() if at != routes[client]}

        return await self._database.do(write, writes=True)


def _find(connection: Connection, clients: Iterable[str]) -> dict[str, int]:
    rows = ((client, connection.execute(_FIND, (client,)).fetchone()) for client in clients)
    return {client: row[0] for client, row in rows if row is not None}
