"""The copier: a sealed segment in, files of Parquet out; blocking.

    FOLDER/queues/date=2026-05-01/hour=13/BROKER-BASE-CHECK.parquet          what queues were given
    FOLDER/queue_records/date=2026-05-01/hour=13/BROKER-BASE-CHECK.parquet   what became of it
    FOLDER/copied/BROKER/BASE-CHECK.json                                     written last: it is all

BASE is where the segment begins, CHECK a checksum of its first batch's header: journals that begin
at the same place, as those of two nodes with one name do, never take each other's files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

import msgspec

from chappe.errors import StorageError
from chappe.log.batch import HEADER_BYTES, Batch
from chappe.log.fs import OsFs
from chappe.log.segment import scan
from chappe.queues.parquet.lock import held
from chappe.queues.parquet.order import Copied, Order
from chappe.queues.parquet.rows import Rows, events_in, message_in
from chappe.queues.parquet.schema import MESSAGES, RECORDS
from chappe.queues.parquet.sheet import Sheet
from chappe.queues.record import decode_records


class Note(msgspec.Struct):
    """What is kept of a segment that was copied: a person may read it."""

    end: int
    messages: int
    records: int
    damaged: int
    # Relative to the folder of all copies.
    files: list[str]


class Copier:
    """Copies segments to a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fs = OsFs()

    def copy(self, order: Order) -> Copied:
        """Copy a segment unless that was done; raises OSError, StorageError and what Arrow does."""
        notes = self._folder / "copied" / order.broker
        notes.mkdir(parents=True, exist_ok=True)
        # A node that was killed may have left a process that is still busy with it.
        with held(notes / "lock"):
            name = f"{order.base:016x}-{self._check_of(order)}"
            note = notes / f"{name}.json"
            known = self._known(note)
            if known is not None and known.end == order.end:
                return Copied(known.messages, known.records, known.damaged, before=True)
            found = self._convert(order, f"{order.broker}-{name}")
            self._fs.write(str(note), msgspec.json.format(msgspec.json.encode(found)))
            for file in set(known.files if known else ()) - set(found.files):
                (self._folder / file).unlink(missing_ok=True)
            return Copied(found.messages, found.records, found.damaged)

    def _check_of(self, order: Order) -> str:
        return f"{crc32(self._fs.read(order.path, 0, HEADER_BYTES)):08x}"

    def _known(self, note: Path) -> Note | None:
        """What is known of a segment; a note that is no longer whole says nothing."""
        try:
            content = self._fs.read(str(note), 0, self._fs.size(str(note)))
            return msgspec.json.decode(content, type=Note)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _convert(self, order: Order, name: str) -> Note:
        rows, damaged = Rows(order.broker), 0
        with self._sheets(name) as (messages, events):
            for part in scan(self._fs, order.path, order.base, order.end - order.base):
                if not isinstance(part, Batch) or not _take(part, rows, messages, events):
                    damaged += 1
            files = [*messages.finish(), *events.finish()]
        below = [str(file.relative_to(self._folder)) for file in files]
        return Note(order.end, messages.rows, events.rows, damaged, below)

    @contextmanager
    def _sheets(self, name: str) -> Iterator[tuple[Sheet, Sheet]]:
        messages = Sheet(self._fs, self._folder / "queues", MESSAGES, name)
        events = Sheet(self._fs, self._folder / "queue_records", RECORDS, name)
        try:
            yield messages, events
        finally:
            messages.abandon()
            events.abandon()


def _take(batch: Batch, rows: Rows, messages: Sheet, events: Sheet) -> bool:
    """Take the rows of a batch; whether it could be read."""
    try:
        records = decode_records(batch.body, batch.count)
    except StorageError:
        return False
    for record in records:
        place = rows.place(record, batch)
        message = message_in(record)
        if message is not None:
            messages.add(batch.ts_ms, place + message, len(message.payload))
        for event in events_in(record):
            events.add(batch.ts_ms, place + event, 0)
    return True
