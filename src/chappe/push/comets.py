"""The comets, as the other roles of push see them, and comets each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from chappe.push.note import Note
from chappe.wire.pushlink import Close, Subscribed, Withdraw


class CometCard(NamedTuple):
    """A comet that lives: its number among servers (P5), and where devices reach it."""

    server: int
    name: str
    address: str


class Handed(NamedTuple):
    """What a comet did with a note: how many got it, and who is not there."""

    taken: int
    absent: tuple[str, ...] = ()


class Comets(Protocol):
    """Links to all comets that live, one in the same process included."""

    def living(self) -> Mapping[int, CometCard]:
        """The comets that are there, by server number."""
        ...

    def desks(self) -> Collection[int]:
        """The servers that clients may be on: comets, and nodes with users of the hub."""
        ...

    async def deliver(self, server: int, note: Note, clients: list[str]) -> Handed:
        """Hand a note to clients on a comet; raises Unreachable or Overload: then it waits."""
        ...

    async def broadcast(self, server: int, note: Note) -> Handed:
        """Hand a topic's note to its subscribers on a comet; raises Unreachable or Overload."""
        ...

    def tell(self, server: int, op: Close | Withdraw | Subscribed) -> None:
        """Let a comet know, if it is there."""
        ...


class CometDesk(Protocol):
    """A comet, as its own process has it: its end of the internal RPC. Nothing here waits."""

    def deliver(self, note: Note, clients: list[str], came_from: str = "") -> Handed:
        """Hand a note to those of these clients that are connected here; raises Overload."""
        ...

    def broadcast(self, note: Note, came_from: str = "") -> Handed:
        """Hand a topic's note to all who are connected here and subscribe; raises Overload."""
        ...

    def close(self, op: Close) -> None:
        """End a client's connection."""
        ...

    def withdraw(self, op: Withdraw) -> None:
        """Take a note back."""
        ...

    def subscribed(self, op: Subscribed) -> None:
        """Read a client's topics anew."""
        ...

    def look(self) -> None:
        """Look up what waits for all who are here: something may not have come."""
        ...
