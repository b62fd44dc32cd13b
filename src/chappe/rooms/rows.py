"""Rows between the store and the roles: loaded a page at a time, written behind (R8, R10)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Protocol

import structlog

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.registry import errand
from chappe.rooms.audit import Audit
from chappe.rooms.row import ROWS
from chappe.store.store import Store

log = structlog.get_logger()

# What one change of the store may hold, and what may wait for it while it is away.
BATCH_ROWS = 2000
WAITING_MAX = 1_000_000
# How long others have their turn while the rows of a book are looked at.
_SLICE_S = 0.01
_PAUSE_S = 0.1
_PAUSE_S_MAX = 5.0


class Loader(Protocol):
    """A role that begins with what the store knows."""

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take a page of rows."""
        ...


async def load_rows(store: Store, role: Loader, timeout_s: float) -> bool:
    """Give a role all rows; begins again when the store fails, and gives up after a time.

    Returns whether it had them all.
    """
    pause_s = _PAUSE_S
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    async for page in store.scan(ROWS):
                        role.load(page)
                except StorageError as error:
                    log.warning("rooms.rows.unread", reason=str(error))
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_S_MAX)
                else:
                    return True
    except TimeoutError:
        return False


async def audit_rows(store: Store, audit: Audit, clock: Clock, every_s: float) -> None:
    """Go through all rows again and again, remove those that are over and write what is missing."""
    while True:
        await asyncio.sleep(every_s)
        try:
            audit.begin()
            async for page in store.scan(ROWS):
                for key, value in audit.over(page, clock.monotonic()):
                    await store.swap(ROWS, key, value, None)
        except StorageError as error:
            log.warning("rooms.rows.unaudited", reason=str(error))
            continue
        for looked, _ in enumerate(audit.missing(clock.monotonic()), 1):
            if looked % BATCH_ROWS == 0:
                await asyncio.sleep(_SLICE_S)


class RowWriter:
    """Writes what routers found to be news, as fast as the store takes it.

    What waits is bounded: the rest is counted, and comes to brokers with the next refresh.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Oldest first; what is not there any more has no value.
        self._waiting: dict[str, bytes | None] = {}
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        # Rows that began to wait, and how many of these, from the first on, are in the store.
        self.news = 0
        self.stored = 0
        self.written = 0
        self.dropped = 0
        self.failures = 0

    @property
    def waiting(self) -> int:
        """How many rows are to be written yet."""
        return len(self._waiting)

    @property
    def dead(self) -> list[str]:
        """What is not written any more, by mistake."""
        return errand.dead((self._task,))

    def start(self) -> None:
        """Begin to write."""
        self._task = errand.run(self._write(), "writing rows to the store")

    async def stop(self, patience_s: float) -> None:
        """Write what waits, for so long, and end."""
        await self.drained(patience_s)
        await errand.end(self._task)
        self._task = None
        if self._waiting:
            log.warning("rooms.rows.unwritten", rows=len(self._waiting))

    async def drained(self, patience_s: float) -> bool:
        """Wait until all is written; whether it was in time."""
        try:
            async with asyncio.timeout(patience_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def add(self, puts: Mapping[str, bytes], deletes: Iterable[str]) -> None:
        """Have rows written and removed; the last that is said of a row counts."""
        waiting = self._waiting
        for key in deletes:
            self._keep(waiting, key, None)
        for key, value in puts.items():
            self._keep(waiting, key, value)
        if waiting:
            self._idle.clear()
            self._news.set()

    def _keep(self, waiting: dict[str, bytes | None], key: str, value: bytes | None) -> None:
        if key not in waiting:
            if len(waiting) >= WAITING_MAX:
                self.dropped += 1
                return
            self.news += 1
        waiting[key] = value

    async def _write(self) -> None:
        pause_s = _PAUSE_S
        while True:
            await self._news.wait()
            batch = dict(islice(self._waiting.items(), BATCH_ROWS))
            puts = {key: value for key, value in batch.items() if value is not None}
            try:
                await self._store.change(ROWS, puts, [key for key in batch if key not in puts])
            except StorageError as error:
                self.failures += 1
                log.warning("rooms.rows.refused", rows=len(batch), reason=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
                continue
            pause_s = _PAUSE_S
            self._done(batch)

    def _done(self, batch: Mapping[str, bytes | None]) -> None:
        waiting = self._waiting
        self.written += len(batch)
        before = len(waiting)
        for key, value in batch.items():
            # Something newer may have been said meanwhile.
            if waiting[key] is value:
                del waiting[key]
        if before - len(waiting) == len(batch):
            self.stored = self.news - len(waiting)
        if not waiting:
            self._news.clear()
            self._idle.set()
