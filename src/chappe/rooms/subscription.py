"""A broker's subscription to independent routers (R12): one replica of each partition it needs.

To ask a router for a sign of life is to subscribe to it. As long as the router that is a broker's
own does not answer, it asks the next ones as well, up to one that does.
"""

from __future__ import annotations

import math

from chappe.clock import Clock
from chappe.rooms.options import RoomsOptions
from chappe.rooms.partition import router_partitions_of
from chappe.rooms.pulse import Pulses
from chappe.rooms.role import Post
from chappe.rooms.roll import EMPTY, Roll, Seat
from chappe.wire.rooms import Pulsed, RoleKind


class Subscription:
    """Whom a broker asks to tell it of rooms."""

    def __init__(self, *, partition: int, options: RoomsOptions, post: Post, clock: Clock) -> None:
        self._pulses = Pulses(
            sender=RoleKind.BROKER,
            role=RoleKind.ROUTER,
            options=options,
            post=post,
            clock=clock,
            trust=True,
        )
        self._pulses.partition = partition
        self._linger_s = options.beat_s
        self._roll: Roll = EMPTY
        self._chosen: dict[int, Seat] = {}
        # Those that were chosen before stay until the new ones know of it.
        self._lingering: dict[int, tuple[Seat, float]] = {}
        self._version = -1

    @property
    def due(self) -> float:
        """When to tick next."""
        until = min((until for _, until in self._lingering.values()), default=math.inf)
        return min(self._pulses.due, until)

    @property
    def id(self) -> int:
        """The broker's id, as it says it."""
        return self._pulses.sender_id

    @property
    def routers(self) -> list[int]:
        """The ids of the routers that are subscribed to."""
        return sorted(self._chosen)

    def see(self, roll: Roll, id: int, modulus: int, now: float) -> None:
        """Take note of the routers, of the broker's own id, and of what it goes by."""
        self._roll = roll
        self._pulses.sender_id, self._pulses.number = id, modulus
        self._choose(now)

    def hear(self, op: Pulsed, now: float) -> None:
        """Take the answer of a router."""
        self._pulses.hear(op, now)
        if self._pulses.version != self._version:
            self._choose(now)

    def tick(self, now: float) -> None:
        """Ask, and choose another where one does not answer."""
        self._pulses.tick(now)
        over = any(until <= now for _, until in self._lingering.values())
        if over or self._pulses.version != self._version:
            self._choose(now)

    def _choose(self, now: float) -> None:
        before, self._chosen = self._chosen, {}
        for partition in self._partitions():
            self._choose_in(partition)
        for id_, seat in before.items():
            self._lingering.setdefault(id_, (seat, now + self._linger_s))
        self._lingering = {
            id_: (seat, until)
            for id_, (seat, until) in self._lingering.items()
            if until > now and id_ not in self._chosen
        }
        lingering = [seat for seat, _ in self._lingering.values()]
        self._pulses.watch([*self._chosen.values(), *lingering], now)
        self._version = self._pulses.version

    def _partitions(self) -> list[int]:
        """The router partitions that have this broker's rooms, or are to have them."""
        roll, pulses = self._roll, self._pulses
        if not roll.router_partitions or not pulses.sender_id:
            return []
        found: set[int] = set()
        for routers in (roll.router_partitions, max(roll.router_wanted, roll.router_partitions)):
            found |= {*router_partitions_of(pulses.partition, pulses.number, routers)}
        return sorted(found)

    def _choose_in(self, partition: int) -> None:
        """Choose the broker's own replica, and the next ones if it does not answer."""
        seats = [seat for seat in self._roll.independent.get(partition, ()) if seat.running]
        first = self._pulses.sender_id % len(seats) if seats else 0
        for seat in seats[first:] + seats[:first]:
            self._chosen[seat.id] = seat
            known = self._pulses.get(seat.id)
            if known is None or known.alive:
                return
