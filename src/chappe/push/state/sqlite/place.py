"""A push file, or one in memory, and the five states in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chappe.push.state.sqlite.message import SqliteMessages
from chappe.push.state.sqlite.meta import SqliteMeta
from chappe.push.state.sqlite.records import SqliteRecords
from chappe.push.state.sqlite.route import SqliteRoutes
from chappe.push.state.sqlite.schema import PUSH_SCHEMA, sweep
from chappe.push.state.sqlite.topic import SqliteTopics
from chappe.push.state.sqlite.user import SqliteUsers
from chappe.push.state.states import States
from chappe.store.database import Database, FileDatabase, MemoryDatabase

# Of each table, in one go: a few milliseconds.
SWEEP_ROWS = 1000


class SqlitePlace:
    """A database with all five; without a path it is in memory, and jobs are done at once.

    `wall_ms` says what has expired. Raises ConfigError when the file cannot be opened.
    """

    def __init__(self, path: Path | None, wall_ms: Callable[[], int]) -> None:
        self._database: Database = (
            MemoryDatabase(PUSH_SCHEMA) if path is None else FileDatabase(path, PUSH_SCHEMA)
        )
        self._wall_ms = wall_ms
        self.meta = SqliteMeta(self._database, wall_ms)
        self.user = SqliteUsers(self._database)
        self.route = SqliteRoutes(self._database)
        self.message = SqliteMessages(self._database, wall_ms)
        self.topic = SqliteTopics(self._database)
        self.records = SqliteRecords(self._database)

    @property
    def states(self) -> States:
        """All five, here."""
        return States(self.meta, self.user, self.route, self.message, self.topic, [self])

    async def sweep(self) -> int:
        """Forget some of what expired."""
        now_ms = self._wall_ms()
        return await self._database.do(lambda c: sweep(c, now_ms, SWEEP_ROWS), writes=True)

    async def close(self) -> None:
        """Carry out what was accepted, and close the file."""
        await self._database.close()
