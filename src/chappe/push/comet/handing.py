"""Handing: a note goes into the outboxes of those it is for, many of them in slices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from chappe.errors import Overload
from chappe.events.pushrecorder import PushRecorder, Why
from chappe.push.comet.counters import Counters
from chappe.push.comet.outbox import FLUSH_SESSIONS, Outboxes
from chappe.push.comet.parcel import Parcel
from chappe.push.comet.session import DeviceSession, State
from chappe.push.comet.tallies import Tallies
from chappe.push.comet.wheel import Wheel
from chappe.push.options import CometOptions


class _Handing:
    """A note on its way to many."""

    __slots__ = ("came_from", "came_us", "count", "handed", "parcel", "sessions")

    def __init__(
        self, parcel: Parcel, sessions: Sequence[DeviceSession], came_us: int, came_from: str
    ) -> None:
        self.parcel = parcel
        self.sessions = iter(sessions)
        self.count = len(sessions)
        self.came_us = came_us
        self.came_from = came_from
        self.handed: list[str] = []


class Handings:
    """Hands notes to sessions, each id to a session once, and tells of it."""

    __slots__ = (
        "_counters",
        "_options",
        "_outboxes",
        "_queue",
        "_recorder",
        "_redelivery_s",
        "_tallies",
        "_wake",
        "_wheel",
    )

    def __init__(
        self,
        options: CometOptions,
        outboxes: Outboxes,
        wheel: Wheel,
        tallies: Tallies,
        recorder: PushRecorder,
        counters: Counters,
        wake: Callable[[], None],
    ) -> None:
        self._options = options
        self._redelivery_s = int(options.redelivery_s)
        self._outboxes = outboxes
        self._wheel = wheel
        self._tallies = tallies
        self._recorder = recorder
        self._counters = counters
        self._wake = wake
        self._queue: deque[_Handing] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def check(self) -> None:
        """Raise Overload while too much waits to be handed out."""
        if len(self._queue) >= self._options.handings_max:
            raise Overload("comet: too many notes wait to be handed to devices")

    def hand_all(
        self, parcel: Parcel, sessions: Sequence[DeviceSession], came_us: int, came_from: str
    ) -> int:
        """Hand a note that came just now to those who are here, a few at once and many in turns;
        how many get it. Whoever sent it counts those."""
        handing = _Handing(parcel, sessions, came_us, came_from)
        if len(sessions) <= FLUSH_SESSIONS:
            self._some(handing, FLUSH_SESSIONS)
            self._tell(handing)
            return len(handing.handed)
        self._queue.append(handing)
        self._wake()
        return len(sessions)

    def step(self) -> bool:
        """Hand on a slice of what goes to many; whether there is more."""
        if self._queue and len(self._outboxes.dirty) < FLUSH_SESSIONS:
            handing = self._queue[0]
            if not self._some(handing, FLUSH_SESSIONS):
                self._queue.popleft()
                self._end(handing)
        return bool(self._queue)

    def withdraw(self, note_id: str) -> None:
        """Hand a note to nobody else: it was taken back."""
        ended = [each for each in self._queue if each.parcel.note.id == note_id]
        for handing in ended:
            self._queue.remove(handing)
            self._end(handing)

    def take(self, session: DeviceSession, parcel: Parcel, why: Why) -> bool:
        """Note that a session has a note in its hands; False if it has had it, or has no room."""
        if session.has_had(parcel.note.id):
            return False
        flights = session.flights
        if (flights is not None and len(flights) >= self._options.flights_max) or (
            not session.paused and self._outboxes.room(session) < parcel.size
        ):
            # It is in the store, and is looked up when there is room.
            session.behind = True
            return False
        self.fly(session, parcel, why)
        return True

    def fly(self, session: DeviceSession, parcel: Parcel, why: Why) -> None:
        """A session is handed a note, or handed it again."""
        if session.flights is None:
            session.flights = {}
            again = self._wheel.now + self._redelivery_s
            if again < session.due:
                self._wheel.put(session, again)
        # Behind all others, as it is the last to come again.
        session.flights.pop(parcel.note.id, None)
        session.flights[parcel.note.id] = parcel.flight(self._wheel.now, why)
        self._counters.handed[why] += 1

    def _some(self, handing: _Handing, most: int) -> bool:
        parcel, put = handing.parcel, self._outboxes.put
        some = list(islice(handing.sessions, most))
        for session in some:
            if _wants(session, parcel) and self.take(session, parcel, "live"):
                handing.handed.append(session.client)
                put(session, parcel)
        return len(some) == most

    def _end(self, handing: _Handing) -> None:
        self._tell(handing)
        # Some were said to get it who then left, had no room, or were not come to.
        missed = handing.count - len(handing.handed)
        self._tallies.add(handing.parcel.brief.told.job, "sent", -missed)

    def _tell(self, handing: _Handing) -> None:
        told = handing.parcel.brief.told
        self._recorder.handed(told, handing.handed, "live", handing.came_us, handing.came_from)


def _wants(session: DeviceSession, parcel: Parcel) -> bool:
    """Whether a session is still there for a note, and has not settled it before."""
    if session.state is not State.LIVE:
        return False
    topic = parcel.note.topic
    if topic is None:
        return True
    progress = (session.topics or {}).get(topic)
    return progress is not None and not progress.has(parcel.note.position)
