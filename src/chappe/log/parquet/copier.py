"""The copier: a sealed segment in, files of Parquet out; blocking.

    FOLDER/.../date=2026-05-01/hour=13/OWNER-BASE-CHECK.parquet    what the segment holds
    NOTES/OWNER/BASE-CHECK.json                                   written last: it is all

BASE is where the segment begins, CHECK a checksum of its first batch's header: journals that begin
at the same place, as those of two nodes with one name do, never take each other's files.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from zlib import crc32

import msgspec

from chappe.log.batch import HEADER_BYTES, Batch
from chappe.log.fs import OsFs
from chappe.log.parquet.lock import held
from chappe.log.parquet.order import Copied, Order
from chappe.log.segment import scan


class Tables(Protocol):
    """What the rows of one segment become."""

    @property
    def counts(self) -> tuple[int, int]:
        """How many rows there are: of messages, of all else."""
        ...

    def take(self, batch: Batch) -> bool:
        """Take the rows of a batch; whether it could be read."""
        ...

    def finish(self) -> list[Path]:
        """Put all files in place; returns them."""
        ...

    def abandon(self) -> None:
        """Leave nothing behind."""
        ...


class Note(msgspec.Struct):
    """What is kept of a segment that was copied: a person may read it."""

    end: int
    messages: int
    records: int
    damaged: int
    # Relative to the folder of all copies.
    files: list[str]


class Copier:
    """Copies segments to a folder. `tables` makes what takes the rows, given whose they are and the
    name of the files."""

    def __init__(
        self, folder: Path, notes: str, tables: Callable[[OsFs, str, str], Tables]
    ) -> None:
        self._folder = folder
        self._notes = folder / notes
        self._tables = tables
        self._fs = OsFs()

    def copy(self, order: Order) -> Copied:
        """Copy a segment unless that was done; raises OSError, StorageError and what Arrow does."""
        notes = self._notes / order.broker
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

    def forget(self, order: Order) -> None:
        """Let go of the notes of segments before this one, which are gone."""
        for note in (self._notes / order.broker).glob("*.json"):
            base = note.name.partition("-")[0]
            if int(base, 16) < order.base and not Path(order.path).with_stem(base).exists():
                note.unlink(missing_ok=True)

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
        tables, damaged = self._tables(self._fs, order.broker, name), 0
        try:
            for part in scan(self._fs, order.path, order.base, order.end - order.base):
                if not isinstance(part, Batch) or not tables.take(part):
                    damaged += 1
            files = tables.finish()
        finally:
            tables.abandon()
        below = [str(file.relative_to(self._folder)) for file in files]
        return Note(order.end, *tables.counts, damaged, below)
