"""The lobby: rooms as the sessions of a hub see them.

Sessions join, leave, publish and ask who is there; the gateway asks here who its members are, and
hands over what is for them. A member is in the hub's connection table, and gets what its room
brings by the hub's fan-out, as the subscriber of a topic does.

A join is answered once all brokers that have to know of this node's share of the room. Whoever was
in a room before has had that answer: the next one is answered at once. Messages may come before it.
Who asks again meanwhile waits along.

    session: join --> bound, announced ... confirmed --> ok
                                       ... too late  --> unreachable, and not joined
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from chappe.address import parse_address
from chappe.errors import BadRequest, Overload, RequestError, Unreachable
from chappe.hub.deadline import Timer
from chappe.hub.grant import EVERYTHING
from chappe.hub.permission import check_kind, permit
from chappe.message import Message
from chappe.rooms.options import RoomsOptions
from chappe.rooms.partition import room_number
from chappe.rooms.pending import PendingJoin, PendingJoins
from chappe.wire.ops import Join, Leave, Members, Op, Presence, Publish, Reply

if TYPE_CHECKING:
    from chappe.hub.app import App
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session

_PREFIX = "room:"
# Rooms whose numbers are remembered: to hash a name costs more than the rest of a publish.
_NUMBERS_MAX = 65_536
# Most sessions are in few rooms: a tuple of those costs a quarter of a set.
_TUPLE_MAX = 8


class Publishing(Protocol):
    """Takes messages to rooms: the publisher."""

    def publish(self, app: str, message: Message, number: int, reliable: bool, now: float) -> None:
        """Send a message on its way; raises Unreachable when no proxy can take it."""
        ...


class Announcing(Protocol):
    """Tells others which rooms are here: the gateway."""

    # Told that all who have to know of a room here, by app and name.
    on_confirmed: Callable[[str, str], None]

    def joined(self, app: str, room: str, now: float) -> bool:
        """A member came; whether the room had been confirmed before."""
        ...

    def left(self, app: str, room: str, now: float) -> None:
        """A member went."""
        ...

    def ask(
        self,
        app: str,
        room: str,
        limit: int,
        now: float,
        tell: Callable[[int, list[str] | None], None],
    ) -> None:
        """Ask how many are in a room everywhere, and who; -1 when nobody answered.

        Raises Unreachable or Overload when nobody can be asked now.
        """
        ...


class Lobby:
    """The rooms of the sessions of one hub."""

    def __init__(self, hub: Hub, options: RoomsOptions, timer: Timer) -> None:
        self._hub = hub
        self._options = options
        self._fanout = hub.fanout
        self._outboxes = hub.outboxes
        self._next_id = hub.ids.next
        self._publisher: Publishing | None = None
        self._gateway: Announcing | None = None
        # What who asks for a room is told while there are none.
        self.refusal = "this node serves no rooms"
        self._number_of = lru_cache(_NUMBERS_MAX)(_number_of)
        self._pending = PendingJoins(timer, options.join_timeout_s, self._late)
        # Rooms that somebody is in here, and how often somebody is in one.
        self.rooms = 0
        self.members = 0
        hub.on_left.append(self.session_left)

    def handlers(self) -> dict[type[Op], Callable[[Session, Any], None]]:
        """What sessions may say of rooms; a `publish` to one comes to `publish`."""
        return {Join: self.join, Leave: self.leave, Members: self.ask_members}

    def open(self, publisher: Publishing, gateway: Announcing | None) -> None:
        """Serve rooms; without a gateway one may publish to them, and not be in one."""
        self._publisher = publisher
        self._gateway = gateway
        if gateway is not None:
            gateway.on_confirmed = self.confirmed

    def close(self) -> None:
        """Serve none any more: who waits is told so, who is in one hears nothing from it."""
        self._publisher = self._gateway = None
        for join in self._pending.stop():
            self._give_up(join, self._closed())

    def _closed(self) -> Unreachable:
        if self._publisher is not None:
            return Unreachable("to: this node has no gateway, and so no members of rooms")
        return Unreachable(f"to: {self.refusal}")

    def publish(self, session: Session, op: Publish) -> None:
        """Send a message to all members of a room, wherever they are; answered with its id."""
        to, hub = op.to, self._hub
        scope = session.grant.publish
        if scope is not EVERYTHING:
            permit(scope, "publish to", to)
        number = self._number_of(to)
        payload, binary = hub.take(session, op)
        if len(payload) > self._options.message_bytes_max:
            raise BadRequest(
                f"data: {len(payload)} bytes, {self._options.message_bytes_max} are allowed in a"
                " room (rooms.message_bytes_max)"
            )
        if self._publisher is None:
            raise self._closed()
        message = Message(self._next_id(), session.address, to, hub.now_ms, payload, binary)
        now = hub.clock.monotonic()
        self._publisher.publish(session.app.name, message, number, op.reliable, now)
        if op.id is not None:
            self._outboxes.put(session, session.encoding.accepted(op.id, message.id))

    def join(self, session: Session, op: Join) -> None:
        """Let a session receive what is published to a room; answered when all brokers know."""
        to = sys.intern(op.to)  # one text for all its members
        permit(session.grant.subscribe, "join", to)
        check_kind(to, "room")
        if self._gateway is None:
            raise self._closed()
        pending = self._pending.get(session, to)
        if pending is not None:
            pending.also(op.id)
            return
        if session not in (session.app.rooms.get(to) or ()):
            self._check_bounds(session, to)
            if session.allowances is not None:
                session.allowances.spend(0)
            if not self._enter(session, to):
                self._pending.add(session, to, op.id)
                return
        if op.id is not None:
            self._outboxes.put(session, session.encoding.ok(op.id))

    def _check_bounds(self, session: Session, to: str) -> None:
        options = self._options
        if len(session.rooms) >= options.joins_max:
            raise Overload(f"a session is in at most {options.joins_max} rooms")
        if self.rooms >= options.rooms_max and to not in session.app.rooms:
            raise Overload(f"this node has members of {options.rooms_max} rooms already")

    def _enter(self, session: Session, to: str) -> bool:
        """Bind a session to a room; whether the room had been confirmed before."""
        rooms = session.app.rooms
        self._fanout.end()
        self.rooms += to not in rooms
        self.members += 1
        rooms.bind(to, session)
        session.rooms = _with(session.rooms, to)
        assert self._gateway is not None
        now = self._hub.clock.monotonic()
        return self._gateway.joined(session.app.name, _name(to), now)

    def confirmed(self, app: str, room: str) -> None:
        """All who have to know of a room here: whoever waits for that has joined."""
        for join in self._pending.take(app, _PREFIX + room):
            session = join.session
            for request in join.requests:
                if request is not None:
                    self._outboxes.put(session, session.encoding.ok(request))

    def _late(self, join: PendingJoin) -> None:
        reason = f"to: {join.room} was not confirmed by its brokers in time"
        self._give_up(join, Unreachable(reason))

    def _give_up(self, join: PendingJoin, error: RequestError) -> None:
        """A join comes to nothing."""
        self._exit(join.session, join.room)
        for request in join.requests:
            self._hub.refuse(join.session, request, error)

    def leave(self, session: Session, op: Leave) -> None:
        """Let a session receive no more of a room."""
        check_kind(op.to, "room")
        join = self._pending.get(session, op.to)
        if join is not None:
            self._give_up(join, Unreachable(f"to: {op.to} was left before it was joined"))
        else:
            self._exit(session, op.to)
        if op.id is not None:
            self._outboxes.put(session, session.encoding.ok(op.id))

    def session_left(self, session: Session) -> None:
        """A session has gone: it is in no room any more."""
        for to in tuple(session.rooms):
            self._exit(session, to)

    def _exit(self, session: Session, to: str) -> None:
        app = session.app
        self._fanout.end()
        if not app.rooms.unbind(to, session):
            return
        join = self._pending.get(session, to)
        if join is not None:
            self._pending.remove(join)
        session.rooms = _without(session.rooms, to)
        self.members -= 1
        self.rooms -= to not in app.rooms
        if self._gateway is not None:
            self._gateway.left(app.name, _name(to), self._hub.clock.monotonic())

    def ask_members(self, session: Session, op: Members) -> None:
        """Tell how many are in a room, anywhere; with `n`, and no more than that, also who."""
        to, most = op.to, self._options.who_max
        permit(session.grant.subscribe, "ask who is in", to)
        check_kind(to, "room")
        if not 0 <= op.n <= most:
            raise BadRequest(f"n: must be between 0 and {most}")
        if session.allowances is not None:
            session.allowances.spend(0)
        self._ask(session, op, op.n)

    def presence(self, session: Session, op: Presence) -> None:
        """A room is there while somebody is in it. Whoever hands this on has let it count as a
        message, as presence of any kind does."""
        if op.to not in session.app.rooms:
            self._ask(session, op, None)
        elif op.id is not None:
            self._hub.answer(session, Reply(id=op.id, ok=True, online=True))

    def _ask(self, session: Session, op: Members | Presence, names: int | None) -> None:
        """Ask everybody; without `names`, only whether anybody is there."""
        hub, request = self._hub, op.id
        if self._gateway is None:
            raise self._closed()
        if request is None:
            return

        def tell(count: int, members: list[str] | None) -> None:
            if count < 0:
                error = Unreachable(f"to: no broker of {op.to} answered in time")
                hub.refuse(session, request, error)
            elif names is None:
                hub.answer(session, Reply(id=request, ok=True, online=count > 0))
            else:
                told = members if names else None
                hub.answer(session, Reply(id=request, ok=True, n=count, members=told))

        now = hub.clock.monotonic()
        self._gateway.ask(session.app.name, _name(op.to), names or 0, now, tell)

    def count(self, app: str, room: str) -> int:
        """How many sessions on this node are in a room."""
        return len(self._here(app, _PREFIX + room))

    def who(self, app: str, room: str, limit: int) -> list[str]:
        """Their addresses, each as often as it has sessions there, so many at most."""
        members = self._here(app, _PREFIX + room)
        return [session.address for session in islice(members, limit)]

    def _here(self, name: str, to: str) -> Collection[Session]:
        app = self._hub.apps.get(name)
        return () if app is None else app.rooms.get(to) or ()

    def deliver(self, app: str, message: Message, came_from: str) -> None:
        """Hand a message to the members on this node; it came from that node, or from here."""
        hub, to, fanout = self._hub, message.to, self._fanout
        found = hub.apps.get(app)
        if found is None:
            return
        if not (
            to == fanout.to
            and found is fanout.app
            and fanout.foreign
            and came_from == fanout.came_from
        ):
            members = found.rooms.get(to)
            if members is None:
                return
            if not hub.ticking:
                hub.begin_tick()
            self._begin(found, to, members, came_from)
        fanout.add(message, None)

    def _begin(self, app: App, to: str, members: Collection[Session], came_from: str) -> None:
        fanout = self._fanout
        before, fanout.origin = fanout.origin, came_from
        try:
            # No message of a session joins it unseen: each goes by its room's broker.
            fanout.begin(app, to, members, promised=False, foreign=True)
        finally:
            fanout.origin = before


def _with(rooms: Collection[str], to: str) -> Collection[str]:
    if isinstance(rooms, set):
        rooms.add(to)
        return rooms
    return (*rooms, to) if len(rooms) < _TUPLE_MAX else {*rooms, to}


def _without(rooms: Collection[str], to: str) -> Collection[str]:
    if isinstance(rooms, set):
        rooms.discard(to)
        return rooms
    return tuple(room for room in rooms if room != to)


def _name(to: str) -> str:
    return to[len(_PREFIX) :]


def _number_of(to: str) -> int:
    """The number of the room at an address; raises BadRequest if it is none's."""
    address = parse_address(to)
    if address.kind != "room":
        raise BadRequest(f"to: a room is meant here, not a {address.kind}")
    return room_number(address.name)
