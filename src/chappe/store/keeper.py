"""A store that another process of this machine keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import count
from typing import Any, Protocol

from chappe.errors import StorageError


class Line(Protocol):
    """How the keeper is asked; `again` says that a request may be carried out twice.

    Raises OSError when there is no answer, and whatever the method raised where it was done.
    """

    async def ask(self, method: str, *arguments: Any, again: bool = False) -> Any:
        """Have a method carried out and give its result."""
        ...

    def tell(self, method: str, *arguments: Any) -> None:
        """Have a method carried out, if the keeper is there; nobody waits for it."""
        ...

    async def close(self) -> None:
        """Hang up."""
        ...


class KeeperStore:
    """Tables in the store of the keeper at the other end of a line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._scans = count(1)

    async def get(self, table: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Read the values of those keys that are there."""
        found: dict[str, bytes] = await self._ask("store.get", table, list(keys), again=True)
        return found

    async def change(
        self, table: str, puts: Mapping[str, bytes], deletes: Iterable[str] = ()
    ) -> None:
        """Write and remove many at once; what is in both is written."""
        # Twice is as good as once, and the line keeps the order: a later change stays later.
        await self._ask("store.change", table, dict(puts), list(deletes), again=True)

    async def swap(self, table: str, key: str, expected: bytes | None, value: bytes | None) -> bool:
        """Replace a value if it is still what is expected; whether it was."""
        return bool(await self._ask("store.swap", table, key, expected, value))

    async def scan(self, table: str, prefix: str = "") -> AsyncIterator[list[tuple[str, bytes]]]:
        """Read all keys that begin so, a page at a time; raises when the keeper was replaced."""
        scan = next(self._scans)
        page = await self._ask("store.scan", scan, table, prefix)
        try:
            while page:
                yield [(key, value) for key, value in page]
                page = await self._ask("store.more", scan)
        finally:
            if page:
                self._line.tell("store.stop", scan)

    async def clear(self, table: str, prefix: str = "") -> None:
        """Remove all keys that begin so."""
        await self._ask("store.clear", table, prefix, again=True)

    async def close(self) -> None:
        """Hang up; what was acknowledged is the keeper's to keep."""
        await self._line.close()

    async def _ask(self, method: str, *arguments: Any, again: bool = False) -> Any:
        try:
            return await self._line.ask(method, *arguments, again=again)
        except OSError as error:
            raise StorageError(f"keeper: {error}") from error
