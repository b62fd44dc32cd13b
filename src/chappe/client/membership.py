"""Memberships: the rooms a client is in, joined again after each reconnect."""

from __future__ import annotations

from chappe.client.event import Deferred
from chappe.client.notice import Notice, Stopped
from chappe.client.standing import Standing
from chappe.errors import ConnectionClosed, RequestError, Unreachable
from chappe.wire.ops import Join, Reply


class Membership:
    """One room."""

    __slots__ = ("_all", "room")

    def __init__(self, all: Memberships, room: str) -> None:
        self._all = all
        self.room = room

    @property
    def wanted(self) -> bool:
        """Whether nobody left it meanwhile."""
        return self._all.wanted.get(self.room) is self

    def ask(self) -> Join:
        """What to say to the hub."""
        return Join(to=self.room)

    def begin(self, reply: Reply) -> None:
        """The hub joined it for the first time."""
        self._all.wanted[self.room] = self

    def taken(self, reply: Reply) -> None:
        """The hub joined it again."""

    def refused(self, error: RequestError) -> Notice | Deferred | None:
        """The hub did not join it again: its brokers are away for a while, or it may not."""
        if isinstance(error, Unreachable):
            return Deferred(self)
        self._all.remove(self.room)
        return Stopped(self.room, error)


class Memberships:
    """All of them."""

    def __init__(self) -> None:
        self.wanted: dict[str, Membership] = {}
        # How many joins of a room are under way, and of which nobody knows what one came to.
        self._joins: dict[str, int] = {}
        self._unsure: set[str] = set()

    def asked(self, room: str) -> None:
        """A room is being joined, maybe not for the only time."""
        self._joins[room] = self._joins.get(room, 0) + 1

    def settled(self, room: str, unsure: bool) -> bool:
        """A join is over, or given up; whether the hub may have joined what nobody wants.

        To leave it while another join waits would have the hub refuse that one as well.
        """
        if unsure:
            self._unsure.add(room)
        self._joins[room] -= 1
        if self._joins[room]:
            return False
        del self._joins[room]
        unsure = room in self._unsure
        self._unsure.discard(room)
        return unsure and room not in self.wanted

    def remove(self, room: str) -> None:
        """Want a room no more."""
        self.wanted.pop(room, None)

    def wishes(self) -> list[Standing]:
        """What is to be said on a new connection."""
        return list(self.wanted.values())

    def leave(self) -> None:
        """Messages may come until the connection is gone: the hub ends what is its own then."""

    def lose(self) -> None:
        """The connection is gone; nothing of it was under way."""

    def end(self, reason: ConnectionClosed) -> None:
        """There will be no other."""

    @property
    def busy(self) -> bool:
        """A member needs no connection in particular."""
        return False
