"""Absences: who left not long ago, told to nodes that were not there to see it (H8).

Who is gone for good is told by an address's home, when the grace time has passed. A node that has
just come may be that home, and saw nobody leave; and of one that died and came back, only it
remembers who was there. So whoever meets tells the other who is leaving:

    Left: who left, and when  --->  keeps the same watch from here on
                              <---  Known: those of whom it was told already that they are gone
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from chappe.cluster.peer import Peer
from chappe.hub.hub import Hub
from chappe.wire.node import Known, Left, NodeOp

_PAGE_USERS = 500

Absence = tuple[str, str, int]


class Watch(Protocol):
    """Keeps watch over who is leaving."""

    def leaving(self) -> Iterable[Absence]:
        """Who is leaving: app, address, and since when."""
        ...

    def offline(self, app: str, address: str, *, at_ms: int | None = None) -> None:
        """An address has no session in the cluster any more."""
        ...

    def told_gone(self, app: str, address: str) -> bool:
        """Whether an address was found gone, and nothing of that is left to tell."""
        ...

    def dismiss(self, app: str, address: str) -> None:
        """An address is gone, and others have told it."""
        ...


class Absences:
    """What this node and its peers tell each other of those who are leaving."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.watch: Watch | None = None

    def tell(self, peers: Iterable[Peer]) -> None:
        """Tell peers who is leaving now."""
        if self.watch is not None:
            absences = list(self.watch.leaving())
            for peer in peers if absences else ():
                peer.trickle(_pages(absences))

    def read(self, peer: Peer, op: Left) -> None:
        """Keep the watch that a peer keeps, unless it is over here."""
        if self.watch is None:
            return
        told = []
        for name, address, at_ms in op.users:
            if self.watch.told_gone(name, address):
                told.append((name, address))
            elif not self.online(name, address):
                self.watch.offline(name, address, at_ms=at_ms)
        if told:
            peer.tell(Known(told))

    def known(self, peer: Peer, op: Known) -> None:
        """A peer knows of those who are gone already."""
        if self.watch is not None:
            for name, address in op.users:
                self.watch.dismiss(name, address)

    def online(self, name: str, address: str) -> bool:
        """Whether an address is connected anywhere, as far as this node knows."""
        app = self._hub.apps.get(name)
        return app is not None and (address in app.endpoints or address in app.routes)


def _pages(absences: list[Absence]) -> Iterator[NodeOp]:
    users = iter(absences)
    while page := list(islice(users, _PAGE_USERS)):
        yield Left(page)
