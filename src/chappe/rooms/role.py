"""What a role is to the process that runs it, and what it is given: nothing here does any I/O.

A role is a machine. It is told what others say (`receive`), who is there (`see`) and what time it
is (`tick`); what it has to say goes to its post, at once, without waiting for anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from chappe.rooms.roll import Roll
from chappe.wire.rooms import RoleKind, RoomOp

# A host and its port, as datagrams are sent to.
Endpoint = tuple[str, int]


class Source(NamedTuple):
    """Who said something: where answers go, and the name of the node."""

    endpoint: Endpoint
    name: str


class Post(Protocol):
    """Takes what a role says to others, whether they are in this process or far away."""

    def send(self, to: Endpoint, op: RoomOp) -> bool:
        """Say something to one; whether it goes whole: of what goes in pieces each may get lost."""
        ...

    def send_all(self, to: Iterable[Endpoint], op: RoomOp) -> bool:
        """Say the same to many, encoded once; whether it goes whole."""
        ...


class Role(Protocol):
    """One role of a process."""

    kind: RoleKind
    # Which the registry gave it, 0 before; a gateway's is its epoch.
    id: int

    @property
    def due(self) -> float:
        """When it wants to be told the time next, by the monotonic clock."""
        ...

    def receive(self, op: RoomOp, source: Source, now: float) -> None:
        """Take what another role says."""
        ...

    def see(self, roll: Roll, now: float) -> None:
        """Take note of who is in the registry."""
        ...

    def tick(self, now: float) -> None:
        """Do what is due."""
        ...
