"""Flushing: the way of what was accepted to the disk, and of the answer back.

One write is under way at a time; what is accepted meanwhile makes the next. Who waits is told when
its batch is committed. There are three ways for that to fail:

- The disk is full. What was accepted is still written, from the reserve; what comes is refused
  until the reserve is whole again, which is tried once a second as long as somebody asks.
- A write or a sync fails. Nobody knows what is on the disk then, and a second sync that succeeds
  proves nothing. So nothing is acknowledged any more, until the journal is opened anew.
- The journal is fenced: another node writes now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any, Protocol

import structlog

from chappe.errors import Overload
from chappe.log.batch import HEADER_BYTES
from chappe.log.group import Building, Done, Group
from chappe.log.jobs import Jobs
from chappe.log.options import JournalOptions
from chappe.log.writer import Writer

log = structlog.get_logger()

# How often a full disk is asked whether it still is.
PROBE_S = 1.0


class Timer(Protocol):
    """What a journal needs of an event loop."""

    def time(self) -> float:
        """The loop's own time, in seconds."""
        ...

    def call_at(self, when: float, callback: Any, *args: Any) -> Any:
        """Call back at that time."""
        ...

    def call_soon(self, callback: Any, *args: Any) -> Any:
        """Call back in the next turn."""
        ...


class Acknowledger(Protocol):
    """Decides when what is on this disk is committed."""

    def may_flush(self) -> bool:
        """Whether this node may still write; asked before each flush.

        After a no, nothing is written until something is appended or `flush_soon` is called.
        """
        ...

    def flushed(self, lsn: int) -> None:
        """All below is on this disk; to be answered by `Journal.acknowledge`."""
        ...


