"""What a broker's journal becomes:

FOLDER/queues/           what queues were given
FOLDER/queue_records/    what became of it
FOLDER/copied/           which segments were copied
"""

from __future__ import annotations

from pathlib import Path

from chappe.errors import StorageError
from chappe.log.batch import Batch
from chappe.log.fs import OsFs
from chappe.log.parquet.copier import Copier
from chappe.log.parquet.sheet import Sheet
from chappe.queues.parquet.rows import Rows, events_in, message_in
from chappe.queues.parquet.schema import MESSAGES, RECORDS
from chappe.queues.record import decode_records


def queue_copier(folder: Path) -> Copier:
    """Copies the journals of brokers to a folder."""
    return Copier(folder, "copied", lambda fs, broker, name: QueueTables(fs, folder, broker, name))


class QueueTables:
    """Both tables of one segment."""

    def __init__(self, fs: OsFs, folder: Path, broker: str, name: str) -> None:
        self._rows = Rows(broker)
        self._messages = Sheet(fs, folder / "queues", MESSAGES, name)
        self._records = Sheet(fs, folder / "queue_records", RECORDS, name)

    @property
    def counts(self) -> tuple[int, int]:
        return self._messages.rows, self._records.rows

    def take(self, batch: Batch) -> bool:
        try:
            records = decode_records(batch.body, batch.count)
        except StorageError:
            return False
        for record in records:
            place = self._rows.place(record, batch)
            message = message_in(record)
            if message is not None:
                self._messages.add(batch.ts_ms, place + message, len(message.payload))
            for event in events_in(record):
                self._records.add(batch.ts_ms, place + event, 0)
        return True

    def finish(self) -> list[Path]:
        return [*self._messages.finish(), *self._records.finish()]

    def abandon(self) -> None:
        try:
            self._messages.abandon()
        finally:
            self._records.abandon()
