"""Recording: the event log of a node, opened, cut into segments, copied to Parquet.

    events --> one record each interval --> the journal --(size, or time)--> a sealed segment
                                                                                   |
                                       tables by the hour <-- the process that copies

What a node that was killed left behind, its next life goes on with: what is whole of it is copied,
and with it what was on its slate only (slates.py), as soon as the log has room for that.
At the end of a node all of it is, unless that takes too long; `chappe events seal` does the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import structlog
from prometheus_client.core import CounterMetricFamily, Metric

from chappe.clock import Clock
from chappe.errors import ConfigError, Overload, RequestError
from chappe.events.counting import CountingRecorder
from chappe.events.eventlog import EventLog
from chappe.events.eventrecorder import EventRecorder
from chappe.events.lives import Lives
from chappe.events.tail import Tail
from chappe.log.disk import ThreadDisk
from chappe.log.fs import OsFs
from chappe.log.journal import Journal
from chappe.log.options import MIB, JournalOptions
from chappe.log.parquet.retention import Retention
from chappe.node.copying import Copying
from chappe.node.options import EVENT_LOGS, EVENTS, EventsOptions
from chappe.node.slates import (
    Homecoming,
    Leftover,
    left_slates,
    leftovers,
    open_slate,
    remove,
    remove_slate,
)

log = structlog.get_logger()

# Of all messages, the share that is recorded if nothing is said: with --dev, all of them.
_SHARE = 0.01
# A node with nothing to tell makes a small file so often, and starts a process for it.
_IDLE_SEAL_S = 300.0
# What waits for one write; twice as much is set apart on the disk.
_BATCH_BYTES_MAX = 4 * MIB
# How long the end of a node waits for the last copies.
_FINISH_S = 10.0


def wanted(options: EventsOptions) -> bool:
    """Whether events are to be recorded; raises ConfigError when they cannot be."""
    if options.enabled is False:
        return False
    if find_spec("pyarrow") is not None:
        return True
    if options.enabled:
        raise ConfigError("events.enabled: needs pyarrow: pip install 'chappe[parquet]'")
    log.warning("events.off", reason="needs pyarrow: pip install 'chappe[parquet]'")
    return False


class Recording:
    """Writes down what a node tells, if it is to."""

    def __init__(
        self, options: EventsOptions, *, dev: bool, data: Path, name: str, clock: Clock
    ) -> None:
        self._options = options
        self._name = name
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._folder = Path(options.folder) if options.folder else data / EVENTS
        self._journal: Journal | None = None
        self._disks: tuple[ThreadDisk, ...] = ()
        self._copying: Copying | None = None
        # Since when the segment is written, and whether it has more than signs of life.
        self._since = 0.0
        self._busy = False
        self._events: EventLog | None = None
        self._homecoming: Homecoming | None = None
        # What the life before said last.
        self.tail = Tail()
        self.recorder = CountingRecorder()
        if wanted(options):
            self._events = EventLog(name, self, self._loop, clock.wall_us)
            share = options.share if options.share is not None else (1.0 if dev else _SHARE)
            self.recorder = EventRecorder(self._events, share, clock.wall_us)

    async def open(
        self,
        copying: Copying,
        positions: Callable[[], dict[str, int]],
        epochs: Callable[[], dict[str, int]],
    ) -> None:
        """Go on with the log that is there; `positions` says up to where the journals of queues
        are told of, and `epochs` in which they are written. Raises ConfigError, or StorageError
        when another process has the log."""
        if self._events is None:
            return
        options = JournalOptions(
            flush="interval",
            segment_bytes=self._options.segment_bytes,
            disk_bytes_max=self._options.disk_bytes_max,
            batch_bytes_max=_BATCH_BYTES_MAX,
            allocate_bytes=0,
            cache_bytes=0,
        )
        disk = ThreadDisk(self._loop, "events")
        self._disks = (disk,)
        folder = self._folder / EVENT_LOGS / self._name
        events, clock = self._events, self._clock
        journal = Journal(
            OsFs(), disk, disk, str(folder), options, clock.wall_ms, self._loop, events.opening
        )
        try:
            self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            lives, left = await asyncio.to_thread(_recover, journal, self.tail)
        except OSError as error:
            raise ConfigError(f"events.folder: {error}") from None
        # Each life of a node begins a segment: the one before is whole then.
        journal.roll_soon()
        # Nobody else needs it: what is copied may go.
        kept = Retention(self._options.retention_s, self._options.retention_bytes)
        copying.take_events(self._name, journal, self._folder, kept)
        journal.trim(_ALL)
        self._journal, self._copying = journal, copying
        homecoming = self._homecoming = Homecoming(lives, left, journal.append)
        newest = max([lives.newest, *(one.left.life.boot for one in left)])
        events.resume(self.tail, positions, epochs, homecoming.unfinished, newest)
        self._begin_slate(events, folder)
        homecoming.go_on()

    def _begin_slate(self, events: EventLog, folder: Path) -> None:
        try:
            events.slate = open_slate(folder, events.boot)
        except OSError as error:
            # What a kill takes then is what it takes of all else.
            log.warning("events.no_slate", folder=str(folder), reason=str(error))

    def begin(self) -> None:
        """The node takes traffic."""
        if self._events is not None:
            self._since = self._loop.time()
            self._events.start()

    def append(
        self, record: bytes, done: Callable[[RequestError | None], None], *, idle: bool
    ) -> None:
        """Write a record down; one that comes late enough begins a segment. Raises Overload."""
        if self._journal is None:
            raise Overload("events: the log is not open")
        now = self._loop.time()
        busy = self._busy or not idle
        if now - self._since >= (self._options.seal_s if busy else _IDLE_SEAL_S):
            self._journal.roll_soon()
            self._since, busy = now, not idle
        self._busy = busy
        self._journal.append([record], done)
        if self._homecoming is not None:
            self._homecoming.go_on()

    async def stop(self) -> None:
        """Write down what was told, and have it copied."""
        if self._events is not None:
            self._events.stop()
        if self._journal is not None and self._copying is not None:
            await self._journal.close()
            if not await self._copying.finish_events(_FINISH_S):
                log.warning("events.left", folder=self._journal.folder, hint="chappe events seal")
            if self._events is not None and self._events.whole and not self._journal.broken:
                remove_slate(Path(self._journal.folder), self._events.boot)
            self._journal = None
        for disk in self._disks:
            disk.close()
        self._disks = ()

    def metrics(self) -> Iterator[Metric]:
        """What there is to tell of the log; nothing if it is switched off."""
        if self._events is None:
            return
        copied = self._copying.events_copied if self._copying is not None else 0
        for name, documentation, value in (
            ("written", "Events written down", self._events.written),
            ("missed", "Events that found no room", self._events.missed),
            ("uncovered", "Events that a kill would have taken", self._events.uncovered),
            ("segments", "Segments of the event log that were copied to Parquet", copied),
        ):
            yield CounterMetricFamily(f"chappe_events_{name}", documentation, value=value)


# Beyond the end of any journal.
_ALL = 2**63
# Makes an array of one record.
_ONE = b"\x91"


def _recover(journal: Journal, tail: Tail) -> tuple[Lives, list[Leftover]]:
    """What is there is not folded into anything: only its end has to be found, and what lacks."""
    lives = Lives()
    for batch in journal.recover():
        tail.take(batch.array)
        lives.take(batch.array)
    slates = left_slates(Path(journal.folder))
    left = leftovers(slates, lives)
    remove(set(slates).difference(one.slate for one in left))
    for one in left:
        for record in one.left.records:
            tail.take(_ONE + record)
    return lives, left