class Flushing:
    """What is on its way to the disk.

    `close_batch` makes a group of what was built; `landed` is told of each group that was written.
    """

    def __init__(
        self,
        folder: str,
        writer: Writer,
        jobs: Jobs,
        timer: Timer,
        options: JournalOptions,
        close_batch: Callable[[Building], Group],
        landed: Callable[[Group], None],
    ) -> None:
        self._folder = folder
        self._writer = writer
        self._jobs = jobs
        self._timer = timer
        self._options = options
        self._close_batch = close_batch
        self._landed = landed
        self.acknowledger: Acknowledger | None = None
        # As it stands in refusals: who is refused need not know where it lies.
        self.name = f"journal {PurePath(folder).name}"
        self.failed: str | None = f"{self.name}: not open"
        # Whether it failed for good.
        self.broken = False
        self.flushed = 0
        self.committed = 0
        self.flushes = 0
        self.building = Building()
        self._raws: deque[Group] = deque()
        self._flying: list[Group] = []
        self._unconfirmed: deque[Group] = deque()
        # All bytes that were accepted and are not written.
        self._waiting_bytes = 0
        self._soon = False
        self._sync_handle: Any = None
        # What is left of the reserve since it was spent; None: all of it is there.
        self._spare_bytes: int | None = None
        self._probe_at = 0.0

    @property
    def flying(self) -> Group | None:
        """The last group of the write that is under way."""
        return self._flying[-1] if self._flying else None

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be written."""
        return not (self.building.records or self._raws or self._flying)

    def begin(self, lsn: int, *, reserved: bool) -> None:
        """Go on at a position, with or without room in reserve."""
        self.flushed = self.committed = lsn
        self._spare_bytes = None if reserved else 0

    def check_room(self, size: int, *, freeing: bool) -> None:
        """Raise Overload unless so many bytes can be accepted now."""
        if self.failed is not None:
            raise Overload(self.failed)
        size += HEADER_BYTES
        allowed = self._options.batch_bytes_max
        if size > allowed:
            raise Overload(f"{self.name}: {size} bytes at once, {allowed} are allowed")
        if self.building.bytes - self.building.snapshot_bytes + size > allowed:
            raise Overload(f"{self.name}: too much waits to be written already")
        self._check_disk_room(size, freeing=freeing)

    def check_raw_room(self, size: int) -> None:
        """Raise Overload unless so many bytes of batches can be accepted now, fenced or not.

        A single run is, however large: its master's options may be others.
        """
        if self._waiting_bytes or self._spare_bytes is not None:
            self._check_disk_room(size, freeing=True)

    def _check_disk_room(self, size: int, *, freeing: bool) -> None:
        if self._spare_bytes is not None:
            self._probe()
            if not freeing or not self.fits(size):
                raise Overload(f"{self.name}: disk full")
        if not self.fits(size):
            raise Overload(f"{self.name}: too much waits to be written already")

    def fits(self, size: int) -> bool:
        """Whether there is room on the disk for so much more even if it is full."""
        room = self._spare_bytes
        room = self._options.reserve_bytes if room is None else room
        return self._waiting_bytes + size <= room

    def add(self, records: Sequence[bytes], size: int, done: Done | None) -> None:
        """Accept records of that size."""
        before = self.building.bytes
        self.building.add(records, size, done)
        self._waiting_bytes += self.building.bytes - before
        self.flush_soon()

    def begin_segment(self, building: Building) -> None:
        """Accept a batch that begins a segment, before any record goes into it."""
        self.building = building
        self._waiting_bytes += building.bytes

    def add_raw(self, group: Group) -> None:
        """Accept batches as they are."""
        self._raws.append(group)
        self._waiting_bytes += len(group.piece.data)
        self.flush_soon()

    def flush_soon(self) -> None:
        """Write what waits in the loop's next turn, or when the write under way is over."""
        if not self._soon and not self._flying:
            self._soon = True
            self._timer.call_soon(self.flush_now)

    def acknowledge(self, lsn: int) -> None:
        """Commit all below."""
        self.committed = max(self.committed, min(lsn, self.flushed))
        while self._unconfirmed and self._unconfirmed[0].end <= self.committed:
            self._unconfirmed.popleft().tell(None)

    def fence(self, reason: str) -> None:
        """Accept nothing more; the outcome of what waits is unknown."""
        if self.failed is None:
            self.failed = reason
        groups = [*self._unconfirmed, *self._flying, *self._raws]
        building, self.building = self.building, Building()
        self._unconfirmed.clear()
        self._raws.clear()
        self._waiting_bytes = sum(len(group.piece.data) for group in self._flying)
        for group in groups:
            group.void = True
            group.tell(Overload(reason, outcome_unknown=True))
        building.tell(Overload(reason, outcome_unknown=True))

    def stop(self, reason: str) -> None:
        """Let nothing happen any more."""
        self.fence(reason)
        if self._sync_handle is not None:
            self._sync_handle.cancel()
            self._sync_handle = None

    def fail(self, error: OSError) -> None:
        """Stop for good."""
        if not self.broken:
            log.error("journal failed", folder=self._folder, errno=error.errno, error=str(error))
        self.broken = True
        self.failed = f"{self.name}: the disk failed: {error.strerror} (errno {error.errno})"
        self.fence(self.failed)

    def flush_now(self) -> None:
        """Write what waits, unless a write is under way or the acknowledger says no."""
        self._soon = False
        if self._flying or self.idle or self.broken:
            return
        if self.acknowledger is not None and not self.acknowledger.may_flush():
            return
        if self._raws:
            self._flying = list(self._raws)
            self._raws.clear()
        else:
            building, self.building = self.building, Building()
            self._flying = [self._close_batch(building)]
        pieces = [group.piece for group in self._flying]
        sync = self._options.flush == "always"
        self._jobs.run(lambda: self._writer.write(pieces, sync), self._written)

    def _written(self, spent: bool | None, error: OSError | None) -> None:
        if error is not None:
            self.fail(error)
            self._flying = []
            return
        groups, self._flying = self._flying, []
        written = sum(len(group.piece.data) for group in groups)
        self._waiting_bytes -= written
        self.flushes += 1
        self._spend(bool(spent), written)
        self.flushed = groups[-1].end
        for group in groups:
            self._landed(group)
        if self._options.flush == "interval":
            self._sync_later()
        self._confirm(groups)
        if not self.idle:
            self.flush_now()

    def _confirm(self, groups: list[Group]) -> None:
        groups = [group for group in groups if not group.void]
        if not groups:
            return
        self._unconfirmed.extend(groups)
        if self.acknowledger is None:
            self.acknowledge(self.flushed)
        else:
            self.acknowledger.flushed(self.flushed)

    def _spend(self, spent: bool, written: int) -> None:
        if spent:
            log.warning("disk full", folder=self._folder)
            self._spare_bytes = self._options.reserve_bytes
        if self._spare_bytes is not None:
            self._spare_bytes = max(0, self._spare_bytes - written)

    def _probe(self) -> None:
        now = self._timer.time()
        if now >= self._probe_at:
            self._probe_at = now + PROBE_S
            self._jobs.run(self._writer.hold_reserve, self._probed)

    def _probed(self, held: bool | None, error: OSError | None) -> None:
        if error is not None:
            self.fail(error)
        elif held and self._spare_bytes is not None:
            self._spare_bytes = None
            log.info("disk has room again", folder=self._folder)

    def _sync_later(self) -> None:
        if self._sync_handle is None:
            when = self._timer.time() + self._options.flush_interval_s
            self._sync_handle = self._timer.call_at(when, self._sync)

    def _sync(self) -> None:
        self._sync_handle = None
        if not self.broken:
            self._jobs.run(self._writer.sync, self.synced)

    def synced(self, _: None, error: OSError | None) -> None:
        """A job is over that must not fail."""
        if error is not None:
            self.fail(error)
