"""Clients, devices, users, tokens and bridges in SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sqlite3 import Connection

from chappe.errors import Overload
from chappe.push.state.user import (
    CLIENTS_PER_USER_MAX,
    TOKENS_PER_CLIENT_MAX,
    Client,
    TokenHolder,
)
from chappe.store.database import Database

_COUNT = "SELECT count(*) FROM clients WHERE app = ?"
_CLAIM = "INSERT INTO clients VALUES (?, ?, ?, NULL) RETURNING id, app, device, user"
_OF_DEVICE = "SELECT id, app, device, user FROM clients WHERE app = ? AND device = ?"
_CLIENT = "SELECT id, app, device, user FROM clients WHERE id = ?"
_OF_USER = "SELECT id FROM clients WHERE app = ? AND user = ? ORDER BY id"
_KEEP = (
    "INSERT INTO tokens VALUES (?, ?, ?) ON CONFLICT (digest) "
    "DO UPDATE SET client = excluded.client, expires_ms = excluded.expires_ms"
)
# All of a client's but the one that was just written, and those that expire last.
_TRIM = (
    "DELETE FROM tokens WHERE digest IN (SELECT digest FROM tokens WHERE client = ? "
    "ORDER BY digest = ? DESC, expires_ms DESC, digest LIMIT -1 OFFSET ?)"
)
_HOLDER = "SELECT client, expires_ms FROM tokens WHERE digest = ? AND expires_ms > ?"
# Only if the client is there. `WHERE` tells SQLite that what follows is no join's condition.
_PUT_BRIDGE = (
    "INSERT INTO bridges SELECT id, ?, ? FROM clients WHERE id = ? "
    "ON CONFLICT (client, kind) DO UPDATE SET value = excluded.value"
)
_BRIDGE = "SELECT client, value FROM bridges WHERE client = ? AND kind = ?"
_REMOVE_BRIDGE = "DELETE FROM bridges WHERE client = ? AND kind = ? AND value = coalesce(?, value)"


class SqliteUsers:
    """The tables of clients, tokens and bridges."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim_client(self, app: str, device: str, new: str, most: int = 0) -> Client:
        """The client of a device, made with that id if there is none; raises Overload if the app
        has `most` clients already (0: however many)."""

        def write(connection: Connection) -> Client | None:
            row = connection.execute(_OF_DEVICE, (app, device)).fetchone()
            if row is None:
                if most and _count(connection, app) >= most:
                    return None
                row = connection.execute(_CLAIM, (new, app, device)).fetchone()
            return Client(*row)

        client = await self._database.do(write, writes=True)
        if client is None:
            raise Overload(f"app: it has {most} clients")
        return client

    async def clients(self, ids: Sequence[str]) -> dict[str, Client]:
        """Those of these clients that are there."""

        def read(connection: Connection) -> dict[str, Client]:
            rows = (connection.execute(_CLIENT, (one,)).fetchone() for one in ids)
            return {row[0]: Client(*row) for row in rows if row is not None}

        return await self._database.do(read, writes=False)

    async def clients_of_devices(self, app: str, devices: Sequence[str]) -> dict[str, str]:
        """The clients of those devices that have one."""

        def read(connection: Connection) -> dict[str, str]:
            rows = (connection.execute(_OF_DEVICE, (app, one)).fetchone() for one in devices)
            return {row[2]: row[0] for row in rows if row is not None}

        return await self._database.do(read, writes=False)

    async def remove_client(self, id: str) -> Client | None:
        """Forget a client, its tokens, bridges and user; what it was."""

        def write(connection: Connection) -> Client | None:
            row = connection.execute(_CLIENT, (id,)).fetchone()
            connection.execute("DELETE FROM tokens WHERE client = ?", (id,))
            connection.execute("DELETE FROM bridges WHERE client = ?", (id,))
            connection.execute("DELETE FROM clients WHERE id = ?", (id,))
            return None if row is None else Client(*row)

        return await self._database.do(write, writes=True)

    async def count_clients(self, app: str) -> int:
        """How many clients an app has."""
        return await self._database.do(lambda c: _count(c, app), writes=False)

    async def put_token(self, digest: bytes, holder: TokenHolder) -> None:
        """Write a token; it is forgotten when it expires, or when the client has too many."""

        def write(connection: Connection) -> None:
            connection.execute(_KEEP, (digest, *holder))
            connection.execute(_TRIM, (holder.client, digest, TOKENS_PER_CLIENT_MAX))

        await self._database.do(write, writes=True)

    async def tokens(self, digests: Sequence[bytes], now_ms: int) -> list[TokenHolder | None]:
        """Whose tokens these are; None: nobody's, or expired."""

        def read(connection: Connection) -> list[TokenHolder | None]:
            rows = (connection.execute(_HOLDER, (one, now_ms)).fetchone() for one in digests)
            return [None if row is None else TokenHolder(*row) for row in rows]

        return await self._database.do(read, writes=False)

    async def revoke(self, digest: bytes) -> TokenHolder | None:
        """Forget a token; whose it was."""
        forgetting = "DELETE FROM tokens WHERE digest = ? RETURNING client, expires_ms"

        def write(connection: Connection) -> TokenHolder | None:
            rows = connection.execute(forgetting, (digest,)).fetchall()
            return TokenHolder(*rows[0]) if rows else None

        return await self._database.do(write, writes=True)

    async def revoke_client(self, client: str) -> int:
        """Forget all tokens of a client; how many there were."""

        def write(connection: Connection) -> int:
            return connection.execute("DELETE FROM tokens WHERE client = ?", (client,)).rowcount

        return await self._database.do(write, writes=True)

    async def bind(self, app: str, user: str, client: str) -> bool:
        """Let a client belong to a user, and to no other; False if the user has too many, or the
        app has no such client."""

        def write(connection: Connection) -> bool:
            others = set(_clients(connection, app, user)) - {client}
            if len(others) >= CLIENTS_PER_USER_MAX:
                return False
            binding = "UPDATE clients SET user = ? WHERE id = ? AND app = ?"
            return connection.execute(binding, (user, client, app)).rowcount > 0

        return await self._database.do(write, writes=True)

    async def unbind(self, app: str, client: str) -> str | None:
        """Let a client belong to nobody; whose it was."""

        def write(connection: Connection) -> str | None:
            row = connection.execute(_CLIENT, (client,)).fetchone()
            if row is None or row[1] != app:
                return None
            connection.execute("UPDATE clients SET user = NULL WHERE id = ?", (client,))
            return Client(*row).user

        return await self._database.do(write, writes=True)

    async def clients_of_users(self, app: str, users: Sequence[str]) -> Mapping[str, list[str]]:
        """The clients of each of those users that has any."""

        def read(connection: Connection) -> dict[str, list[str]]:
            found = ((user, _clients(connection, app, user)) for user in users)
            return {user: clients for user, clients in found if clients}

        return await self._database.do(read, writes=False)

    async def put_bridge(self, client: str, kind: str, value: bytes) -> bool:
        """Write how a client is reached while it is not connected; False if there is no such."""
        row = (kind, value, client)
        return await self._database.do(
            lambda c: c.execute(_PUT_BRIDGE, row).rowcount > 0, writes=True, size=len(value)
        )

    async def bridges(self, clients: Sequence[str], kind: str) -> dict[str, bytes]:
        """How those of these clients are reached that have a bridge of a kind."""

        def read(connection: Connection) -> dict[str, bytes]:
            rows = (connection.execute(_BRIDGE, (one, kind)).fetchone() for one in clients)
            return {row[0]: bytes(row[1]) for row in rows if row is not None}

        return await self._database.do(read, writes=False)

    async def remove_bridge(self, client: str, kind: str, value: bytes | None = None) -> bool:
        """Forget a bridge; with a value, only if it is that one. Whether it was there."""
        row = (client, kind, value)
        return await self._database.do(
            lambda c: c.execute(_REMOVE_BRIDGE, row).rowcount > 0, writes=True
        )


def _clients(connection: Connection, app: str, user: str) -> list[str]:
    return [row[0] for row in connection.execute(_OF_USER, (app, user))]


def _count(connection: Connection, app: str) -> int:
    ((count,),) = connection.execute(_COUNT, (app,))
    return int(count)
