"""The writer: the blocking half of a journal, used only by the jobs of its disk.

A disk that fills up must not take back what was accepted. So room for all that may be accepted and
not written yet is held in a file of its own, the reserve. When a write finds the disk full, the
reserve is spent and the write made again; from then on the journal refuses, until the reserve can
be taken anew. (If others take the room in between, the write fails as on any broken disk.)
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from chappe.log.fs import File, Fs, Handle
from chappe.log.segment import Segments

LOCK = "lock"
RESERVE = "reserve"
FULL = (errno.ENOSPC, errno.EDQUOT)


class Piece(NamedTuple):
    """Whole batches of one segment; `base` is set when they begin it."""

    data: bytes
    base: int | None = None


class Writer:
    """Writes to the last segment."""

    def __init__(
        self, fs: Fs, segments: Segments, *, allocate_bytes: int, reserve_bytes: int
    ) -> None:
        self._fs = fs
        self._segments = segments
        self._allocate_bytes = allocate_bytes
        self._reserve_bytes = reserve_bytes
        self._reserve = f"{segments.folder}/{RESERVE}"
        self._lock: Handle | None = None
        self._file: File | None = None
        self._base = -1
        self._allocated = 0

    def lock(self) -> None:
        """Make the folder and be its only user. Raises StorageError when there is another."""
        self._fs.make_dirs(self._segments.folder)
        self._lock = self._fs.lock(f"{self._segments.folder}/{LOCK}")

    def open(self, base: int) -> None:
        """Go on at the end of a segment that was cut to what it holds."""
        self._base, self._allocated = base, 0
        self._file = self._fs.open_append(self._segments.path(base))
        # A process that was killed may have left it in the machine's memory only.
        self._file.sync()

    def write(self, pieces: list[Piece], sync: bool) -> bool:
        """Write and maybe sync; whether the reserve had to be spent."""
        spent = False
        for piece in pieces:
            try:
                self._put(piece)
            except OSError as error:
                if error.errno not in FULL or not self._spend():
                    raise
                spent = True
                self._put(piece)
        if sync:
            self.sync()
        return spent

    def sync(self) -> None:
        """Wait until all that was written is on the disk."""
        if self._file is not None:
            self._file.sync()

    def hold_reserve(self) -> bool:
        """Take the reserve if there is room for it; whether it is there now."""
        if self._fs.exists(self._reserve) and self._fs.size(self._reserve) >= self._reserve_bytes:
            return True
        try:
            file = self._fs.open_append(self._reserve)
            try:
                file.allocate(self._reserve_bytes)
                file.sync()
            finally:
                file.close()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._spend()
            return False
        return True

    def remove(self, bases: list[int]) -> None:
        """Remove segments, oldest first, so that a crash in between leaves no gap."""
        for base in bases:
            for path in (self._segments.path(base), self._segments.index_path(base)):
                if self._fs.exists(path):
                    self._fs.remove(path)
        self._fs.sync_dir(self._segments.folder)

    def seal(self) -> None:
        """Cut off the room that was not needed, and close the segment."""
        if self._file is None:
            return
        file, self._file = self._file, None
        size = file.size
        file.close()
        self._fs.truncate(self._segments.path(self._base), size)
        # One that begins at the same place, after that was cut, is another.
        self._base = -1

    def close(self) -> None:
        """Close the segment and let others have the journal."""
        try:
            self.seal()
        finally:
            self.unlock()

    def unlock(self) -> None:
        """Let others have the journal."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _put(self, piece: Piece) -> None:
        if piece.base is not None and piece.base != self._base:
            self.seal()
            self._begin(piece.base)
        assert self._file is not None
        needed = self._file.size + len(piece.data)
        if self._allocate_bytes and needed > self._allocated:
            self._file.allocate(needed + self._allocate_bytes)
            self._allocated = needed + self._allocate_bytes
        self._file.append(piece.data)

    def _begin(self, base: int) -> None:
        file = self._fs.open_append(self._segments.path(base))
        self._fs.sync_dir(self._segments.folder)
        self._file, self._base, self._allocated = file, base, 0

    def _spend(self) -> bool:
        if not self._fs.exists(self._reserve):
            return False
        self._fs.remove(self._reserve)
        return True
