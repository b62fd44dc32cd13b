"""The archive: segments that are over, with their indexes, until retention lets them go."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from chappe.log.flushing import Flushing
from chappe.log.fs import Fs
from chappe.log.group import Sealing
from chappe.log.jobs import Jobs
from chappe.log.options import JournalOptions
from chappe.log.retention import removable
from chappe.log.segment import Segments, unwrap_index, wrap_index
from chappe.log.writer import Writer

log = structlog.get_logger()


class Archive:
    """All segments of a journal but the last."""

    def __init__(
        self,
        fs: Fs,
        segments: Segments,
        writer: Writer,
        jobs: Jobs,
        flushing: Flushing,
        options: JournalOptions,
        wall_ms: Callable[[], int],
    ) -> None:
        self._fs = fs
        self._segments = segments
        self._writer = writer
        self._jobs = jobs
        self._flushing = flushing
        self._options = options
        self._wall_ms = wall_ms
        self._passed = 0
        self._removing = False
        # The owner's: whom to tell of each that was sealed (path, base), once its index is written;
        # whether one has to stay.
        self.sealed: Callable[[str, int], None] | None = None
        self.keep: Callable[[int], bool] | None = None

    def seal(self, sealing: Sealing) -> None:
        """Take in a segment that is over: write its index, then tell of it."""
        base, index = sealing.base, sealing.index
        path = self._segments.path(base)

        def write() -> None:
            if index is not None:
                self.write_index(base, index)

        def written(_: None, error: OSError | None) -> None:
            if error is not None:
                # It can be made again from the segment.
                log.warning("index not written", segment=path, error=str(error))
            if self.sealed is not None:
                self.sealed(path, base)
            self._retain()

        self._jobs.run(write, written)

    def read_index(self, base: int) -> bytes | None:
        """A segment's index, blocking; None when it is missing or damaged."""
        path = self._segments.index_path(base)
        if not self._fs.exists(path):
            return None
        return unwrap_index(self._fs.read(path, 0, self._fs.size(path)))

    def write_index(self, base: int, data: bytes) -> None:
        """Put a segment's index in place, blocking."""
        self._fs.write(self._segments.index_path(base), wrap_index(data))

    def trim(self, lsn: int) -> None:
        """Let go what is below, as retention allows."""
        self._passed = max(self._passed, lsn)
        self._retain()

    def _retain(self) -> None:
        sealed = self._segments.all[:-1]
        if self._removing or self._flushing.broken or not sealed or sealed[0].end > self._passed:
            return
        going = removable(sealed, self._passed, self._wall_ms(), self._options, self.keep)
        if going:
            del self._segments.all[: len(going)]
            self._removing = True
            bases = [segment.base for segment in going]
            # The snapshot that stands for them has to be on the disk before they go.
            self._jobs.run(self._writer.sync, self._flushing.synced)
            self._jobs.run(lambda: self._writer.remove(bases), self._removed)

    def _removed(self, _: None, error: OSError | None) -> None:
        self._removing = False
        if error is not None:
            log.warning("segments not removed", folder=self._segments.folder, error=str(error))
