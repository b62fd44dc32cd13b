"""All that a place has of a state, given and taken page by page: for who moves to another place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from chappe.push.state.record import Record


class Records(Protocol):
    """The records of a place. Nobody else changes them meanwhile."""

    def dump(self, state: str) -> AsyncIterator[Sequence[Record]]:
        """Give all records of a state, each once, in the order of KINDS; some may have expired.

        Raises StorageError, also if there is anything that this version does not know.
        """
        ...

    async def restore(self, records: Sequence[Record]) -> None:
        """Write records as they were, in place of those that they are of; raises StorageError."""
        ...

    async def has_any(self, state: str) -> bool:
        """Whether there is anything of a state."""
        ...

    async def mark(self, state: str, text: str | None) -> None:
        """Write down that a copy of a state is under way here; None: no more."""
        ...

    async def marked(self, state: str) -> str | None:
        """What was written down."""
        ...

    async def pulse(self, state: str) -> int | None:
        """A number that grows while processes of push use it; None where nothing tells."""
        ...
