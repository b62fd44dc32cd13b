"""Segments: the files of a journal, each named by the LSN at which it begins."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import NamedTuple
from zlib import crc32

from chappe.log.batch import MAGIC, Batch, Damaged, Torn, peek_lsn, read_batch
from chappe.log.fs import Fs

SUFFIX = ".log"
INDEX_SUFFIX = ".index"
# How much of a segment is read at once.
WINDOW_BYTES = 1024 * 1024
_INDEX_MAGIC = b"ChI\xb5"


class Damage(NamedTuple):
    """Bytes that are no batch, or cannot be read: from `offset` up to `end` in a segment's file."""

    segment: str
    offset: int
    end: int
    reason: str
    # Whether nothing came after it, as when a write was cut short by a crash.
    tail: bool = False
    # Whether it could not be read at all: that says nothing of what is there.
    unread: bool = False

    def __str__(self) -> str:
        return f"{self.segment} at {self.offset}: {self.reason}"


@dataclass(slots=True)
class Segment:
    """One file: it has the batches from `base` up to `end`; the last was written at `ts_ms`."""

    base: int
    end: int
    ts_ms: int = 0

    @property
    def size(self) -> int:
        """Its length without room allocated ahead."""
        return self.end - self.base


class Segments:
    """The segments of a journal, oldest first."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.all: list[Segment] = []

    def path(self, base: int) -> str:
        """Where a segment is."""
        return f"{self.folder}/{base:016x}{SUFFIX}"

    def index_path(self, base: int) -> str:
        """Where a sealed segment's index is."""
        return f"{self.folder}/{base:016x}{INDEX_SUFFIX}"

    def find(self, lsn: int) -> Segment | None:
        """The segment that has that position."""
        at = bisect_right(self.all, lsn, key=attrgetter("base")) - 1
        return self.all[at] if at >= 0 and lsn < self.all[at].end else None


def base_of(name: str) -> int | None:
    """The LSN that a segment's file name says, or None for other files."""
    digits = name.removesuffix(SUFFIX)
    if digits == name or len(digits) != 16:
        return None
    try:
        return int(digits, 16)
    except ValueError:
        return None


def read_at(fs: Fs, path: str, base: int, lsn: int) -> Batch | Damage:
    """Read one batch of a segment's file. Raises OSError."""
    offset = lsn - base
    data = fs.read(path, offset, 64 * 1024)
    part = read_batch(data)
    if isinstance(part, Torn) and part.needed > len(data):
        part = read_batch(fs.read(path, offset, part.needed))
    return _judge(part, path, base, offset)


def scan(fs: Fs, path: str, base: int, size: int) -> Iterator[Batch | Damage]:
    """Read all batches of a segment's file up to that size, and what lies between them.

    Where a batch is damaged, the next one is found again: where its length says, or by looking for
    a magic, a position and a CRC that are all right. Raises OSError.
    """
    offset, window, start = 0, b"", 0
    while offset < size:
        part = read_batch(window, offset - start)
        while isinstance(part, Torn) and offset + part.needed <= size:
            start = offset
            window = fs.read(path, offset, min(size - offset, max(part.needed, WINDOW_BYTES)))
            if len(window) < part.needed:
                break
            part = read_batch(window)
        found = _judge(part, path, base, offset)
        if isinstance(found, Damage):
            if start + len(window) < size:
                window, start = fs.read(path, offset, size - offset), offset
            skip = part.skip if isinstance(part, Damaged) else 0
            end = _resume(window, offset - start, base + start, skip)
            found = (
                found._replace(end=size, tail=True)
                if end is None
                else found._replace(end=start + end)
            )
        yield found
        offset = found.end if isinstance(found, Damage) else found.end - base


def _judge(part: Batch | Torn | Damaged, path: str, base: int, offset: int) -> Batch | Damage:
    if isinstance(part, Torn):
        return Damage(path, offset, offset, "it ends within a batch")
    if isinstance(part, Damaged):
        return Damage(path, offset, offset, part.reason)
    if part.lsn != base + offset:
        return Damage(path, offset, offset, f"a batch of position {part.lsn} is here")
    return part


def _resume(window: bytes, damaged: int, lsn: int, skip: int) -> int | None:
    """Where the next batch begins after a damaged one, in a window that begins at a position."""
    likely = (damaged + skip,) if skip else ()
    for at in chain(likely, _magics(window, damaged + 1)):
        if peek_lsn(window, at) == lsn + at and isinstance(read_batch(window, at), Batch):
            return at
    return None


def _magics(window: bytes, start: int) -> Iterator[int]:
    at = window.find(MAGIC, start)
    while at >= 0:
        yield at
        at = window.find(MAGIC, at + 1)


def wrap_index(data: bytes) -> bytes:
    """An index file's content."""
    return _INDEX_MAGIC + crc32(data).to_bytes(4) + data


def unwrap_index(content: bytes) -> bytes | None:
    """What an index file holds, or None when it is damaged."""
    data = content[8:]
    if content[:4] != _INDEX_MAGIC or content[4:8] != crc32(data).to_bytes(4):
        return None
    return data
