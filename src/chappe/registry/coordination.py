"""Coordination: what a cluster agrees on, one value at a time.

Kubernetes' DNS knows members only: what needs this refuses it, with a reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol


class Versioned(NamedTuple):
    """A value, and the version that the next change of it has to name."""

    value: bytes
    version: int


class Seat(NamedTuple):
    """A place in a row: a number that nobody had before, and what its holder said of itself."""

    number: int
    value: bytes


class Lease(Protocol):
    """Something that is held while its holder lives."""

    @property
    def until(self) -> float:
        """The loop's time up to which it is surely held; renewed in the background."""
        ...

    @property
    def epoch(self) -> int:
        """Larger with each new holder of this path."""
        ...

    async def lost(self) -> None:
        """Wait until it is no longer held, for whatever reason; cancelling it changes nothing."""
        ...

    async def release(self) -> None:
        """Give it back; the next may have it at once.

        Raises nothing when the registry is away: it is then given back when that answers again, or
        runs out.
        """
        ...


class HeldSeat(Lease, Protocol):
    """A seat that is taken."""

    @property
    def number(self) -> int:
        """The seat's number, which no seat of any row had before."""
        ...

    async def tell(self, value: bytes) -> None:
        """Say something else of itself; who watches the row is told. The last one told stands.

        Raises ClusterError when the seat is lost, which changes nothing, or when the registry does
        not answer: it may have happened then, and may be told again.
        """
        ...


class Coordination(Protocol):
    """Values with compare-and-set, leases and rows of seats, by path: `/queues/owner`, say.

    Every method raises ClusterError when the registry cannot be reached in time; what it was asked
    to do may have happened then. A Redis that restarts empty or fails over steps back in time:
    nobody may trust an epoch or a sequence from it alone.
    """

    async def next_id(self, path: str) -> int:
        """The next number of a sequence, from 1; never the same twice."""
        ...

    async def get(self, path: str) -> Versioned | None:
        """Read a value."""
        ...

    async def put(self, path: str, value: bytes, version: int | None) -> Versioned:
        """Write a value if its version is still this; None: if there is none yet.

        Raises Conflict, which carries what is there now.
        """
        ...

    async def delete(self, path: str, version: int) -> None:
        """Remove a value if its version is still this; raises Conflict."""
        ...

    def watch(self, path: str) -> AsyncIterator[Versioned | None]:
        """Give a value: the present one first, then the latest each time it has changed.

        Waits while the registry is away, and reads anew when it is back.
        """
        ...

    async def acquire(self, path: str, holder: bytes) -> Lease:
        """Hold a path until it is released, or its holder is not heard of for the lease's time.

        Raises Held, which carries what its present holder said of itself.
        """
        ...

    async def sit(self, path: str, value: bytes) -> HeldSeat:
        """Take the next seat in a row: held like a lease, numbered for ever, above 0.

        No two rows have a number in common.
        """
        ...

    def watch_seats(self, path: str) -> AsyncIterator[Mapping[int, bytes]]:
        """Give the seats taken in a row, by number in ascending order: the present ones first, then
        the latest each time they have changed."""
        ...

    async def close(self) -> None:
        """Release everything and let go of the registry."""
        ...
