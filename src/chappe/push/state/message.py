"""Message: bodies of notes, and what waits for each client (P6, P7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from chappe.push.note import Note


class MessageState(Protocol):
    """A body is stored once and forgotten when it expires; clients have ids."""

    async def put(self, note: Note) -> None:
        """Write a body."""
        ...

    async def bodies(self, ids: Sequence[str]) -> dict[str, Note]:
        """Those of these notes that are there: not expired, not cancelled."""
        ...

    async def cancel(self, id: str) -> Note | None:
        """Forget a body, so that nobody gets it any more; what it was."""
        ...

    async def add(self, note: Note, clients: Sequence[str], most: int) -> Mapping[str, str]:
        """Let a note wait for clients, each of which may have so many.

        Where it collapses, or there are too many, it takes the place of another (the oldest); which
        note that was, by client. It stays until it expires or is settled.
        """
        ...

    async def waiting(self, clients: Sequence[str]) -> dict[str, list[str]]:
        """The ids that wait for each of the clients, oldest first; bodies of some may be gone."""
        ...

    async def settle(self, settled: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Clients have acknowledged notes: they wait no more. Which did until now, by client."""
        ...

    async def holders(self, id: str, clients: Sequence[str]) -> list[str]:
        """Those of these clients that a note waits for."""
        ...
