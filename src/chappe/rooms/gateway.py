"""The gateway: has the members of rooms (R11).

It tells routers which rooms they are in, and hands them what brokers bring: each message once,
those of one publisher in order. How often it is told twice, or of rooms that nobody is in here, it
counts. The sessions themselves are not its business: an audience knows them.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from chappe.clock import Clock
from chappe.events.recorder import Recorder
from chappe.message import Message
from chappe.rooms.announcer import Announcer
from chappe.rooms.asking import Asking, Tell
from chappe.rooms.dedup import Dedup
from chappe.rooms.hops import Hops
from chappe.rooms.options import RoomsOptions
from chappe.rooms.order import Order
from chappe.rooms.pulse import Pulses, Tally, answer
from chappe.rooms.role import Post, Source
from chappe.rooms.roll import Roll, Seat, Seats
from chappe.rooms.routes import Routes
from chappe.wire.rooms import (
    PSEUDO_APP,
    Card,
    Confirmed,
    Counted,
    Deliver,
    Goodbye,
    Here,
    Pulse,
    Pulsed,
    RoleKind,
    RoomOp,
    State,
    Who,
)

_ROOM = "room:"
# A room that nobody is in here is denied once in so long; so many are remembered.
DENY_S = 1.0
DENIED_MAX = 4096
# How often goodbye is said, and how soon again.
GOODBYES = 3
GOODBYE_S = 0.01


class Audience(Protocol):
    """The sessions of a node that are in rooms; these are named without `room:`."""

    def count(self, app: str, room: str) -> int:
        """How many are in a room."""
        ...

    def who(self, app: str, room: str, limit: int) -> list[str]:
        """Their addresses, each as often as it has sessions there, so many at most."""
        ...

    def deliver(self, app: str, message: Message, came_from: str) -> None:
        """Hand a message to those who are in its room; it came from that node."""
        ...


def _nobody(app: str, room: str) -> None:
    """Nobody wants to know."""


def _nothing() -> None:
    """Nothing is to be done."""


class Gateway:
    """The gateway of one process: each worker has its own."""

    kind = RoleKind.GATEWAY

    def __init__(
        self,
        *,
        options: RoomsOptions,
        post: Post,
        clock: Clock,
        name: str,
        card: Card,
        audience: Audience,
        recorder: Recorder | None = None,
    ) -> None:
        self.id = card.epoch
        self.card = card
        # Told that all who have to know of a room here; and that it is time to tick.
        self.on_confirmed: Callable[[str, str], None] = _nobody
        self.on_due: Callable[[], None] = _nothing
        self.delivered = 0
        # What was left out, by cause.
        self.drops: Counter[str] = Counter()
        self._options = options
        self._post = post
        self._clock = clock
        self._name = name
        self._audience = audience
        self._hops = None if recorder is None else Hops(recorder, name, self.kind)
        self._routes = Routes(options=options, post=post, clock=clock, card=card)
        self._announcer = Announcer(
            options=options,
            post=post,
            card=card,
            routes=self._routes,
            count=self._count,
            on_confirmed=self._confirmed,
        )
        self._asking = Asking(card, post)
        self._dedup = Dedup(options.dedup_max)
        self._order = Order(options.flows_max)
        self._taken = Tally(options.peers_max)
        self._pseudo: frozenset[str] = frozenset()
        self._denied: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._goodbyes = 0
        self._goodbye_at = math.inf

    @property
    def due(self) -> float:
        """When it wants to be told the time next."""
        announcer = self._announcer.due if not self._goodbyes else self._goodbye_at
        return min(announcer, self._routes.due, self._asking.due)

    @property
    def pulses(self) -> Pulses:
        """What it knows of routers by their answers."""
        return self._routes.pulses

    @property
    def counts(self) -> dict[str, int]:
        """What it has done, and has."""
        return {
            "rooms": len(self._announcer),
            "telling": self._announcer.waiting,
            "delivered": self.delivered,
            **{f"dropped_{reason}": count for reason, count in sorted(self.drops.items())},
        }

    def joined(self, app: str, room: str, now: float) -> bool:
        """A member came; whether the room had been confirmed before."""
        if self._goodbyes:
            return False
        confirmed = self._announcer.joined(app, room, now)
        self.on_due()
        return confirmed

    def left(self, app: str, room: str, now: float) -> None:
        """A member went."""
        if not self._goodbyes:
            self._announcer.left(app, room, now)
            self.on_due()

    def confirmed(self, app: str, room: str) -> bool:
        """Whether all brokers that have to know that a room has members here."""
        return self._announcer.confirmed(app, room)

    def pseudo(self, rooms: Iterable[int]) -> None:
        """Be in these pseudo rooms, and in no others (R15)."""
        now = self._clock.monotonic()
        before, self._pseudo = self._pseudo, frozenset(map(str, rooms))
        for room in sorted(self._pseudo - before):
            self.joined(PSEUDO_APP, room, now)
        for room in sorted(before - self._pseudo):
            self.left(PSEUDO_APP, room, now)

    def ask(self, app: str, room: str, limit: int, now: float, tell: Tell) -> None:
        """Find out how many are in a room everywhere, -1 when nobody answers; and with a limit who,
        None when they are more, or not all have answered. Raises Unreachable and Overload."""
        self._asking.ask(app, room, limit, now, tell)

    def ask_by(self, living: Callable[[Seats], Sequence[Seat]]) -> None:
        """Ask by those proxies that this finds alive."""
        self._asking.living = living

    def goodbye(self, now: float) -> None:
        """Tell all routers that this gateway leaves, and nothing else from then on."""
        if not self._goodbyes:
            self._say_goodbye(now)

    def see(self, roll: Roll, now: float) -> None:
        """Take note of who is in the registry."""
        self._asking.see(roll.proxies)
        if self._routes.see(roll, now):
            self._announcer.rerouted(now)

    def receive(self, op: RoomOp, source: Source, now: float) -> None:
        """Take what another role says; what is not for a gateway is ignored."""
        if isinstance(op, Deliver):
            self._deliver(op, source, now)
        elif isinstance(op, Confirmed):
            self._confirm(op)
        elif isinstance(op, Pulse):
            self._pulse(op, source)
        elif isinstance(op, Pulsed):
            if self._routes.hear(op, now):
                self._announcer.rerouted(now)
        elif isinstance(op, Counted):
            self._asking.counted(op)
        elif isinstance(op, Here):
            self._asking.here(op)
        elif isinstance(op, Who):
            self._say_who(op)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._routes.tick(now):
            self._announcer.rerouted(now)
        if not self._goodbyes:
            self._announcer.tick(now)
        elif now >= self._goodbye_at:
            self._say_goodbye(now)
        self._asking.tick(now)

    def _count(self, app: str, room: str) -> int:
        if app == PSEUDO_APP:
            return int(room in self._pseudo)
        return self._audience.count(app, room)

    def _confirmed(self, app: str, room: str) -> None:
        # Whoever wants to know may have said so after this was made.
        self.on_confirmed(app, room)

    def _confirm(self, op: Confirmed) -> None:
        # With a router's id it is for another router, of this process.
        if op.gateway == self.card.name and op.epoch == self.card.epoch and not op.router:
            self._announcer.confirm(op.seqs)

    def _deliver(self, op: Deliver, source: Source, now: float) -> None:
        """Hand a message to the members here, once and in order."""
        self._taken.count(source.endpoint)
        app, message = op.app, op.message
        to = message.to
        if not self._audience.count(app, to[len(_ROOM) :]):
            self._deny(op, source, now)
        elif not self._dedup.first(message.id):
            self._refuse(op, source)
        elif not op.reliable and not self._order.take(
            app, to, message.id, (source.name, op.proxy, op.broker)
        ):
            self.drops["overtaken"] += 1
            if self._hops is not None:
                self._hops.dropped(app, message, "overtaken")
        else:
            self.delivered += 1
            self._audience.deliver(app, message, self._came_from(op, source))

    def _refuse(self, op: Deliver, source: Source) -> None:
        """Leave out a message that was here before, or may have been."""
        app, message = op.app, op.message
        copied = message.id in self._dedup
        self.drops["duplicate" if copied else "too_old"] += 1
        if self._hops is None:
            return
        if copied:
            self._hops.copied(app, message, self._came_from(op, source))
        else:
            self._hops.dropped(app, message, "too_old")

    def _came_from(self, op: Deliver, source: Source) -> str:
        if self._hops is not None:
            return self._hops.came_from(source.name, op.giver)
        return source.name

    def _deny(self, op: Deliver, source: Source, now: float) -> None:
        """Leave out a message that is for nobody here, and let brokers know, not too often."""
        self.drops["no_member"] += 1
        app, message = op.app, op.message
        if self._hops is not None:
            self._hops.passed(app, message, self._came_from(op, source), ())
        room = message.to.removeprefix(_ROOM)
        key = (app, room)
        if self._goodbyes or now - self._denied.get(key, -math.inf) < DENY_S:
            return
        self._denied[key] = now
        self._denied.move_to_end(key)
        if len(self._denied) > DENIED_MAX:
            self._denied.popitem(last=False)
        self._announcer.deny(app, room, now)

    def _pulse(self, op: Pulse, source: Source) -> None:
        taken = self._taken.of(source.endpoint)
        answer(self, op, source, self._post, self._clock, state=State.RUNNING, taken=taken)

    def _say_who(self, op: Who) -> None:
        members = self._audience.who(op.app, op.room, op.limit)
        here = Here(op.ask, self.card.name, members)
        self._post.send((op.card.host, op.card.port), here)

    def _say_goodbye(self, now: float) -> None:
        self._goodbyes += 1
        self._goodbye_at = now + GOODBYE_S if self._goodbyes < GOODBYES else math.inf
        self._post.send_all(self._routes.endpoints, Goodbye(self.card))
