"""Sealing: event logs that nobody writes any more become tables, whoever wrote them; blocking.

A node does so itself, at its end or in its next life. One that is killed and never comes back does
not: then somebody else has to, and says that it is gone. A node that comes back meanwhile is told
that its log is in use, and does not start: so who seals time and again does that to few.

A segment that is copied stays as it is, and so does the table that it became: somebody may have
taken that. What is added to a log begins a segment.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import msgspec

from chappe.errors import ConfigError, StorageError
from chappe.events.lives import Lives
from chappe.events.opening import Word, encode_opening
from chappe.events.tail import Tail
from chappe.log.batch import encode_batch
from chappe.log.fs import OsFs
from chappe.log.parquet.order import EVENTS, Order
from chappe.log.recovery import Recovery
from chappe.log.segment import Damage, Segment, Segments
from chappe.log.writer import LOCK
from chappe.node.options import EVENT_LOGS
from chappe.node.slates import left_slates, leftovers, remove

# Makes an array of one record.
_ONE = b"\x91"


class Sealed(msgspec.Struct):
    """What became of the logs in a folder."""

    # Nodes whose logs are whole now, and those that write on.
    nodes: list[str] = []
    alive: list[str] = []
    events: int = 0
    # Places that could not be read.
    damaged: int = 0
    # Nodes whose logs could not be copied, and why.
    failed: dict[str, str] = {}


def seal(folder: Path) -> Sealed:
    """Copy what nodes that are gone left in a folder of events; again, it does nothing.

    Raises ConfigError when there is no such folder, and OSError.
    """
    if find_spec("pyarrow") is None:
        raise ConfigError("events: needs pyarrow: pip install 'chappe[parquet]'")
    if not folder.is_dir():
        raise ConfigError(f"events: {folder} is no folder")
    sealed = Sealed()
    for log in _logs(folder):
        _seal(log, folder, sealed)
    return sealed


# The names of a log's files, how long they are and when they were written.
_State = frozenset[tuple[str, int, int]]


class Sealer:
    """Seals a folder's logs time and again: those that nobody has written from one look to the
    next. A node that is started anew at once finds its log free, and so does any whose log is whole
    already."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[Path, _State | None] = {}
        self._whole: dict[Path, _State | None] = {}

    def look(self) -> Sealed:
        """Seal what nobody has written since the last look; raises as `seal` does."""
        sealed = Sealed()
        seen = {log: _state(log) for log in _logs(self._folder)}
        for log, state in seen.items():
            silent = state is not None and state == self._seen.get(log)
            if silent and state != self._whole.get(log) and _seal(log, self._folder, sealed):
                self._whole[log] = _state(log)
        self._seen = seen
        self._whole = {log: state for log, state in self._whole.items() if log in seen}
        return sealed


def _logs(folder: Path) -> list[Path]:
    logs = folder / EVENT_LOGS
    return sorted(log for log in logs.iterdir() if log.is_dir()) if logs.is_dir() else []


def _state(log: Path) -> _State | None:
    """None while files go: somebody is at work on it."""
    try:
        stats = {file.name: file.stat() for file in log.iterdir()}
    except FileNotFoundError:
        return None
    return frozenset((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items())


def _seal(log: Path, folder: Path, sealed: Sealed) -> bool:
    """Seal a log unless somebody has it, or it cannot be done; whether it is whole now."""
    fs = OsFs()
    try:
        lock = fs.lock(str(log / LOCK))
    except StorageError:
        sealed.alive.append(log.name)
        return False
    try:
        _copy(fs, log, folder, sealed)
    except StorageError as error:
        # Others are not to wait for it.
        sealed.failed[log.name] = str(error)
        return False
    finally:
        lock.close()
    sealed.nodes.append(log.name)
    return True


def _copy(fs: OsFs, log: Path, folder: Path, sealed: Sealed) -> None:
    from pyarrow import ArrowException  # noqa: PLC0415, an extra

    from chappe.node.eventtables import event_copier  # noqa: PLC0415, needs it

    segments = Segments(str(log))
    damages: list[Damage] = []
    recovery = Recovery(fs, segments, damages.append)
    lives, tail = Lives(), Tail()
    for batch in recovery.batches():
        lives.take(batch.array)
        tail.take(batch.array)
    slates = left_slates(log)
    added = _added(log.name, slates, lives, tail)
    if added:
        _begin_segment(fs, segments, recovery.base, added)
    remove(slates)
    copier = event_copier(folder)
    for segment in segments.all:
        path = segments.path(segment.base)
        order = Order(log.name, path, segment.base, segment.end, EVENTS)
        try:
            copied = copier.copy(order)
        except ArrowException as error:
            raise StorageError(f"{path}: {error}") from None
        copier.forget(order)
        if not copied.before:
            sealed.events += copied.records
            sealed.damaged += copied.damaged
        if segment is not segments.all[-1]:
            # The last stays: a node that comes back goes on behind it.
            fs.remove(path)


def _added(node: str, slates: list[Path], lives: Lives, tail: Tail) -> list[list[bytes]]:
    """What the node had no time to write, batch by batch: what a start asks for, what is on slates
    only, and that it is gone."""
    newest = lives.of(lives.newest)
    said = Word(tail.marks, tail.heard, epochs=tail.epochs)
    opening = encode_opening(node, newest, said) if newest.boot else b""
    added = [one.left.records for one in leftovers(slates, lives)]
    for records in added:
        for record in records:
            lives.take(_ONE + record)
    word = lives.word(node)
    if word is not None:
        added.append([word])
    return [[opening], *added] if added and opening else added


def _begin_segment(fs: OsFs, segments: Segments, base: int, added: list[list[bytes]]) -> None:
    """Begin a segment at the end of a log: all of it is there, or nothing."""
    ts_ms = 0
    if segments.all:
        last = segments.all[-1]
        base, ts_ms = last.end, last.ts_ms
        # It may be in the machine's memory only, and what follows it must not be alone.
        file = fs.open_append(segments.path(last.base))
        try:
            file.sync()
        finally:
            file.close()
    data = b""
    for records in added:
        data += encode_batch(
            records,
            lsn=base + len(data),
            epoch=0,
            ts_ms=ts_ms,
            count=len(records),
            first=not data,
        )
    fs.write(segments.path(base), data)
    segments.all.append(Segment(base, base + len(data), ts_ms))
