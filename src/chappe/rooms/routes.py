"""Routes: which routers a gateway tells of a room (R11, R12).

One, of those that live, by the room's number. Of independent routers, one replica of each partition
that has the room: one partition, or two while they double. Who runs comes first; where nobody runs
yet, who makes ready takes it, and has it when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from chappe.clock import Clock
from chappe.rooms.options import RoomsOptions
from chappe.rooms.partition import router_of
from chappe.rooms.pulse import Pulses
from chappe.rooms.role import Endpoint, Post
from chappe.rooms.roll import EMPTY, Roll, Seat, Seats
from chappe.wire.rooms import Card, Pulsed, RoleKind, State

# Routes of different rooms are mostly the same: so many are kept once only.
_ROUTES_MAX = 4096


class Stop(NamedTuple):
    """A router."""

    id: int
    endpoint: Endpoint


Route = tuple[Stop, ...]
NOWHERE: Route = ()


class Routes:
    """The routers that a gateway may tell, as they are now."""

    def __init__(self, *, options: RoomsOptions, post: Post, clock: Clock, card: Card) -> None:
        self.pulses = Pulses(
            sender=RoleKind.GATEWAY,
            role=RoleKind.ROUTER,
            options=options,
            post=post,
            clock=clock,
        )
        self.pulses.sender_id = card.epoch
        self.pulses.card = card
        self._roll = EMPTY
        self._version = -1
        # By a room's number modulo that of partitions: the replicas of each partition that has it.
        self._live: dict[int, list[list[Stop]]] = {}
        self._modulus = 1
        self._known: dict[Route, Route] = {}

    @property
    def due(self) -> float:
        """When to tick next."""
        return self.pulses.due

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where all routers are, whether they live or not."""
        seats = (seat for seats in _seats(self._roll).values() for seat in seats)
        # In the same order in every process: a set has none.
        return list(dict.fromkeys(seat.endpoint for seat in seats))

    def see(self, roll: Roll, now: float) -> bool:
        """Take note of who is in the registry; whether routes have changed."""
        self._roll = roll
        self.pulses.number = roll.router_partitions
        self.pulses.watch((seat for seats in _seats(roll).values() for seat in seats), now)
        self._version = -1
        return self._look()

    def hear(self, op: Pulsed, now: float) -> bool:
        """Take an answer; whether routes have changed."""
        self.pulses.hear(op, now)
        return self._look()

    def tick(self, now: float) -> bool:
        """Do what is due; whether routes have changed."""
        self.pulses.tick(now)
        return self._look()

    def sent(self, stop: Stop) -> None:
        """A router was told something, which its answers are to account for."""
        self.pulses.sent(stop.id)

    def of(self, number: int) -> Route:
        """Where a room is told of; one object for all rooms that go there."""
        live = self._live.get(number % self._modulus, ())
        route = tuple(stops[router_of(number, len(stops))] for stops in live)
        if len(route) > 1:
            # Routers of one process are told together.
            route = tuple({stop.endpoint: stop for stop in reversed(route)}.values())[::-1]
        known = self._known.get(route)
        if known is None:
            if len(self._known) >= _ROUTES_MAX:
                self._known.clear()
            known = self._known[route] = route
        return known

    def _look(self) -> bool:
        if self.pulses.version == self._version:
            return False
        self._version = self.pulses.version
        before = (self._modulus, self._live)
        self._modulus = max(self._roll.router_partitions, 1)
        self._live = {}
        for partition, seats in _seats(self._roll).items():
            best = self._best(seats)
            if best:
                self._live.setdefault(partition % self._modulus, []).append(best)
        if before == (self._modulus, self._live):
            return False
        self._known.clear()
        return True

    def _best(self, seats: Seats) -> list[Stop]:
        """Those that live and run, in the order of their ids; or at least live."""
        living = self.pulses.living(seats)
        running = [seat for seat in living if self._runs(seat)]
        return [Stop(seat.id, seat.endpoint) for seat in running or living]

    def _runs(self, seat: Seat) -> bool:
        found = self.pulses.get(seat.id)
        return found is not None and found.state is State.RUNNING


def _seats(roll: Roll) -> Mapping[int, Seats]:
    return roll.independent if roll.router_partitions else {0: roll.routers}
