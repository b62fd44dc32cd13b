"""The comet: devices' sessions, from the first byte to the last (P1 to P7).

A machine without sockets. The edge tells it what was read, and gives it a sink to write to; other
processes of push tell it what to hand out; its owner tells it every second that one has passed. The
store is asked by a few tasks that exist while there is something to ask, each for many sessions at
once:

    feed -> auth                -> logins      -> auth_success
            exchange_key        -> routes      -> ok
            get_message_list    -> lists       -> message_list
            subscribe, ...      -> subscribing -> ok, topic_list
            message_ack         -> ok, ledger
    deliver, broadcast          -> handing     -> outboxes -> one write per connection per tick
    beat                        -> wheel       -> silence, redelivery, ends of tokens
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from chappe.clock import Clock
from chappe.errors import Overload
from chappe.events.pushrecorder import PushRecorder
from chappe.events.recorder import Recorder
from chappe.ids import PrefixedIds
from chappe.push.comet.apps import Apps
from chappe.push.comet.audience import Audience
from chappe.push.comet.bodies import Bodies
from chappe.push.comet.conversation import Conversation
from chappe.push.comet.counters import Counters
from chappe.push.comet.doubts import Doubts
from chappe.push.comet.earlier import Earlier
from chappe.push.comet.ending import (
    DRAINED,
    EXPIRED,
    LATE,
    REMOVED,
    REPLACED,
    REVOKED,
    SILENT,
)
from chappe.push.comet.handing import Handings
from chappe.push.comet.ledger import Ledger
from chappe.push.comet.lists import Lists
from chappe.push.comet.logins import Logins
from chappe.push.comet.looking import Looking
from chappe.push.comet.marking import Marking
from chappe.push.comet.once import Onces
from chappe.push.comet.parcel import Parcel
from chappe.push.comet.retracting import Retracting
from chappe.push.comet.routes import Routes
from chappe.push.comet.session import DeviceSession, Sink, State
from chappe.push.comet.sessions import Sessions
from chappe.push.comet.subscribing import Subscribing
from chappe.push.comet.tallies import Tallies
from chappe.push.comets import Comets, Handed
from chappe.push.identity import Identity
from chappe.push.note import Note
from chappe.push.options import CometOptions
from chappe.push.state.states import States
from chappe.wire.pushlink import Close, Subscribed, Why, Withdraw

# Sessions ended in one turn of the loop when the comet stops.
_DRAIN_SLICE = 64


class Soon(Protocol):
    """How a tick is ended: a loop's `call_soon`."""

    def __call__(self, callback: Callable[[], None]) -> object:
        """Call back when all that is ready now is done."""
        ...


