"""Writes to a SQLite store until it is killed, naming on standard output what was acknowledged."""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from pathlib import Path

from chappe.store.sqlite import SqliteStore

KEYS_PER_CHANGE = 10


async def write(store: SqliteStore, writer: int) -> None:
    for i in count():
        name = f"{writer}-{i}"
        await store.change("t", {f"{name}/{k}": b"v" * 100 for k in range(KEYS_PER_CHANGE)})
        sys.stdout.write(name + "\n")
        sys.stdout.flush()


async def main() -> None:
    store = SqliteStore(Path(sys.argv[1]))
    await asyncio.gather(*(write(store, writer) for writer in range(8)))


if __name__ == "__main__":
    asyncio.run(main())
