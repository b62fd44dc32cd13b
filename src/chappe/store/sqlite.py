"""A store in one SQLite file: the embedded default."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from pathlib import Path

from chappe.store.database import (
    BUSY_TIMEOUT_S,
    JOBS_BYTES_MAX,
    JOBS_MAX,
    FileDatabase,
    Schema,
)

PAGE_KEYS = 500
SCHEMA_VERSION = 1
# "Chpp": tells our files from other databases.
APPLICATION_ID = 0x43687070

_SCHEMA = """
CREATE TABLE entries (
    tab TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tab, key)
) WITHOUT ROWID
"""
_PUT = (
    "INSERT INTO entries VALUES (?, ?, ?) "
    "ON CONFLICT (tab, key) DO UPDATE SET value = excluded.value"
)
_DELETE = "DELETE FROM entries WHERE tab = ? AND key = ?"
_GET = "SELECT value FROM entries WHERE tab = ? AND key = ?"
_PAGE = "SELECT key, value FROM entries WHERE tab = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"
_CLEAR = "DELETE FROM entries WHERE tab = ? AND key >= ? AND key < ?"


class SqliteStore:
    """Tables in a file; used from one event loop at a time.

    Raises ConfigError when the file cannot be opened: it is locked, corrupt, of something else or
    of a later version.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        jobs_max: int = JOBS_MAX,
        jobs_bytes_max: int = JOBS_BYTES_MAX,
    ) -> None:
        self._database = FileDatabase(
            path,
            Schema("store", APPLICATION_ID, SCHEMA_VERSION, [_SCHEMA]),
            busy_timeout_s=busy_timeout_s,
            jobs_max=jobs_max,
            jobs_bytes_max=jobs_bytes_max,
        )

    async def get(self, table: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Read the values of those keys that are there."""
        wanted = [(key, key.encode()) for key in keys]

        def read(connection: sqlite3.Connection) -> dict[str, bytes]:
            rows = ((key, connection.execute(_GET, (table, raw)).fetchone()) for key, raw in wanted)
            return {key: row[0] for key, row in rows if row is not None}

        return await self._database.do(read, writes=False)

    async def change(
        self, table: str, puts: Mapping[str, bytes], deletes: Iterable[str] = ()
    ) -> None:
        """Write and remove many at once; what is in both is written.

        It is on the disk when this returns. Cancelling waits no longer; it happens all the same.
        """
        removed = [(table, key.encode()) for key in deletes]
        written = [(table, key.encode(), value) for key, value in puts.items()]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(_DELETE, removed)
            connection.executemany(_PUT, written)

        size = sum(len(key) + len(value) for _, key, value in written)
        await self._database.do(write, writes=True, size=size)

    async def swap(self, table: str, key: str, expected: bytes | None, value: bytes | None) -> bool:
        """Replace a value if it is still what is expected; whether it was."""
        raw = key.encode()

        def exchange(connection: sqlite3.Connection) -> bool:
            row = connection.execute(_GET, (table, raw)).fetchone()
            if (None if row is None else row[0]) != expected:
                return False
            if value is not None:
                connection.execute(_PUT, (table, raw, value))
            elif row is not None:
                connection.execute(_DELETE, (table, raw))
            return True

        return await self._database.do(exchange, writes=True, size=len(value or b""))

    async def scan(self, table: str, prefix: str = "") -> AsyncIterator[list[tuple[str, bytes]]]:
        """Read all keys that begin so, a page at a time, in the order of their bytes."""
        start, end = _range(prefix)
        while True:
            page = await self._database.do(partial(_page, table, start, end), writes=False)
            if page:
                yield [(key.decode(), value) for key, value in page]
            if len(page) < PAGE_KEYS:
                return
            start = page[-1][0] + b"\0"

    async def clear(self, table: str, prefix: str = "") -> None:
        """Remove all keys that begin so."""
        start, end = _range(prefix)
        await self._database.do(
            lambda connection: connection.execute(_CLEAR, (table, start, end)), True
        )

    async def close(self) -> None:
        """Carry out what was accepted, and close the file. Raises nothing when closed already."""
        await self._database.close()


def _page(
    table: str, start: bytes, end: bytes, connection: sqlite3.Connection
) -> list[tuple[bytes, bytes]]:
    return connection.execute(_PAGE, (table, start, end, PAGE_KEYS)).fetchall()


def _range(prefix: str) -> tuple[bytes, bytes]:
    """The first key with a prefix, and the end of them: no text holds the byte ff."""
    start = prefix.encode()
    return start, start + b"\xff"
