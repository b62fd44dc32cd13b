"""The ledger: a directory's copy in the store, written behind.

The store may be shared by nodes, each of which may know what the others do not yet. So nothing is
overwritten unseen: a record is written by `swap`, over what was read just before and is older. What
turns out to be newer is handed to the directory instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from itertools import islice
from typing import Any

import structlog

from chappe.endpoints.record import Record, decode_record, encode_record, record_key
from chappe.errors import StorageError
from chappe.store.store import Store

TABLE = "directory"
# How many records are compared and swapped at a time; a store groups what waits together.
BATCH = 64
# Passes over records that others keep changing, before somebody is told.
ROUNDS_MAX = 100
PAUSE_S_MIN = 0.5
PAUSE_S_MAX = 30.0
# How many dropped records are remembered until the store has dropped them as well. One that is
# not remembered is found at the next start.
DROPPED_MAX = 100_000

log = structlog.get_logger()


class Ledger:
    """Writes a directory's records to a store, in the background and in batches."""

    def __init__(
        self,
        store: Store,
        current: Callable[[str, str], Record | None],
        found: Callable[[list[Record]], object],
    ) -> None:
        self._store = store
        self._current = current
        self._found = found
        # Addresses whose record has changed: one entry, however often. The directory's bounds
        # are its bounds.
        self._dirty: dict[tuple[str, str], None] = {}
        # Key -> what the store is to drop, if it holds that or what was before it.
        self._dropped: dict[str, Record] = {}
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many records have yet to be written or dropped."""
        return len(self._dirty) + len(self._dropped)

    def note(self, record: Record) -> None:
        """See that a record gets written soon."""
        self._dirty[record.app, record.address] = None
        self._wake()

    def drop(self, record: Record) -> None:
        """See that the store forgets a record soon, unless it has a newer one by then."""
        self._dirty.pop((record.app, record.address), None)
        if len(self._dropped) < DROPPED_MAX:
            self._dropped[record_key(record)] = record
            self._wake()

    async def read(self) -> AsyncIterator[list[Record]]:
        """Give what the store holds, a page at a time; raises StorageError."""
        async for page in self._store.scan(TABLE):
            yield [decode_record(key, raw) for key, raw in page]

    async def flush(self) -> None:
        """Write what waits; raises StorageError, and what was not written waits on."""
        async with self._writing:
            await self._drop_all()
            rounds = 0
            while self._dirty:
                rounds = 0 if await self._write_batch() else rounds + 1
                if rounds >= ROUNDS_MAX:
                    raise StorageError("directory: the store's records change all the time")

    async def close(self) -> None:
        """Write what waits, once; raises StorageError when that cannot be done."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.flush()

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_behind())

    async def _write_behind(self) -> None:
        pause_s = PAUSE_S_MIN
        while self.waiting:
            try:
                await self.flush()
                pause_s = PAUSE_S_MIN
            except StorageError as error:
                log.warning("directory.unwritten", waiting=self.waiting, error=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(PAUSE_S_MAX, pause_s * 2)

    async def _drop_all(self) -> None:
        while batch := list(islice(self._dropped.items(), BATCH)):
            held = await self._store.get(TABLE, [key for key, _ in batch])
            await _all(
                self._store.swap(TABLE, key, held[key], None)
                for key, record in batch
                if key in held and not _beats(_readable(key, held[key]), record)
            )
            for key, record in batch:
                if self._dropped.get(key) is record:
                    del self._dropped[key]

    async def _write_batch(self) -> bool:
        """Compare some of what waits with the store and write what is newer; whether that settled
        anything."""
        records = [record for key in islice(self._dirty, BATCH) if (record := self._current(*key))]
        held = await self._store.get(TABLE, [record_key(record) for record in records])
        found: list[Record] = []
        writes: list[tuple[Record, bytes | None]] = []
        for record in records:
            raw = held.get(record_key(record))
            stored = _readable(record_key(record), raw)
            if stored is None or record.beats(stored):
                writes.append((record, raw))
            else:
                self._settle(record)
                found.append(stored)
        self._found(found)
        swapped = await _all(
            self._store.swap(TABLE, record_key(record), raw, encode_record(record))
            for record, raw in writes
        )
        for (record, _), done in zip(writes, swapped, strict=True):
            if done:
                self._settle(record)
        return len(found) > 0 or any(swapped)

    def _settle(self, record: Record) -> None:
        """A record is in the store: unless it has changed meanwhile, that was that."""
        if self._current(record.app, record.address) is record:
            self._dirty.pop((record.app, record.address), None)


async def _all(swaps: Iterable[Coroutine[Any, Any, bool]]) -> list[bool]:
    """Wait for every swap; raises the first StorageError when none is under way any more."""
    outcomes = await asyncio.gather(*swaps, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome is True for outcome in outcomes]


def _beats(stored: Record | None, record: Record) -> bool:
    return stored is not None and stored.beats(record)


def _readable(key: str, raw: bytes | None) -> Record | None:
    """What the store holds, or None: what cannot be read may be written over."""
    if raw is None:
        return None
    try:
        return decode_record(key, raw)
    except StorageError as error:
        log.warning("directory.unreadable", error=str(error))
        return None
