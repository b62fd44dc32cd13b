"""The hub: sessions in, messages across, one tick at a time.

Edges open sessions, hand over decoded ops and report lost connections; all of it is synchronous.
The first thing that happens in a turn of the loop begins a *tick*; its end, scheduled behind
whatever else that turn brings, writes every outbox once. Time, randomness and the loop come from
outside, so that a simulation can own them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from chappe.clock import Clock
from chappe.errors import (
    ABNORMAL,
    CloseCode,
    ErrorCode,
    Forbidden,
    Overload,
    RequestError,
)
from chappe.events.recorder import Recorder
from chappe.hub.allowance import Allowances
from chappe.hub.app import App
from chappe.hub.fanout import FanOut
from chappe.hub.grant import Authenticator, Grant
from chappe.hub.heartbeat import Heartbeat
from chappe.hub.options import HubOptions
from chappe.hub.outbox import Outboxes
from chappe.hub.requests import Handler, Requests, RunTaker
from chappe.hub.session import Session, Sink
from chappe.ids import Snowflake
from chappe.wire.encoding import Encoding
from chappe.wire.limits import Limits
from chappe.wire.ops import Error, Hello, Malformed, Op, Reconnect, Reply


class Hub:
    """Joins the sessions of one node."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        ids: Snowflake,
        entropy: Callable[[int], bytes],
        authenticator: Authenticator,
        recorder: Recorder,
        options: HubOptions,
        limits: Limits,
    ) -> None:
        self.options = options
        self.limits = limits
        self.clock = clock
        self.ids = ids
        self.recorder = recorder
        self.sessions: dict[str, Session] = {}
        self.apps: dict[str, App] = {}
        self.draining = False
        self.ticking = False
        self.now_ms = clock.wall_ms()
        self._loop = loop
        self._entropy = entropy
        self._authenticator = authenticator
        # By app and token id: a revocation must find its sessions among all.
        self._bearers: dict[tuple[str, str], set[Session]] = {}
        # Sessions that have not said hello, oldest first, with the time they came.
        self._greeting: dict[Session, float] = {}
        self._left: asyncio.Future[None] | None = None
        self.outboxes = Outboxes(options, recorder, self.ensure_tick, self.close)
        self.fanout = FanOut(self.outboxes, recorder)
        self._requests = Requests(self)
        self._heartbeat = Heartbeat(loop, options.heartbeat_s, self._beat)
        self.receive = self._requests.carry_out
        self.receive_all = self._requests.carry_out_all
        self.take = self._requests.take
        # The node's name, for administrators, and its tag among others, which anybody may see.
        self.node = ""
        self.tag = ""
        # Told when an address gets its first session here, and when it loses its last.
        self.on_online: list[Callable[[App, str], None]] = []
        self.on_offline: list[Callable[[App, str], None]] = []
        # Told of each session of an address that has others here.
        self.on_another: list[Callable[[Session], None]] = []
        # Told of each session that was admitted and has left.
        self.on_left: list[Callable[[Session], None]] = []
        # Called at the end of a tick, after sessions were written to.
        self.on_tick: Callable[[], None] | None = None

    def serve(self, handlers: Mapping[type[Op], Handler]) -> None:
        """Let admitted sessions say these ops, too."""
        self._requests.serve(handlers)

    def serve_runs(self, takers: Mapping[type[Op], RunTaker]) -> None:
        """Take ops of these kinds together where several come at once."""
        self._requests.serve_runs(takers)

    def start(self) -> None:
        """Begin to watch for silent sessions."""
        self._heartbeat.start()

    def stop(self) -> None:
        """Close whatever session is left, and rest."""
        self._heartbeat.stop()
        for session in list(self.sessions.values()):
            self.close(session, CloseCode.GOING_AWAY, "the hub stopped")

    def open(
        self,
        edge: str,
        encoding: Encoding,
        sink: Sink,
        peer: str,
        *,
        lease_s: float | None = None,
        paused: bool = False,
    ) -> Session:
        """Take a new connection in; it may only say hello until it is admitted.

        Raises Overload when the node holds as many as it may, or is draining.
        """
        if self.draining:
            raise Overload("this node is draining")
        if len(self.sessions) >= self.options.connections_max:
            raise Overload(f"this node holds {self.options.connections_max} connections already")
        session = Session(self._session_id(), edge, encoding, sink, peer)
        session.handlers = self._requests.greeting
        session.paused = paused
        session.beats_max = self.options.heartbeats_missed_max
        if lease_s is not None:
            session.beats_max = max(1, round(lease_s / self.options.heartbeat_s))
        self.sessions[session.id] = session
        self._heartbeat.add(session)
        self._greeting[session] = self.clock.monotonic()
        return session

    def _session_id(self) -> str:
        """An id that nobody guesses, and that other nodes find its node by."""
        secret = self._entropy(16).hex()
        return f"{secret}.{self.tag}" if self.tag else secret

    def admit(self, session: Session, hello: Hello, *, listed: bool = True) -> Grant:
        """Let a session be who it says it is; raises Forbidden, BadRequest or Overload.

        One that is not listed is not found at its address: it takes no messages.
        """
        grant = self._authenticator.authenticate(hello)
        self.welcome(session, grant, listed=listed)
        return grant

    def welcome(self, session: Session, grant: Grant, *, listed: bool) -> None:
        """Let a session be who somebody has found it to be; raises Overload."""
        app = self.app(grant.app)
        if app.quota.connections and app.connections >= app.quota.connections:
            raise Overload(f"app {app.name} holds {app.quota.connections} connections already")
        self._greeting.pop(session, None)
        self.take_in(session, app, grant)
        app.connections += 1
        if grant.token_id is not None:
            self._bearers.setdefault((app.name, grant.token_id), set()).add(session)
        allowances = Allowances(self.options.rate, app, self.clock)
        if allowances.bounded:
            session.allowances = allowances
        if listed:
            # A run under way to this address was begun without this session.
            self.fanout.end()
            first = session.address not in app.endpoints
            app.endpoints.bind(session.address, session)
            if first:
                for online in self.on_online:
                    online(app, session.address)
            else:
                for another in self.on_another:
                    another(session)
        session.opened = self.recorder.came
        self.recorder.session_opened(app.name, session.address, session.id, session.edge)

    def take_in(self, session: Session, app: App, grant: Grant) -> None:
        """Make a session one of an app's, whoever vouched for it."""
        session.grant, session.app, session.address = grant, app, grant.address
        session.handlers = self._requests.serving
        app.sessions += 1

    def let_out(self, session: Session) -> None:
        """Take a session from its app, and tell whoever holds something of it."""
        app = session.app
        app.sessions -= 1
        for left in self.on_left:
            left(session)
        self.forget_app(app)

    def forget_app(self, app: App) -> None:
        """Let go of an app that holds nothing any more."""
        if app.idle and self.apps.get(app.name) is app:
            del self.apps[app.name]

    def app(self, name: str) -> App:
        """The app of that name, made by its first session and gone with its last.

        One with a rate stays: leaving and coming back must not fill its buckets.
        """
        app = self.apps.get(name)
        if app is None:
            if len(self.apps) >= self.options.apps_max:
                raise Overload(f"this node holds {self.options.apps_max} apps already")
            quota = self.options.quota_of(name)
            app = self.apps[name] = App(name, quota, self.clock.monotonic())
        return app

    def pause(self, session: Session) -> None:
        """The session's transport takes no more; what was promised until now is its still."""
        self.fanout.end()
        session.paused = True

    def resume(self, session: Session) -> None:
        """The session's transport takes more."""
        self.outboxes.resume(session)

    def say(self, session: Session, op: Op) -> None:
        """Tell a session something it did not ask for."""
        self.outboxes.put(session, session.encoding.op(op))

    def answer(self, session: Session, reply: Reply) -> None:
        """Answer a request of a session."""
        self.outboxes.put(session, session.encoding.op(reply))

    def refuse(self, session: Session, request: int | None, error: RequestError) -> None:
        """Count an error, and answer the request with it, if it asked for an answer."""
        self.recorder.refused(session.app.name if session.address else "", error.code)
        if request is not None:
            outcome = "unknown" if getattr(error, "outcome_unknown", False) else None
            self.answer(
                session,
                Reply(id=request, ok=False, error=error.code, reason=error.reason, outcome=outcome),
            )

    def malformed(self, session: Session, frame: Malformed) -> None:
        """A frame could not be read: say so; the third time, or if the rest is lost, close."""
        session.beats_missed = 0
        self.recorder.refused("", ErrorCode.PROTOCOL)
        self.say(session, Error(error=ErrorCode.PROTOCOL, reason=frame.reason))
        if frame.close_code is not None:
            self.close(session, frame.close_code, frame.reason)
        else:
            self._strike(session)

    def turn_away(self, session: Session, error: RequestError) -> None:
        """A session that has not been admitted got an error: close it, or count it."""
        if isinstance(error, Forbidden):
            self.close(session, CloseCode.UNAUTHORIZED, error.reason)
        elif isinstance(error, Overload):
            self.close(session, CloseCode.QUOTA, error.reason)
        else:
            self._strike(session)

    def _strike(self, session: Session) -> None:
        session.malformed += 1
        if session.malformed >= self.limits.malformed_max:
            self.close(session, CloseCode.MALFORMED, f"{session.malformed} malformed frames")

    def close(self, session: Session, code: int, reason: str) -> None:
        """End a session: what it has yet to get is written first if its transport takes it."""
        if session.closed:
            return
        self.fanout.end()
        # Asked before the last write, which may well pause a transport that reads on.
        stuck = session.paused
        self.outboxes.write_now(session)
        self._leave(session, code)
        session.sink.close(code, reason)
        if stuck:
            session.sink.abort()

    def lost(self, session: Session, code: int = ABNORMAL) -> None:
        """The connection of a session is gone."""
        if not session.closed:
            self.fanout.end()
            self._leave(session, code)

    def _leave(self, session: Session, code: int) -> None:
        session.closed = True
        connected = self.sessions.pop(session.id, None) is not None
        if self._left is not None and not self._left.done():
            self._left.set_result(None)
        self._greeting.pop(session, None)
        self.outboxes.forget(session)
        if not session.address:
            return
        app = session.app
        app.connections -= connected
        if app.endpoints.unbind(session.address, session) and session.address not in app.endpoints:
            for offline in self.on_offline:
                offline(app, session.address)
        if session.allowances is not None:
            session.allowances.give_back()
        if session.grant.token_id is not None:
            self._forget_bearer(session, session.grant.token_id)
        self.let_out(session)
        self.recorder.session_closed(
            app.name, session.address, session.id, session.edge, code, session.opened
        )

    def drain(self, reason: str, after_ms: int) -> None:
        """Take nobody new, and ask everybody to come back elsewhere."""
        self.draining = True
        for session in list(self.sessions.values()):
            self.say(session, Reconnect(reason=reason, after_ms=after_ms))

    async def wait_for_leave(self, timeout_s: float) -> None:
        """Wait until a session leaves, or the time is over."""
        self._left = self._loop.create_future()
        try:
            await asyncio.wait_for(self._left, timeout_s)
        except TimeoutError:
            pass
        finally:
            self._left = None

    def close_token(self, app: str, token_id: str) -> int:
        """Close the sessions that a revoked token opened; returns how many there were."""
        opened = list(self._bearers.get((app, token_id), ()))
        for session in opened:
            self.close(session, CloseCode.REVOKED, "the token was revoked")
        return len(opened)

    def _forget_bearer(self, session: Session, token_id: str) -> None:
        key = (session.app.name, token_id)
        bearers = self._bearers[key]
        bearers.discard(session)
        if not bearers:
            del self._bearers[key]

    def begin_tick(self) -> None:
        """Start a tick: look at the clock once, and arrange for its end."""
        # Looked at once: for ids, for messages, and for what is told of them.
        self.recorder.came = now_us = self.clock.wall_us()
        self.now_ms = self.ids.tick_at(now_us // 1000)
        self.ticking = True
        self._loop.call_soon(self._end_tick)

    def ensure_tick(self) -> None:
        """Begin a tick unless one is under way."""
        if not self.ticking:
            self.begin_tick()

    def _end_tick(self) -> None:
        try:
            self.fanout.end()
        finally:
            # What the last run brought belongs to this tick; what follows may need another.
            self.ticking = False
            # Whatever is wrong with one run, everybody else's bytes go out.
            self.outboxes.flush()
        if self.on_tick is not None:
            self.on_tick()

    def _beat(self, session: Session) -> None:
        """Look at one session, once per heartbeat interval."""
        if not session.address:
            came = self._greeting.get(session)
            if came is None or self.clock.monotonic() - came >= self.options.hello_timeout_s:
                self.close(session, CloseCode.HELLO_TIMEOUT, "no hello in time")
            return
        expires_at = session.grant.expires_at
        if expires_at is not None and self.clock.wall_ms() >= expires_at * 1000:
            self.close(session, CloseCode.TOKEN_EXPIRED, "the token expired")
            return
        session.beats_missed += 1
        if session.beats_missed > session.beats_max:
            self.close(session, CloseCode.HEARTBEAT_LOST, "not heard of in time")
        elif session.beats_missed > 1:
            session.sink.ping()
