"""A store that is forgotten with its process: for tests, the simulation, and `--store memory`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping

from chappe.errors import StorageError

PAGE_KEYS = 500


class MemoryStore:
    """Tables in dictionaries. Several nodes of one process may share it."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, bytes]] = {}
        self._closed = False

    async def get(self, table: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Read the values of those keys that are there."""
        entries = await self._table(table)
        return {key: entries[key] for key in keys if key in entries}

    async def change(
        self, table: str, puts: Mapping[str, bytes], deletes: Iterable[str] = ()
    ) -> None:
        """Write and remove many at once; what is in both is written."""
        entries = await self._table(table)
        for key in deletes:
            entries.pop(key, None)
        entries.update(puts)

    async def swap(self, table: str, key: str, expected: bytes | None, value: bytes | None) -> bool:
        """Replace a value if it is still what is expected; whether it was."""
        entries = await self._table(table)
        if entries.get(key) != expected:
            return False
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
        return True

    async def scan(self, table: str, prefix: str = "") -> AsyncIterator[list[tuple[str, bytes]]]:
        """Read all keys that begin so, as they were when the scan began, a page at a time."""
        entries = await self._table(table)
        keys = [key for key in entries if key.startswith(prefix)]
        for start in range(0, len(keys), PAGE_KEYS):
            page = keys[start : start + PAGE_KEYS]
            yield [(key, entries[key]) for key in page if key in entries]
            await asyncio.sleep(0)

    async def clear(self, table: str, prefix: str = "") -> None:
        """Remove all keys that begin so."""
        entries = await self._table(table)
        for key in [key for key in entries if key.startswith(prefix)]:
            del entries[key]

    async def close(self) -> None:
        """Let go of everything."""
        self._closed = True
        self._tables.clear()

    async def _table(self, name: str) -> dict[str, bytes]:
        # Others get their turn first, as with every other store: who forgets that what was read may
        # have changed since is found out in the simulation.
        await asyncio.sleep(0)
        if self._closed:
            raise StorageError("memory store: closed")
        return self._tables.setdefault(name, {})
