"""Sessions of a comet: how they begin and end."""

from __future__ import annotations

from collections.abc import Callable

from chappe.clock import Clock
from chappe.errors import Overload
from chappe.events.pushrecorder import EDGE
from chappe.events.recorder import Recorder
from chappe.push.comet.audience import Audience
from chappe.push.comet.counters import Counters
from chappe.push.comet.earlier import Earlier
from chappe.push.comet.ending import LEFT, Ending
from chappe.push.comet.outbox import Outboxes
from chappe.push.comet.session import DeviceSession, Sink, State
from chappe.push.comet.wheel import Wheel
from chappe.push.options import CometOptions
from chappe.wire.push import Error, PushError, encode_response

# A look that found something to be sent again is not repeated sooner, should the store be away.
AGAIN_S = 5


class Sessions:
    """All that are open. Whoever wants to know that a client left sets `left`."""

    def __init__(
        self,
        options: CometOptions,
        audience: Audience,
        earlier: Earlier,
        recorder: Recorder,
        counters: Counters,
        clock: Clock,
        wake: Callable[[], None],
        written: Callable[[DeviceSession], None],
        left: Callable[[str, str], None],
    ) -> None:
        self._options = options
        self._audience = audience
        self._earlier = earlier
        self._recorder = recorder
        self._counters = counters
        self._clock = clock
        self._left = left
        self.wheel = Wheel(int(clock.monotonic()))
        self.outboxes = Outboxes(options.outbox_bytes_max, counters, wake, self.end, written)
        self.count = 0
        # A comet that stops takes nobody.
        self.draining = False

    def open(self, sink: Sink) -> DeviceSession:
        """A device has connected; raises Overload when there are too many."""
        if self.draining or self.count >= self._options.sessions_max:
            raise Overload("comet: has as many connections as it takes")
        session = DeviceSession(sink, self.wheel.now)
        self.count += 1
        self.wheel.put(session, self.wheel.now + int(self._options.login_s))
        return session

    def opened(self, session: DeviceSession) -> None:
        """A device is logged in."""
        self._counters.logins += 1
        session.state = State.READY
        self._recorder.session_opened(
            session.app, f"client:{session.client}", f"{session.login:x}", EDGE
        )
        self.wheel.put(session, self.due(session))

    def error(self, session: DeviceSession, code: PushError, reason: str) -> None:
        """Answer with an error."""
        self._counters.refused[code] += 1
        self.outboxes.put(session, encode_response(Error(code, reason)))

    def end(self, session: DeviceSession, ending: Ending, reason: str = "") -> None:
        """Tell a device why, and end its session."""
        if session.closed:
            return
        if ending.error is not None and not session.paused:
            self.error(session, ending.error, reason or ending.reason)
            self.outboxes.write(session)
        self._close(session, ending)
        if ending.gently and not session.paused:
            session.sink.close()
        else:
            session.sink.abort()

    def lost(self, session: DeviceSession) -> None:
        """A device's connection is gone."""
        if not session.closed:
            self._close(session, LEFT)

    def due(self, session: DeviceSession) -> int:
        """When a session is to be looked at next."""
        now = self.wheel.now
        due = session.heard + int(self._options.idle_s)
        due = min(due, now + 1 + (session.expires_ms - self._clock.wall_ms()) // 1000)
        if session.flights:
            first = next(iter(session.flights.values()))
            due = min(due, max(first.since + int(self._options.redelivery_s), now + AGAIN_S))
        return due

    def _close(self, session: DeviceSession, ending: Ending) -> None:
        self.count -= 1
        self._counters.closed[ending.name] += 1
        if session.known and self._audience.leave(session):
            self._left(session.client, session.app)
        if session.state in (State.READY, State.LIVE):
            self._recorder.session_closed(
                session.app,
                f"client:{session.client}",
                f"{session.login:x}",
                EDGE,
                ending.code,
                session.login * 1000,
            )
        if session.flights:
            self._earlier.keep(session.client, session.flights)
        self.wheel.drop(session)
        session.let_go()
