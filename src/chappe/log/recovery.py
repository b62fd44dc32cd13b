"""Recovery: what a journal's files hold after whatever happened to them.

Whole batches are kept. Bytes that are no batch are damage when a whole batch follows them, and are
then left alone and reported. When none follows, in the last segment, they are the torn tail of a
write that was never acknowledged: reported too, and cut. (A damaged last batch looks the same.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise, zip_longest

from chappe.log.batch import HEADER_BYTES, Batch, peek_ts
from chappe.log.fs import ASIDE, Fs
from chappe.log.segment import INDEX_SUFFIX, Damage, Segment, Segments, base_of, read_at, scan

# Lies in the folder of a journal that was closed in order.
CLOSED = "closed"


class Recovery:
    """Reads a journal's folder, once."""

    def __init__(self, fs: Fs, segments: Segments, report: Callable[[Damage], None]) -> None:
        self._fs = fs
        self._segments = segments
        self._report = report
        # Where the journal goes on when no segment is left.
        self.base = 0

    def batches(self) -> Iterator[Batch]:
        """Read what is needed to fold the state; afterwards the last segment has been cut.

        That begins with the newest segment whose first batch, and so its snapshot, is whole.
        """
        self._find()
        self._drop_empty()
        self._drop_indexes()
        self._date()
        segments = self._segments.all
        newest = (at for at in reversed(range(len(segments))) if self._is_whole(segments[at]))
        for segment in segments[next(newest, 0) :]:
            yield from self._read(segment)

    def write_anew(self) -> None:
        """Write the newest segments again, unless the journal was closed in order.

        A sync that failed may have left pages that look clean and are not on the disk: to sync them
        again would say that all is well. At most two segments were being written to.
        """
        marker = f"{self._segments.folder}/{CLOSED}"
        if self._fs.exists(marker):
            self._fs.remove(marker)
            self._fs.sync_dir(self._segments.folder)
            return
        for segment in self._segments.all[-2:]:
            path = self._segments.path(segment.base)
            self._fs.rewrite(path, self._fs.read(path, 0, segment.size))

    def _find(self) -> None:
        folder = self._segments.folder
        bases = []
        for name in self._fs.list(folder):
            base = base_of(name)
            if base is not None:
                bases.append(base)
            elif name.endswith(ASIDE):
                self._fs.remove(f"{folder}/{name}")
        for base, after in zip_longest(bases, bases[1:]):
            path = self._segments.path(base)
            size = self._fs.size(path)
            if after is not None and base + size < after:
                self._report(Damage(path, size, after - base, "the segment is too short"))
            self._segments.all.append(Segment(base, base + size if after is None else after))

    def _drop_empty(self) -> None:
        """Forget last segments without a single whole batch: begun, and then the crash came."""
        while self._segments.all:
            last = self._segments.all[-1]
            if any(isinstance(part, Batch) for part in self._scan(last)):
                return
            path = self._segments.path(last.base)
            self._tell_tail(path, 0, last.size)
            self._fs.remove(path)
            self._segments.all.pop()
            self.base = last.base

    def _drop_indexes(self) -> None:
        """Remove indexes of what is not sealed: such segments are gone, or will grow."""
        sealed = {self._segments.index_path(segment.base) for segment in self._segments.all[:-1]}
        for name in self._fs.list(self._segments.folder):
            path = f"{self._segments.folder}/{name}"
            if name.endswith(INDEX_SUFFIX) and path not in sealed:
                self._fs.remove(path)

    def _date(self) -> None:
        """Date each segment by the first batch of the one after it; that is not checked yet."""
        segments = self._segments.all
        for segment, after in pairwise(segments):
            head = self._fs.read(self._segments.path(after.base), 0, HEADER_BYTES)
            segment.ts_ms = peek_ts(head)

    def _is_whole(self, segment: Segment) -> bool:
        path = self._segments.path(segment.base)
        part = read_at(self._fs, path, segment.base, segment.base)
        return isinstance(part, Batch) and part.first

    def _read(self, segment: Segment) -> Iterator[Batch]:
        last = segment is self._segments.all[-1]
        end = segment.base
        for part in self._scan(segment):
            if isinstance(part, Batch):
                end, segment.ts_ms = part.end, part.ts_ms
                yield part
            elif not (last and part.tail):
                self._report(part)
        if last and end < segment.end:
            path = self._segments.path(segment.base)
            self._tell_tail(path, end - segment.base, segment.size)
            self._fs.truncate(path, end - segment.base)
            segment.end = end

    def _scan(self, segment: Segment) -> Iterator[Batch | Damage]:
        path = self._segments.path(segment.base)
        size = min(segment.size, self._fs.size(path))
        return scan(self._fs, path, segment.base, size)

    def _tell_tail(self, path: str, offset: int, size: int) -> None:
        """Report a torn tail; room that was allocated and never written is none."""
        if any(self._fs.read(path, offset, size - offset)):
            self._report(Damage(path, offset, size, "a torn tail, which was cut", tail=True))
