"""The store: tables of keys and values that outlive a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Protocol


class Store(Protocol):
    """Named tables of text keys and byte values.

    Every method raises StorageError when the store cannot do what is asked; a change that raised
    may have happened, and may be made again.
    """

    async def get(self, table: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Read the values of those keys that are there."""
        ...

    async def change(
        self, table: str, puts: Mapping[str, bytes], deletes: Iterable[str] = ()
    ) -> None:
        """Write and remove many at once: all of it, or nothing."""
        ...

    async def swap(self, table: str, key: str, expected: bytes | None, value: bytes | None) -> bool:
        """Replace a value if it is still what is expected (None: not there); whether it was."""
        ...

    def scan(self, table: str, prefix: str = "") -> AsyncIterator[list[tuple[str, bytes]]]:
        """Read all keys that begin so, a page at a time, in no order that can be relied on.

        What changes meanwhile may or may not be seen; what does not is seen once.
        """
        ...

    async def clear(self, table: str, prefix: str = "") -> None:
        """Remove all keys that begin so."""
        ...

    async def close(self) -> None:
        """Flush what was accepted, and let go."""
        ...
