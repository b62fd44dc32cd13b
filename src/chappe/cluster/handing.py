"""Handing: messages to queues that live on other nodes, told of at this end as well.

The home gives a message its id, so this node tells of it when it hears of that. Of one that asks
for no answer it never does: then what the home tells is all, the node that it came from included.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from chappe.cluster.peer import Peer
from chappe.wire.ops import Reply, Send

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session


class _Handed(NamedTuple):
    """A message on its way, or waiting at its home to be durable."""

    queue: str
    home: str
    size: int
    # When it came, and when it was handed to the link.
    came: int
    at: int
    delayed: bool


class Handing:
    """Messages of this node's sessions that other nodes were handed; as many at most as requests
    may be under way."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._handed: dict[tuple[Session, int], _Handed] = {}

    def begin(self, peer: Peer, session: Session, op: Send, size: int) -> None:
        """A message is about to be carried, and its sender wants to know what becomes of it."""
        assert op.id is not None
        assert isinstance(op.to, str), "each receiver of a list is sent to on its own"
        hub = self._hub
        at = hub.clock.wall_us()
        delayed = op.delay_ms is not None
        handed = _Handed(op.to, peer.name, size, hub.recorder.came, at, delayed)
        self._handed[session, op.id] = handed

    def answered(self, session: Session, reply: Reply) -> bool:
        """Its home says what became of it, if it is one; whether it is stored, to be delivered
        later: its session may take it back by its id alone."""
        handed = self._handed.pop((session, reply.id), None)
        message = reply.message
        if handed is None or not reply.ok or not isinstance(message, int):
            return False
        queue, home, size, came, at, delayed = handed
        self._hub.recorder.handed(
            session.app.name, queue, message, session.address, size, came, at, home
        )
        return delayed

    def forget(self, session: Session, requests: Iterable[int]) -> None:
        """Nobody will say what became of these."""
        for request in requests:
            self._handed.pop((session, request), None)
