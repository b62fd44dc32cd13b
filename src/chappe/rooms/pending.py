"""Joins that wait to be confirmed, each with its time limit.

A session that asks again for a room it waits for waits along: all its requests are answered
together, when the first one is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chappe.errors import Overload
from chappe.hub.deadline import Alarm, Deadlines, Timer

if TYPE_CHECKING:
    from chappe.hub.session import Session

# Requests of one session for one room that are answered together: more than any client has a use
# for, and few enough that nobody fills a node with them.
REQUESTS_MAX = 16


class PendingJoin:
    """A session that waits for its room, in its app, to be confirmed."""

    __slots__ = ("_late", "entry", "requests", "room", "session")

    entry: list[Any]

    def __init__(
        self,
        session: Session,
        room: str,
        request: int | None,
        late: Callable[[PendingJoin], None],
    ) -> None:
        self._late = late
        self.session = session
        self.room = room
        # Most have one.
        self.requests: tuple[int | None, ...] = (request,)

    def also(self, request: int | None) -> None:
        """Let another request wait along; raises Overload when too many do."""
        if len(self.requests) >= REQUESTS_MAX:
            raise Overload(f"to: {REQUESTS_MAX} joins of this session wait for {self.room} already")
        self.requests += (request,)

    def lapse(self, now: float) -> None:
        """Nobody confirmed it in time."""
        self._late(self)


class PendingJoins:
    """All of a hub: one of a session and a room at most, so sessions and their rooms bound it."""

    def __init__(self, timer: Timer, timeout_s: float, late: Callable[[PendingJoin], None]) -> None:
        self._timer = timer
        self._timeout_s = timeout_s
        self._late = late
        self._by_room: dict[tuple[str, str], dict[Session, PendingJoin]] = {}
        self._deadlines = Deadlines()
        self._alarm = Alarm(timer, self._deadlines)

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, session: Session, room: str, request: int | None) -> None:
        """Wait for a room's confirmation, and no longer than may be."""
        join = PendingJoin(session, room, request, self._late)
        join.entry = self._deadlines.add(self._timer.time() + self._timeout_s, join)
        self._by_room.setdefault((session.app.name, room), {})[session] = join
        self._alarm.set()

    def get(self, session: Session, room: str) -> PendingJoin | None:
        """The join of a session, if it waits."""
        waiting = self._by_room.get((session.app.name, room))
        return None if waiting is None else waiting.get(session)

    def remove(self, join: PendingJoin) -> None:
        """Wait no more."""
        key = (join.session.app.name, join.room)
        waiting = self._by_room[key]
        del waiting[join.session]
        if not waiting:
            del self._by_room[key]
        self._deadlines.cancel(join.entry)

    def take(self, app: str, room: str) -> list[PendingJoin]:
        """All that wait for a room, and wait no more."""
        joins = list(self._by_room.pop((app, room), {}).values())
        for join in joins:
            self._deadlines.cancel(join.entry)
        return joins

    def stop(self) -> list[PendingJoin]:
        """Let no time pass any more; those that waited."""
        self._alarm.stop()
        return [join for waiting in self._by_room.values() for join in waiting.values()]
