"""A copy of the routes in the store: what a starting node remembers of the cluster (H10).

Each node writes who is connected to it, behind and in batches: the newest word about an address is
the one that is written. A node that starts reads what all of them wrote. Of its own it learns who
was connected when it ended without a goodbye; of the others where to expect somebody while their
links are not up yet. It is a hint: what a link says counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from chappe.errors import StorageError
from chappe.store.store import Store

log = structlog.get_logger()

TABLE = "routes"
# Written at once; and how long between two writings, so that who comes and goes costs nothing.
_BATCH = 10_000
_REST_S = 0.5

Key = tuple[str, str]


class RouteCopy:
    """Writes this node's routes to a store, and reads everybody's."""

    def __init__(self, store: Store, node: str) -> None:
        self._store = store
        self._prefix = f"{node}/"
        self._node = node
        self._changes: dict[Key, bool] = {}
        self._changed = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self.failures = 0

    def note(self, app: str, address: str, *, online: bool) -> None:
        """Remember that an address came to this node, or went."""
        self._changes[app, address] = online
        self._changed.set()

    async def load(self) -> tuple[list[Key], dict[Key, tuple[str, ...]]]:
        """Who was here when this node ended, and who is said to be on which other nodes.

        What this node wrote before is forgotten. Raises StorageError.
        """
        mine: list[Key] = []
        others: dict[Key, tuple[str, ...]] = {}
        names: dict[str, tuple[str, ...]] = {}
        async for page in self._store.scan(TABLE):
            for text, _ in page:
                node, _, rest = text.partition("/")
                app, _, address = rest.partition("/")
                if node == self._node:
                    mine.append((app, address))
                else:
                    known = names.setdefault(node, (node,))
                    before = others.get((app, address))
                    others[app, address] = known if before is None else (*before, node)
        await self._store.clear(TABLE, self._prefix)
        return mine, others

    async def forget(self, node: str) -> None:
        """Remove what a node wrote that is not there any more; raises StorageError."""
        await self._store.clear(TABLE, f"{node}/")

    def start(self) -> None:
        """Begin to write."""
        self._writer = asyncio.get_running_loop().create_task(self._write())

    async def stop(self, leaving: Iterable[Key] = ()) -> None:
        """Write no more; a node that leaves with a goodbye takes its routes along.

        Who is leaving when nobody else is there to see it stays: its next run looks after them.
        """
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait((self._writer,))
            self._writer = None
        try:
            await self._store.clear(TABLE, self._prefix)
            await self._store.change(TABLE, {self._key(key): b"" for key in leaving})
        except StorageError as error:
            log.warning("routes.copy", reason=str(error))

    async def _write(self) -> None:
        failing = False
        while True:
            await self._changed.wait()
            batch = dict(list(self._changes.items())[:_BATCH])
            try:
                await self._store.change(
                    TABLE,
                    {self._key(key): b"" for key, online in batch.items() if online},
                    [self._key(key) for key, online in batch.items() if not online],
                )
            except StorageError as error:
                self.failures += 1
                if not failing:
                    log.warning("routes.copy", reason=str(error))
                failing = True
            else:
                if failing:
                    log.info("routes.copy", reason="the store takes routes again")
                failing = False
                self._written(batch)
            await asyncio.sleep(_REST_S)

    def _written(self, batch: dict[Key, bool]) -> None:
        for key, online in batch.items():
            # What changed meanwhile is written next time.
            if self._changes.get(key) is online:
                del self._changes[key]
        if not self._changes:
            self._changed.clear()

    def _key(self, key: Key) -> str:
        return f"{self._prefix}{key[0]}/{key[1]}"
