"""A journal: one append-only log in a folder, written in groups.

What is appended in one turn of the loop, and while a write is under way, makes one batch: it is
written and synced once, off the loop. Everybody in it is told when it is committed: on the disk as
the flush policy says and, with an acknowledger, confirmed by that.

The owner folds records into its state when it appends them, so the state is ahead of the disk, and
nothing that was accepted is taken back while the journal works (see flushing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import structlog

from chappe.errors import Forbidden, Overload, StorageError
from chappe.log.archive import Archive
from chappe.log.batch import HEADER_BYTES, Batch
from chappe.log.cutting import cut_back
from chappe.log.damages import Damages
from chappe.log.disk import Disk
from chappe.log.epochs import Epochs
from chappe.log.flushing import Acknowledger, Flushing, Timer
from chappe.log.fs import Fs
from chappe.log.group import Building, Done, Group, Sealing
from chappe.log.jobs import Jobs
from chappe.log.options import JournalOptions
from chappe.log.raw import check_raw
from chappe.log.reading import Got, GotRaw, Reading
from chappe.log.recovery import CLOSED, Recovery
from chappe.log.segment import Damage, Segment, Segments, read_at, scan
from chappe.log.writer import Piece, Writer

log = structlog.get_logger()

# A segment is so many times as long as the snapshot that it begins with, at least.
_SNAPSHOT_SHARE = 4


class Journal:
    """A log in a folder. `recover` comes first, then `append`; `close` at the end."""

    def __init__(
        self,
        fs: Fs,
        disk: Disk,
        reading: Disk,
        folder: str,
        options: JournalOptions,
        wall_ms: Callable[[], int],
        timer: Timer,
        snapshot: Callable[[], list[bytes]],
    ) -> None:
        self.folder = folder
        self._fs = fs
        self._options = options
        self._wall_ms = wall_ms
        self._snapshot = snapshot
        self._jobs = Jobs(disk)
        self._segments = Segments(folder)
        self._reading = Reading(fs, reading, self._segments, options.cache_bytes)
        self._writer = Writer(
            fs,
            self._segments,
            allocate_bytes=options.allocate_bytes,
            reserve_bytes=options.reserve_bytes,
        )
        self._flushing = Flushing(
            folder, self._writer, self._jobs, timer, options, self._close_batch, self._landed
        )
        self._archive = Archive(
            fs, self._segments, self._writer, self._jobs, self._flushing, options, wall_ms
        )
        self._epochs = Epochs(fs, folder)
        self._damages = Damages()
        # The owner's: what to keep in the index of a segment that is over.
        self.index: Callable[[int], bytes] | None = None
        # The LSN of the batch that is being built.
        self.end = 0
        # Where the segment begins that it goes to; None: it begins one.
        self._base: int | None = None
        self._roll_bytes = options.segment_bytes
        self._open = False

    @property
    def start(self) -> int:
        """The oldest position that is kept."""
        return self._segments.all[0].base if self._segments.all else self.flushed

    @property
    def flushed(self) -> int:
        """All below is on the disk, as the flush policy says."""
        return self._flushing.flushed

    @property
    def committed(self) -> int:
        """All below is flushed, and confirmed by the acknowledger if there is one."""
        return self._flushing.committed

    @property
    def flushes(self) -> int:
        """How often it was written to the disk."""
        return self._flushing.flushes

    @property
    def failed(self) -> str | None:
        """Why nothing can be appended any more."""
        return self._flushing.failed

    @property
    def broken(self) -> bool:
        """Whether its disk failed: what it holds is not to be relied on until a new start."""
        return self._flushing.broken

    @property
    def acknowledger(self) -> Acknowledger | None:
        """Who confirms what is flushed; without one, it is committed at once."""
        return self._flushing.acknowledger

    @acknowledger.setter
    def acknowledger(self, acknowledger: Acknowledger | None) -> None:
        self._flushing.acknowledger = acknowledger

    @property
    def sealed(self) -> Callable[[str, int], None] | None:
        """Who is told of each segment that is over, by path and base, once its index is written."""
        return self._archive.sealed

    @sealed.setter
    def sealed(self, sealed: Callable[[str, int], None] | None) -> None:
        self._archive.sealed = sealed

    @property
    def keep(self) -> Callable[[int], bool] | None:
        """Who says whether a segment has to stay, by its base."""
        return self._archive.keep

    @keep.setter
    def keep(self, keep: Callable[[int], bool] | None) -> None:
        self._archive.keep = keep

    @property
    def damages(self) -> list[Damage]:
        """What of its files is no batch, as far as it was seen."""
        return self._damages.all

    @property
    def epoch(self) -> int:
        """The epoch that the journal is in; 0 before the first."""
        return self._epochs.last

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """Each epoch with the position at which it began, oldest first."""
        return self._epochs.all

    @property
    def bases(self) -> list[int]:
        """Where the segments begin, oldest first; all but the last are sealed."""
        return [segment.base for segment in self._segments.all]

    def recover(self) -> Iterator[Batch]:
        """Read what has to be folded, blocking; to be exhausted before anything is appended.

        Yields the batches from the newest whole snapshot on. Damage is reported in `damages` and
        never yielded; a torn tail is cut. Raises StorageError when another process has the journal
        open, and OSError.
        """
        self._writer.lock()
        try:
            known = self._epochs.load()
            recovery = Recovery(self._fs, self._segments, self._damages.report)
            for batch in recovery.batches():
                self._epochs.begin(batch.epoch, batch.lsn)
                yield batch
            if not known:
                self._find_epochs()
            recovery.write_anew()
            # What was reset to a master's position and got nothing yet begins there.
            self._resume(max(recovery.base, self._epochs.began))
            self._open = True
            self._flushing.failed = None
        finally:
            if not self._open:
                self._writer.unlock()

    def append(self, records: Sequence[bytes], done: Done | None, *, freeing: bool = False) -> int:
        """Add records to the batch that is being built; returns its LSN.

        `done` is called when the batch is committed, or with an error. `freeing` records are those
        that let others go (acknowledgements): a journal that is full takes them as long as it can.
        Raises Overload, and then nothing has changed.
        """
        assert records
        size = sum(map(len, records))
        self._check_room(size, freeing=freeing)
        if not self._flushing.building.records:
            self._begin_batch(size)
        self._flushing.add(records, size, done)
        return self.end

    def check(self, size: int = 0, *, freeing: bool = False) -> None:
        """Raise Overload when so many bytes cannot be appended now."""
        self._check_room(size, freeing=freeing)

    def roll_soon(self) -> None:
        """Begin a segment with the next batch, however short the one before it is."""
        self._roll_bytes = 0

    def flush_soon(self) -> None:
        """Write what waits in the loop's next turn, or when the write under way is over."""
        self._flushing.flush_soon()

    def acknowledge(self, lsn: int) -> None:
        """Commit all below; those who waited for it are told."""
        self._flushing.acknowledge(lsn)

    def fence(self, reason: str) -> None:
        """Refuse from now on; what waits has an unknown outcome. A higher epoch ends it.

        What waited to be written never will be: the owner has to fold its state anew.
        """
        self._flushing.fence(reason)
        flying = self._flushing.flying
        self.end = self.flushed if flying is None else flying.end
        self._base = self._segments.all[-1].base if self._segments.all else None
        self._roll_bytes = self._options.segment_bytes
        if flying is not None and flying.piece.base is not None:
            self._base = flying.piece.base

    def begin_epoch(self, epoch: int) -> None:
        """Write in a higher epoch from now on; that ends a fence.

        Raises Forbidden when the journal has seen a higher one, and Overload when the disk failed.
        """
        if epoch < self.epoch:
            raise Forbidden(f"epoch {epoch} is over, this log is in {self.epoch}")
        self._check_disk()
        if self._epochs.begin(epoch, self.end):
            self._flushing.failed = None
            self._keep_epochs()

    def read(self, lsn: int, got: Got) -> None:
        """Get the batch at a position: at once when it is in memory, else later.

        What cannot be read is told as Damage. Raises Overload when too many reads wait.
        """
        self._reading.read(lsn, got)

    def raw(self, lsn: int, bytes_max: int, got: GotRaw) -> None:
        """Get whole batches from a position on, for a replica: one at least, of one segment.

        Only what is flushed is given. Raises Overload when too many reads wait.
        """
        self._reading.raw(lsn, bytes_max, got)

    def append_raw(self, data: bytes, done: Done | None) -> list[Batch]:
        """Add a master's batches as they are; returns them, for the owner to fold.

        Raises BadRequest when they are damaged or do not fit, Forbidden when their epoch is over,
        Overload when the disk failed or too much waits; then nothing has changed.
        """
        self._check_disk()
        assert not self._flushing.building.records, "a log has one writer"
        batches = check_raw(data, self.end, self.epoch, begins=self._base is None)
        self._flushing.check_raw_room(len(data))
        first = batches[0].first
        sealing = self._roll() if first else None
        before = self.epoch
        for batch in batches:
            self._epochs.begin(batch.epoch, batch.lsn)
        if self.epoch != before:
            self._keep_epochs()
        piece = Piece(data, self.end if first else None)
        self.end = batches[-1].end
        self._flushing.add_raw(Group(piece, batches, [] if done is None else [done], sealing))
        return batches

    def trim(self, lsn: int) -> None:
        """Let go what is below, as retention allows; to be called now and then."""
        self._archive.trim(lsn)

    def read_index(self, base: int) -> bytes | None:
        """What `index` gave for a sealed segment, blocking; None when it is missing or damaged."""
        return self._archive.read_index(base)

    def write_index(self, base: int, data: bytes) -> None:
        """Put a sealed segment's index in place, blocking."""
        self._archive.write_index(base, data)

    def scan(self, base: int) -> Iterator[Batch]:
        """Read all batches of one segment, blocking; damage is reported."""
        segment = self._segments.find(base)
        assert segment is not None
        path = self._segments.path(base)
        for part in scan(self._fs, path, base, segment.size):
            if isinstance(part, Batch):
                yield part
            else:
                self._damages.report(part)

    def look(self, lsn: int) -> Batch | None:
        """Read the batch at a position, blocking; None when there is none any more, or damage."""
        segment = self._segments.find(lsn)
        if segment is None:
            return None
        part = read_at(self._fs, self._segments.path(segment.base), segment.base, lsn)
        return part if isinstance(part, Batch) else None

    def truncate(self, lsn: int) -> int:
        """Cut back to the last batch that ends at a position or before, blocking.

        Epochs that began there, and so have not a single batch, are forgotten. Returns the new end.
        Raises StorageError when something is under way or nothing that old is kept.
        """
        self._check_idle()
        if lsn < self.start:
            raise StorageError(f"{self.folder}: nothing is kept before {self.start}")
        end = self.end
        if lsn < end:
            self._writer.seal()
            end = cut_back(self._fs, self._segments, lsn)
            self._resume(end)
        if self._epochs.cut(end):
            self._epochs.save()
        return end

    def reset(self, lsn: int, epoch: int) -> None:
        """Forget everything and begin at a master's segment, blocking.

        Raises StorageError when something is under way.
        """
        self._check_idle()
        self._writer.seal()
        self._writer.remove(self.bases)
        self._segments.all.clear()
        self._epochs.all = [(epoch, lsn)]
        self._epochs.save()
        self._resume(lsn)

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back when nothing is under way, so that it can be cut: at once if that is so."""
        self._jobs.when_idle(callback)

    async def settled(self) -> None:
        """Wait until nothing is under way on the disk."""
        await self._jobs.settled()

    async def close(self) -> None:
        """Write what was accepted, close the files and let others open the journal."""
        self._flushing.flush_now()
        await self._jobs.settled()
        # What the acknowledger did not let through, or has not confirmed.
        self._flushing.stop(f"{self._flushing.name}: closed")
        if self._open:
            self._open = False
            self._jobs.run(self._close_files, self._closed)
            await self._jobs.settled()

    def _close_files(self) -> None:
        """Close in order: the next start need not doubt what is there."""
        if not self._flushing.broken:
            self._writer.sync()
            self._fs.write(f"{self.folder}/{CLOSED}", b"")
        self._writer.close()

    def _begin_batch(self, size: int) -> None:
        """Begin a segment with the batch if it is time for one, before records go into it."""
        if self._base is not None and self.end - self._base < self._roll_bytes:
            return
        records = self._snapshot()
        snapshot_bytes = sum(map(len, records))
        too_large = snapshot_bytes > self._options.batch_bytes_max
        if too_large or not self._flushing.fits(size + snapshot_bytes + 2 * HEADER_BYTES):
            if self._base is None:
                raise Overload(f"{self._flushing.name}: no room for a snapshot")
            # The segment goes on; to try at every batch would cost a snapshot each.
            log.warning("no room for a snapshot", folder=self.folder, bytes=snapshot_bytes)
            self._roll_bytes += self._options.segment_bytes // 4
            return
        building = Building()
        building.begin(records, self._roll())
        # Snapshots stay the smaller part of a log, however large they are.
        self._roll_bytes = max(self._roll_bytes, _SNAPSHOT_SHARE * snapshot_bytes)
        self._flushing.begin_segment(building)

    def _roll(self) -> Sealing | None:
        """Go over to a segment that begins here; what is over gets its index when that is safe."""
        before, self._base = self._base, self.end
        self._roll_bytes = self._options.segment_bytes
        if before is None or before == self.end:
            return None
        return Sealing(before, None if self.index is None else self.index(before))

    def _close_batch(self, building: Building) -> Group:
        group = building.close(self.end, self.epoch, self._wall_ms())
        self.end = group.end
        return group

    def _landed(self, group: Group) -> None:
        """A group is on the disk: it can be read, and what came before its segment sealed."""
        if group.piece.base is not None:
            self._segments.all.append(Segment(group.piece.base, group.piece.base))
        segment = self._segments.all[-1]
        segment.end, segment.ts_ms = group.end, group.batches[-1].ts_ms
        for batch in group.batches:
            self._reading.newest.add(batch)
        if group.sealing is not None:
            self._archive.seal(group.sealing)

    def _keep_epochs(self) -> None:
        self._jobs.run(self._epochs.saving(), self._flushing.synced)

    def _find_epochs(self) -> None:
        """Read every batch for its epoch, since the file that says it is damaged."""
        path = self._epochs.path
        self._damages.report(Damage(path, 0, self._fs.size(path), "the checksum is wrong"))
        self._epochs.all = []
        for base in self.bases:
            for batch in self.scan(base):
                self._epochs.begin(batch.epoch, batch.lsn)
        self._epochs.save()

    def _resume(self, empty: int) -> None:
        """Go on after the last segment, or at a position if there is none."""
        last = self._segments.all[-1] if self._segments.all else None
        self._base, self.end = (None, empty) if last is None else (last.base, last.end)
        if last is not None:
            self._writer.open(last.base)
        self._reading.clear()
        self._flushing.begin(self.end, reserved=self._writer.hold_reserve())
        self._fs.sync_dir(self.folder)

    def _check_room(self, size: int, *, freeing: bool) -> None:
        self._flushing.check_room(size, freeing=freeing)
        allowed = self._options.disk_bytes_max
        if 0 < allowed < self.end - self.start + size and not freeing:
            raise Overload(f"{self._flushing.name}: holds the {allowed} bytes that it may")

    def _check_disk(self) -> None:
        if self._flushing.broken or not self._open:
            raise Overload(self.failed or f"{self._flushing.name}: not open")

    def _check_idle(self) -> None:
        self._check_disk()
        if self._jobs.count or not self._flushing.idle:
            raise StorageError(f"{self.folder}: something is under way")

    def _closed(self, _: None, error: OSError | None) -> None:
        if error is not None:
            log.warning("journal not closed cleanly", folder=self.folder, error=str(error))
