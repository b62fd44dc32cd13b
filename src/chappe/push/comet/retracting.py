"""Retracting: devices are told to take back what they have and did not acknowledge."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from chappe.clock import Clock
from chappe.events.pushrecorder import PushRecorder
from chappe.ids import PrefixedIds
from chappe.push.comet.audience import Audience
from chappe.push.comet.counters import Counters
from chappe.push.comet.marking import Marking
from chappe.push.comet.outbox import FLUSH_SESSIONS, Outboxes
from chappe.push.comet.parcel import Brief, Parcel
from chappe.push.comet.session import DeviceSession
from chappe.push.note import RETRACT, Note
from chappe.wire.pushlink import Withdraw


class _Retraction:
    """A note that is being taken back."""

    __slots__ = ("brief", "holders", "note_id", "parcel", "told")

    def __init__(self, note_id: str, holders: Iterable[DeviceSession]) -> None:
        self.note_id = note_id
        self.holders = deque(holders)
        self.parcel: Parcel | None = None
        self.brief: Brief | None = None
        self.told: list[str] = []


class Retracting:
    """Finds who has a note in its hands."""

    __slots__ = (
        "_audience",
        "_clock",
        "_counters",
        "_done_max",
        "_ids",
        "_marking",
        "_outboxes",
        "_queue",
        "_recorder",
        "_wake",
    )

    def __init__(
        self,
        ids: PrefixedIds,
        audience: Audience,
        outboxes: Outboxes,
        marking: Marking,
        recorder: PushRecorder,
        counters: Counters,
        clock: Clock,
        done_max: int,
        wake: Callable[[], None],
    ) -> None:
        self._ids = ids
        self._audience = audience
        self._outboxes = outboxes
        self._marking = marking
        self._recorder = recorder
        self._counters = counters
        self._clock = clock
        self._done_max = done_max
        self._wake = wake
        # Each is a look at all sessions, so there are as many as are asked for in that time.
        self._queue: deque[_Retraction] = deque()

    def withdraw(self, op: Withdraw) -> None:
        """Take a note back from whom it says, a few at once and many in turns."""
        retraction = _Retraction(op.note, self._holders(op))
        if not self._some(retraction):
            self._tell(retraction)
        else:
            self._queue.append(retraction)
            self._wake()

    def step(self) -> bool:
        """Tell some more; whether there are more."""
        if self._queue and len(self._outboxes.dirty) < FLUSH_SESSIONS:
            retraction = self._queue[0]
            if not self._some(retraction):
                self._queue.popleft()
                self._tell(retraction)
        return bool(self._queue)

    def _some(self, retraction: _Retraction) -> bool:
        for _ in range(FLUSH_SESSIONS):
            if not retraction.holders:
                return False
            session = retraction.holders.popleft()
            # It is not handed to this session again, whichever way it may still come.
            flight = session.acknowledge(retraction.note_id, self._done_max)
            if flight is None or session.closed:
                continue
            if retraction.parcel is None:
                retraction.parcel = Parcel(self._note(flight.brief))
                retraction.brief = flight.brief
            self._outboxes.put(session, retraction.parcel)
            self._marking.settle(session, flight.brief, None)
            retraction.told.append(session.client)
        return bool(retraction.holders)

    def _tell(self, retraction: _Retraction) -> None:
        if retraction.brief is not None:
            self._counters.retracted += len(retraction.told)
            self._recorder.retracted(retraction.brief.told, retraction.told, "withdrawn")

    def _holders(self, op: Withdraw) -> Iterable[DeviceSession]:
        sessions: Iterable[DeviceSession]
        if op.clients:
            found = map(self._audience.clients.get, op.clients)
            sessions = [session for session in found if session is not None]
        elif op.topic is not None:
            topic = self._audience.topic(op.app, op.topic)
            if topic is None:
                return []
            topic.take_out(op.note)
            sessions = topic.sessions
        else:
            sessions = self._audience.clients.values()
        return (
            session
            for session in sessions
            if session.app == op.app and session.flights is not None and op.note in session.flights
        )

    def _note(self, brief: Brief) -> Note:
        told, now_ms = brief.told, self._clock.wall_ms()
        return Note(
            self._ids.next("p"), told.job, told.app, RETRACT, now_ms, now_ms, told.id.encode()
        )
