"""All that is in a push file, given and taken page by page."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from sqlite3 import Connection

from chappe.errors import StorageError
from chappe.push.state.record import Record
from chappe.push.state.sqlite.reading import READERS, TABLES
from chappe.push.state.sqlite.writing import WRITERS
from chappe.store.database import Database

# Made when it is needed: a file has it only while something is copied into it.
_MARKS = "copying"
_MAKE = f"CREATE TABLE IF NOT EXISTS {_MARKS} (state TEXT PRIMARY KEY, mark TEXT NOT NULL)"
_NAMES = "SELECT name FROM sqlite_master WHERE type = 'table'"
_OTHERS = {_MARKS, "routes", "sqlite_sequence"}


class SqliteRecords:
    """The records of a file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def dump(self, state: str) -> AsyncIterator[Sequence[Record]]:
        """Give all records of a state, each once."""
        await self._database.do(_check, writes=False)
        for reader in READERS[state]:
            after: tuple[object, ...] | None = None
            while True:
                page = await self._database.do(partial(reader, after=after), writes=False)
                if page is None:
                    break
                records, after = page
                yield records

    async def restore(self, records: Sequence[Record]) -> None:
        """Write records as they were, in place of those that they are of."""

        def write(connection: Connection) -> None:
            for record in records:
                WRITERS[type(record)](connection, record)

        await self._database.do(write, writes=True)

    async def has_any(self, state: str) -> bool:
        """Whether there is anything of a state."""

        def read(connection: Connection) -> bool:
            looking = (f"SELECT 1 FROM {table} LIMIT 1" for table in TABLES[state])  # noqa: S608
            return any(connection.execute(one).fetchone() for one in looking)

        return await self._database.do(read, writes=False)

    async def mark(self, state: str, text: str | None) -> None:
        """Write down that a copy of a state is under way here; None: no more."""

        def write(connection: Connection) -> None:
            connection.execute(_MAKE)
            connection.execute(f"DELETE FROM {_MARKS} WHERE state = ?", (state,))  # noqa: S608
            if text is not None:
                connection.execute(f"INSERT INTO {_MARKS} VALUES (?, ?)", (state, text))  # noqa: S608
            elif not connection.execute(f"SELECT 1 FROM {_MARKS}").fetchone():  # noqa: S608
                connection.execute(f"DROP TABLE {_MARKS}")

        await self._database.do(write, writes=True)

    async def marked(self, state: str) -> str | None:
        """What was written down."""

        def read(connection: Connection) -> str | None:
            if (_MARKS,) not in connection.execute(_NAMES).fetchall():
                return None
            reading = f"SELECT mark FROM {_MARKS} WHERE state = ?"  # noqa: S608
            row = connection.execute(reading, (state,)).fetchone()
            return None if row is None else str(row[0])

        return await self._database.do(read, writes=False)

    async def pulse(self, state: str) -> int | None:
        """None: who has the file open is seen at the file."""
        return None


def _check(connection: Connection) -> None:
    """See that nothing is left behind; raises sqlite3.Error, which becomes a StorageError."""
    known = _OTHERS.union(*TABLES.values())
    for (name,) in connection.execute(_NAMES):
        if name not in known:
            raise sqlite3.NotSupportedError(f"{name}: this version cannot copy it")


def in_use(path: Path) -> bool:
    """Whether another process has a push file open; raises StorageError if it cannot be read."""
    try:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            return True
        raise StorageError(f"{path}: {error}") from None
    except sqlite3.DatabaseError as error:
        raise StorageError(f"{path}: {error}") from None
    return False
