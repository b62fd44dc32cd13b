"""Settling: after a change among the nodes, homes wait until all of them see the same.

A topic that has moved here, or a service, is asked for by nodes that are quick before those that
are slow have said that they watch or provide it. So each node tells the others which nodes it sees
once it has said all that follows from it:

    nodes change --> watch and provide at the new homes --> Settled(what I see) to every peer
    every peer sees what I see --> settled: what was held meanwhile is carried out, in order

What another node carried here although it lives elsewhere, as far as this node knows, waits
likewise: one of the two will know better in a moment.

Where nodes do not come to see the same, as in half a partition, nothing is held for longer than
the time limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from chappe.cluster.homes import stable_hash
from chappe.cluster.peer import Peer
from chappe.errors import Overload
from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.wire.node import Settled
from chappe.wire.ops import PlacedOp

# What waits at the most, of all sessions and nodes.
_HELD_MAX = 10_000


class Settling:
    """Holds what homes are asked for until everybody sees the same nodes."""

    def __init__(
        self,
        hub: Hub,
        home: Callable[[str, str], Peer | None],
        loop: asyncio.AbstractEventLoop,
        name: str,
        hold_s: float,
    ) -> None:
        self._hub = hub
        self._loop = loop
        self._home = home
        self._name = name
        self._hold_s = hold_s
        # Ops of stand-ins about what lives elsewhere, and how long they wait; the oldest first.
        self._misplaced: deque[tuple[float, Session, PlacedOp]] = deque()
        self._held: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._peers: list[Peer] = []
        self.view = 0
        # Whether to hold; asked for each message at its home.
        self.holding = False

    def __len__(self) -> int:
        """How much is held."""
        return len(self._held) + len(self._misplaced)

    def see(self, peers: Iterable[Peer]) -> None:
        """The nodes have changed."""
        self._peers = list(peers)
        self.view = stable_hash(*sorted([self._name, *(peer.name for peer in self._peers)]))
        if not self._peers:
            self._release()
        elif not self.holding:
            # One change after the other must not hold for ever what came before the first.
            self.holding = True
            self._timer = self._loop.call_later(self._hold_s, self._release)

    def announce(self) -> None:
        """All that follows from what this node sees has been said."""
        for peer in self._peers:
            peer.tell(Settled(self.view))

    def heard(self, peer: Peer, op: Settled) -> None:
        """A peer has said all that follows from what it sees."""
        peer.view = op.view
        if self.holding and all(one.view == self.view for one in self._peers):
            self._release()

    def hold(self, action: Callable[[], None]) -> None:
        """Do this once it is settled, after what came before it; raises Overload."""
        if len(self._held) >= _HELD_MAX:
            raise Overload("the nodes are finding together, and too much waits for that")
        self._held.append(action)

    def misplace(self, session: Session, op: PlacedOp) -> None:
        """Keep an op that was carried here until what it is about lives here; raises Overload."""
        if len(self._misplaced) >= _HELD_MAX:
            raise Overload("too much waits for nodes that are finding together")
        self._misplaced.append((self._loop.time() + self._hold_s, session, op))

    def recheck(self) -> None:
        """What lives where may have changed: carry out what is in its place now."""
        waiting, self._misplaced = self._misplaced, deque()
        for due, session, op in waiting:
            if self._home(session.app.name, op.to) is not None:
                self._misplaced.append((due, session, op))
            elif not session.closed:
                self._hub.receive(session, op)

    def sweep(self) -> None:
        """Refuse what has waited for too long; nothing has become of it."""
        if self.holding:
            return  # what is in its place by the end of this is carried out then
        now = self._loop.time()
        while self._misplaced and self._misplaced[0][0] <= now:
            _, session, op = self._misplaced.popleft()
            if not session.closed:
                error = Overload(f"to: {op.to} has just moved to another node")
                self._hub.refuse(session, op.id, error)

    def stop(self) -> None:
        """Wait no longer; what is held stays so."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self) -> None:
        self.stop()
        self.holding = False
        self._hub.ensure_tick()
        self.recheck()
        while self._held and not self.holding:
            self._held.popleft()()
