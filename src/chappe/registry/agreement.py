"""Coordination over a ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from chappe.errors import Held
from chappe.registry.changes import changes
from chappe.registry.coordination import HeldSeat, Lease, Versioned
from chappe.registry.lease import KeptLease
from chappe.registry.ledger import seats_bell, value_bell
from chappe.registry.session import Session


class Agreement:
    """Values, leases and rows of seats that all nodes of a cluster agree on."""

    def __init__(self, session: Session, poll_s: float) -> None:
        self._session = session
        self._ledger = session.ledger
        self._poll_s = poll_s
        # What this node holds or is about to: its session might take the same lease twice.
        self._mine: dict[str, tuple[KeptLease | None, bytes]] = {}
        self._closed = False

    async def next_id(self, path: str) -> int:
        """The next number of a sequence, from 1."""
        self._session.open()
        return await self._ledger.next_id(path)

    async def get(self, path: str) -> Versioned | None:
        """Read a value."""
        self._session.open()
        return await self._ledger.get(path)

    async def put(self, path: str, value: bytes, version: int | None) -> Versioned:
        """Write a value if its version is still this; raises Conflict."""
        self._session.open()
        return await self._ledger.put(path, value, version)

    async def delete(self, path: str, version: int) -> None:
        """Remove a value if its version is still this; raises Conflict."""
        self._session.open()
        await self._ledger.delete(path, version)

    async def watch(self, path: str) -> AsyncIterator[Versioned | None]:
        """Give a value, then again each time it has changed."""

        async def look() -> tuple[Versioned | None, None]:
            return await self._ledger.get(path, watch=True), None

        self._session.open()
        async for value in changes(self._ledger.bell, value_bell(path), look, self._poll_s):
            yield value

    async def acquire(self, path: str, holder: bytes) -> Lease:
        """Hold a path; raises Held."""

        async def take(session: str, tag: str) -> int:
            return await self._ledger.take(session, path, tag, holder)

        async def free(session: str, tag: str) -> None:
            await self._ledger.free(session, path, tag)

        mine = self._mine.get(path)
        if mine is not None and (mine[0] is None or mine[0].held):
            raise Held(path, mine[1])
        self._mine[path] = (None, holder)
        try:
            lease = await self._session.hold(take, free)
        except BaseException:
            del self._mine[path]
            raise
        self._mine[path] = (lease, holder)
        return lease

    async def sit(self, path: str, value: bytes) -> HeldSeat:
        """Take the next seat in a row."""

        async def take(session: str, tag: str) -> int:
            return await self._ledger.sit(session, path, tag, value)

        async def rise(session: str, tag: str) -> None:
            await self._ledger.rise(session, path, tag)

        async def tell(session: str, tag: str, value: bytes) -> None:
            await self._ledger.tell(session, path, tag, value)

        return await self._session.hold(take, rise, tell)

    async def watch_seats(self, path: str) -> AsyncIterator[Mapping[int, bytes]]:
        """Give the seats taken in a row, then again each time they have changed."""

        async def look() -> tuple[Mapping[int, bytes], float | None]:
            return await self._ledger.seats(path)

        self._session.open()
        async for seats in changes(self._ledger.bell, seats_bell(path), look, self._poll_s):
            yield seats

    async def close(self) -> None:
        """Release everything and let go of the registry."""
        if not self._closed:
            self._closed = True
            await self._session.release_all()
            await self._session.close()
