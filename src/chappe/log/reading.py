"""Reading: batches by their position, from memory or off the loop from their segment."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from chappe.log.batch import Batch, read_batch
from chappe.log.disk import Disk
from chappe.log.fs import Fs
from chappe.log.segment import Damage, Segments, read_at

Got = Callable[[Batch | Damage], None]
GotRaw = Callable[[bytes | Damage], None]


class Cache:
    """Batches in memory, a number of bytes at most, the one used last goes last."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: OrderedDict[int, Batch] = OrderedDict()

    def get(self, lsn: int) -> Batch | None:
        """The batch at that position, if it is here."""
        batch = self._batches.get(lsn)
        if batch is not None:
            self._batches.move_to_end(lsn)
        return batch

    def add(self, batch: Batch) -> None:
        """Keep a batch, and let others go."""
        if batch.lsn in self._batches:
            return
        self._batches[batch.lsn] = batch
        self._bytes += len(batch.data)
        while self._bytes > self._bytes_max and len(self._batches) > 1:
            _, gone = self._batches.popitem(last=False)
            self._bytes -= len(gone.data)

    def clear(self) -> None:
        """Keep nothing."""
        self._batches.clear()
        self._bytes = 0


class Reading:
    """Reads for the owner of a journal; what several ask for is read once."""

    def __init__(self, fs: Fs, disk: Disk, segments: Segments, cache_bytes: int) -> None:
        self._fs = fs
        self._disk = disk
        self._segments = segments
        self._asked: dict[int, list[Got]] = {}
        # Apart, so that one who reads what is old does not push out what all are about to read.
        self.newest = Cache(cache_bytes)
        self._others = Cache(cache_bytes)

    def read(self, lsn: int, got: Got) -> None:
        """Get the batch at a position; at once if it is in memory. Raises Overload."""
        batch = self.newest.get(lsn) or self._others.get(lsn)
        segment = self._segments.find(lsn)
        if batch is not None:
            got(batch)
        elif segment is None:
            got(Damage(self._segments.folder, lsn, lsn, "nothing is kept at this position"))
        elif lsn in self._asked:
            self._asked[lsn].append(got)
        else:
            base, path = segment.base, self._segments.path(segment.base)
            self._disk.run(
                lambda: read_at(self._fs, path, base, lsn),
                lambda found, error: self._found(lsn, found or _unread(path, lsn - base, error)),
            )
            self._asked[lsn] = [got]

    def raw(self, lsn: int, bytes_max: int, got: GotRaw) -> None:
        """Get whole batches of one segment from a position on, one at least. Raises Overload."""
        near = self._near(lsn, bytes_max)
        segment = self._segments.find(lsn)
        if near:
            got(near)
        elif segment is None:
            got(Damage(self._segments.folder, lsn, lsn, "nothing is kept at this position"))
        else:
            base, path, end = segment.base, self._segments.path(segment.base), segment.end
            self._disk.run(
                lambda: _read_run(self._fs, path, base, lsn, min(end, lsn + bytes_max)),
                lambda found, error: got(found or _unread(path, lsn - base, error)),
            )

    def clear(self) -> None:
        """Forget what is in memory."""
        self.newest.clear()
        self._others.clear()

    def _found(self, lsn: int, found: Batch | Damage) -> None:
        if isinstance(found, Batch):
            self._others.add(found)
        for got in self._asked.pop(lsn):
            got(found)

    def _near(self, lsn: int, bytes_max: int) -> bytes:
        """What is in memory from a position on."""
        run: list[bytes] = []
        batch = self.newest.get(lsn)
        while batch is not None and not (run and (batch.first or len(batch.data) > bytes_max)):
            run.append(batch.data)
            bytes_max -= len(batch.data)
            batch = self.newest.get(batch.end)
        return b"".join(run)


def _read_run(fs: Fs, path: str, base: int, lsn: int, until: int) -> bytes | Damage:
    first = read_at(fs, path, base, lsn)
    if isinstance(first, Damage) or first.end >= until:
        return first if isinstance(first, Damage) else first.data
    data = fs.read(path, lsn - base, until - lsn)
    at = 0
    while isinstance(batch := read_batch(data, at), Batch) and batch.lsn == lsn + at:
        at += len(batch.data)
    return data[:at] or first.data


def _unread(path: str, offset: int, error: OSError | None) -> Damage:
    return Damage(path, offset, offset, f"cannot be read: {error}", unread=True)
