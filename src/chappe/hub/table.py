"""The connection table: addresses to sessions and back, many to many (H9, K2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chappe.hub.session import Session

# A user has a few devices, a topic may have a hundred thousand subscribers. A tuple of a few costs
# a fifth of a dict in memory and iterates faster; past this many, changing it would cost more.
_TUPLE_MAX = 8


class ConnectionTable:
    """Who is at an address.

    An entry exists only while a session is bound to it: the last one to leave reclaims it.
    """

    __slots__ = ("_sessions", "get")

    def __init__(self) -> None:
        self._sessions: dict[str, tuple[Session, ...] | dict[Session, None]] = {}
        # The look-up of every message: the dict's own method, one call less.
        self.get = self._sessions.get

    def __contains__(self, address: str) -> bool:
        return address in self._sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sessions)

    def bind(self, address: str, session: Session) -> bool:
        """Add a session to an address; False when it was there already."""
        sessions = self._sessions.get(address, ())
        if session in sessions:
            return False
        if isinstance(sessions, dict):
            sessions[session] = None
        elif len(sessions) < _TUPLE_MAX:
            self._sessions[address] = (*sessions, session)
        else:
            self._sessions[address] = dict.fromkeys((*sessions, session))
        return True

    def unbind(self, address: str, session: Session) -> bool:
        """Take a session from an address; False when it was not there."""
        sessions = self._sessions.get(address, ())
        if session not in sessions:
            return False
        if len(sessions) == 1:
            del self._sessions[address]
        elif isinstance(sessions, dict):
            del sessions[session]
        else:
            self._sessions[address] = tuple(s for s in sessions if s is not session)
        return True

    def unbind_all(self, addresses: Iterable[str], session: Session) -> None:
        """Take a session from each of its addresses."""
        for address in addresses:
            self.unbind(address, session)
