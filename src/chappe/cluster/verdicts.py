"""Verdicts: what became of a peer's messages; those taken one after the other are told together."""

from __future__ import annotations

from chappe.cluster.peer import Peer
from chappe.errors import RequestError
from chappe.message import Message
from chappe.wire.node import FORGET_REFUSED, Returned, Taken


class Verdicts:
    """The verdicts on the messages of one op, in their order, numbered from `first` on."""

    __slots__ = ("_app", "_first", "_nodes", "_number", "_peer", "_taken")

    def __init__(self, peer: Peer, app: str, first: int) -> None:
        self._peer = peer
        self._app = app
        self._first = first
        self._number = first
        # How many were taken that the peer has not been told of, each by so many nodes.
        self._taken = 0
        self._nodes = 0

    def took(self, count: int, nodes: int = 0) -> None:
        """The next ones were taken; of a topic, each by so many nodes."""
        if nodes != self._nodes:
            self.tell()
            self._nodes = nodes
        self._taken += count

    def refused(self, message: Message, error: RequestError) -> None:
        """The next one was not."""
        number = self.later()
        if self._first != FORGET_REFUSED:
            returned = Returned(number, self._app, error.code, error.reason, message)
            self._peer.tell(returned, len(message.payload))

    def later(self) -> int:
        """The number of the next one, whose verdict comes later; 0 if it has none."""
        if self._first <= 0:
            return 0
        self.tell()
        number, self._number = self._number, self._number + 1
        return number

    def tell(self) -> None:
        """Tell of those that were taken."""
        if self._first > 0 and self._taken:
            self._peer.tell(Taken(self._number, self._taken, self._nodes))
            self._number += self._taken
        self._taken = 0