class Comet:
    """All sessions of one process."""

    def __init__(
        self,
        *,
        server: int,
        states: States,
        comets: Comets,
        identity: Identity,
        ids: PrefixedIds,
        clock: Clock,
        entropy: Callable[[int], bytes],
        recorder: Recorder,
        soon: Soon,
        options: CometOptions | None = None,
    ) -> None:
        self.options = options = options or CometOptions()
        self.server = server
        self.counters = counters = Counters()
        self.audience = audience = Audience()
        self._clock = clock
        self._recorder = told = PushRecorder(recorder)
        self._soon = soon
        self._awake = False
        self._retry_at = 0
        earlier = Earlier()
        self.sessions = sessions = Sessions(
            options,
            audience,
            earlier,
            recorder,
            counters,
            clock,
            self._wake,
            self._written,
            self._left,
        )
        self.bodies = bodies = Bodies(
            states.message,
            clock,
            counters,
            bytes_max=options.cache_bytes_max,
            age_s=options.cache_s,
        )
        tallies = Tallies(states.meta)
        marking = Marking(states.topic, audience, told, clock)
        onces = Onces(states, comets, tallies, told)
        self.ledger = ledger = Ledger(
            options, states.message, bodies, marking, onces, tallies, told, counters, clock
        )
        outboxes, wheel = sessions.outboxes, sessions.wheel
        self.handings = Handings(options, outboxes, wheel, tallies, told, counters, self._wake)
        self._retracting = Retracting(
            ids,
            audience,
            outboxes,
            marking,
            told,
            counters,
            clock,
            options.done_max,
            self._wake,
        )
        self._talk = talk = Conversation(options, sessions, audience, ledger, counters, clock)
        self.logins = talk.logins = Logins(
            options, states, identity, entropy, clock, counters, outboxes.put, talk.turn_away
        )
        self.routes = talk.routes = Routes(
            options,
            server,
            states,
            audience,
            comets,
            clock,
            counters,
            talk.joined,
            talk.turn_away,
        )
        self.lists = talk.lists = Lists(
            options,
            states,
            bodies,
            self.handings,
            outboxes,
            ledger,
            earlier,
            tallies,
            told,
            counters,
            clock,
            talk.listed,
        )
        self.subscribing = talk.subscribing = Subscribing(
            options,
            server,
            states.topic,
            audience,
            clock,
            counters,
            talk.answer,
            talk.refuse,
            self._found,
            self._left,
        )
        self._doubts = Doubts(
            options,
            server,
            states,
            clock,
            counters,
            sessions.end,
            self._found,
            self.subscribing.read_anew,
            self._left,
        )
        self._apps = Apps(states.meta, audience, counters, sessions.end)
        self._looking = Looking(
            audience, int(options.redelivery_s), talk.maybe_more, self._doubts.put
        )
        self._parts = (
            self.logins,
            self.routes,
            self.lists,
            self.subscribing,
            self._doubts,
            self._apps,
        )

    # What its owner calls.

    async def start(self) -> None:
        """Begin: whoever was here before this process is not here now. Raises StorageError."""
        await self.routes.clear()

    def beat(self) -> None:
        """Look at whoever is due; called every second."""
        for session in self.sessions.wheel.advance(int(self._clock.monotonic())):
            self._visit(session)
        self._looking.beat(self.sessions.wheel.now)
        self._apps.beat()
        if self.sessions.wheel.now >= self._retry_at:
            self._retry_at = self.sessions.wheel.now + max(1, int(self.options.retry_s))
            self.ledger.kick()
            self.routes.kick()
            self.lists.kick()
            self.subscribing.kick()

    async def idle(self) -> None:
        """Wait until nothing is asked of the store, but for what it failed to answer."""
        for part in self._parts:
            await part.idle()
        await self.ledger.idle()

    async def drain(self) -> None:
        """Tell all devices to connect elsewhere, and the store what it has to know of them."""
        self.sessions.draining = True
        for at, session in enumerate(self.sessions.wheel.sessions()):
            self.sessions.end(session, DRAINED)
            if at % _DRAIN_SLICE == _DRAIN_SLICE - 1:
                await asyncio.sleep(0)
        try:
            async with asyncio.timeout(self.options.drain_s):
                await self.routes.idle()
                await self.ledger.idle()
        except TimeoutError:
            self.counters.store_failures["drain"] += 1
        for part in self._parts:
            part.cancel()
        self.ledger.cancel()

    # What the edge calls.

    def open(self, sink: Sink) -> DeviceSession:
        """A device has connected; raises Overload when there are too many."""
        return self.sessions.open(sink)

    def feed(self, session: DeviceSession, data: bytes) -> None:
        """A device has sent bytes."""
        self._talk.feed(session, data)

    def pause(self, session: DeviceSession) -> None:
        """A device does not take what it is sent for now."""
        self.sessions.outboxes.pause(session)

    def resume(self, session: DeviceSession) -> None:
        """It does again."""
        if not session.closed:
            self.sessions.outboxes.resume(session)

    def lost(self, session: DeviceSession) -> None:
        """A device's connection is gone."""
        self.sessions.lost(session)

    # What links call.

    def deliver(self, note: Note, clients: list[str], came_from: str = "") -> Handed:
        """Hand a note to clients that are here; raises Overload."""
        if self.bodies.withdrawn(note.id):
            # The word of it came by another link, and sooner.
            return Handed(0)
        parcel = self._accept(note)
        present: list[DeviceSession] = []
        absent: list[str] = []
        for client in clients:
            session = self.audience.clients.get(client)
            if session is None or session.app != note.app:
                absent.append(client)
            elif session.state is State.LIVE:
                present.append(session)
            # Others find it when they ask for what waits.
        taken = self.handings.hand_all(parcel, present, self._clock.wall_us(), came_from)
        if absent:
            self._recorder.absent(parcel.brief.told, len(absent), came_from)
        return Handed(taken, tuple(absent))

    def broadcast(self, note: Note, came_from: str = "") -> Handed:
        """Hand a topic's note to its subscribers here; raises Overload."""
        if self.bodies.withdrawn(note.id):
            return Handed(0)
        parcel = self._accept(note)
        topic = self.audience.topic(note.app, note.topic or "")
        sessions = [] if topic is None else [s for s in topic.sessions if s.state is State.LIVE]
        return Handed(self.handings.hand_all(parcel, sessions, self._clock.wall_us(), came_from))

    def close(self, op: Close) -> None:
        """End a client's connection."""
        session = self.audience.clients.get(op.client)
        if session is None:
            return
        if op.why is Why.REPLACED:
            if session.login < op.login:
                self.sessions.end(session, REPLACED)
            else:
                # Either this login is the later one, or its comet's clock goes wrong.
                self._doubts.put(session)
        elif op.why is Why.REMOVED:
            self.sessions.end(session, REMOVED)
        elif not op.digest or op.digest == session.digest:
            self.sessions.end(session, REVOKED)

    def withdraw(self, op: Withdraw) -> None:
        """Take a note back from those who have it and did not acknowledge it."""
        self.bodies.withdraw(op.note)
        self.handings.withdraw(op.note)
        self._retracting.withdraw(op)
        self.ledger.kick()

    def subscribed(self, op: Subscribed) -> None:
        """Somebody else has changed a client's topics."""
        session = self.audience.clients.get(op.client)
        if session is not None and session.app == op.app:
            self.subscribing.read_anew(session)

    def look(self) -> None:
        """Look up what waits for all who are here: something may not have come."""
        self._looking.ask()

    # Time.

    def _visit(self, session: DeviceSession) -> None:
        now, options = self.sessions.wheel.now, self.options
        if not session.known:
            self.sessions.end(session, LATE)
        elif now - session.heard >= options.idle_s:
            self.sessions.end(session, SILENT)
        elif session.expires_ms <= self._clock.wall_ms():
            self.sessions.end(session, EXPIRED)
        else:
            session.forget_done()
            self._doubts.put(session)
            self._send_again(session, now - int(options.redelivery_s))
            self._talk.maybe_more(session)
            self.sessions.wheel.put(session, self.sessions.due(session))

    def _send_again(self, session: DeviceSession, before: int) -> None:
        late = []
        for note_id, flight in (session.flights or {}).items():
            if flight.since > before:
                break
            late.append(note_id)
        if late and session.state is State.LIVE:
            self.lists.again(session, late)

    def _accept(self, note: Note) -> Parcel:
        try:
            self.handings.check()
        except Overload:
            # It waits for clients that are here.
            self._looking.ask()
            raise
        return self.bodies.keep(note)

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            self._soon(self._turn)

    def _turn(self) -> None:
        """End a tick: hand on, then write; what is left is done in the next turn."""
        self._awake = False
        more = self.handings.step() | self._retracting.step()
        if self.sessions.outboxes.flush() or more:
            self._wake()

    def _written(self, session: DeviceSession) -> None:
        self._talk.maybe_more(session)

    def _found(self, session: DeviceSession) -> None:
        """The store did not know where a client is, or the comet its topics: what was sent
        meanwhile waits."""
        session.behind = True
        self._talk.maybe_more(session)

    def _left(self, client: str, app: str) -> None:
        self.routes.leave(client, app)
