"""What a node's event log becomes:

FOLDER/date=2026-05-01/hour=13/NODE-BASE-CHECK.parquet    what happened in that hour
FOLDER/_log/NODE/                                         the log, until it is copied
FOLDER/_copied/NODE/                                      which of its segments were

Readers of such folders, Spark among them, pass over names that begin with `_` or with a dot.
"""

from __future__ import annotations

from pathlib import Path

from chappe.events.parquet import SCHEMA, EventTable
from chappe.log.batch import Batch
from chappe.log.fs import OsFs
from chappe.log.parquet.copier import Copier
from chappe.log.parquet.hours import Hours

NOTES = "_copied"


def event_copier(folder: Path) -> Copier:
    """Copies event logs to a folder."""
    return Copier(folder, NOTES, lambda fs, node, name: EventTables(fs, folder, name))


class EventTables:
    """The table of one segment."""

    def __init__(self, fs: OsFs, folder: Path, name: str) -> None:
        self._hours = Hours(fs, folder, SCHEMA, name)
        self._table = EventTable(self._hours.write)

    @property
    def counts(self) -> tuple[int, int]:
        return 0, self._table.rows

    def take(self, batch: Batch) -> bool:
        return self._table.take(batch.array)

    def finish(self) -> list[Path]:
        self._table.flush()
        return self._hours.finish()

    def abandon(self) -> None:
        self._hours.abandon()
