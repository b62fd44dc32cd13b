"""What joins brokers of several processes, as a broker sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from chappe.message import Message


class Audience(Protocol):
    """The sessions of this process, as the bus sees them."""

    def keys(self) -> Collection[str]:
        """All keys that some session here has."""
        ...

    def deliver(self, message: Message, came_from: str) -> int:
        """Hand a message to the sessions here that have its key; how many took it."""
        ...

    def close_here(self, key: str, code: int, reason: str) -> int:
        """Close the sessions here that have a key; how many there were."""
        ...


class Bus(Protocol):
    """The other brokers."""

    name: str

    async def start(self, audience: Audience) -> None:
        """Join the others; raises ConfigError when they can never be joined."""
        ...

    async def stop(self) -> None:
        """Leave them."""
        ...

    async def added(self, key: str, *, first: bool) -> bool:
        """A session here has a key, the first one or one more: return when all brokers that send
        by it know of it.

        False while the bus is away: others will know when it is back.
        """
        ...

    def removed(self, keys: Iterable[str]) -> None:
        """No session here has these keys any more."""
        ...

    async def forward(self, message: Message) -> tuple[int, Collection[str]]:
        """Hand a message to the other brokers that have its key; how many sessions that reached,
        and through whom. Raises BusAway, or Overload."""
        ...

    async def close(self, key: str, code: int, reason: str) -> int:
        """Close the sessions of other brokers that have a key; how many there were."""
        ...

    def counts(self) -> dict[str, int]:
        """What has happened so far."""
        ...


class Alone:
    """No others."""

    name = ""

    async def start(self, audience: Audience) -> None:
        return None

    async def stop(self) -> None:
        return None

    async def added(self, key: str, *, first: bool) -> bool:
        return True

    def removed(self, keys: Iterable[str]) -> None:
        return None

    async def forward(self, message: Message) -> tuple[int, Collection[str]]:
        return 0, ()

    async def close(self, key: str, code: int, reason: str) -> int:
        return 0

    def counts(self) -> dict[str, int]:
        return {}
