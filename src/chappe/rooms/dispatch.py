"""Dispatch: hands what others say to the role of this process that it is for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chappe.rooms.role import Role, Source
from chappe.wire.rooms import (
    ANY_PARTITION,
    Announce,
    Carry,
    Confirmed,
    Count,
    Counted,
    Deliver,
    Goodbye,
    Here,
    Login,
    Noted,
    Pass,
    Probe,
    Pulse,
    Pulsed,
    RoleKind,
    RoomOp,
    Submit,
    Who,
)

# Ids of one role that are remembered.
IDS_MAX = 8


class Dispatch:
    """Knows the roles of a process; what is for none of them is counted and dropped."""

    def __init__(self) -> None:
        self.publisher: Role | None = None
        self.proxy: Role | None = None
        self.gateway: Role | None = None
        self.prober: Role | None = None
        # By partition; a plain router has none, and there is one of it.
        self.brokers: dict[int, Role] = {}
        self.routers: dict[int, Role] = {}
        self.misdirected = 0
        # Told of the signs of life that a registered role is given.
        self.meeting: dict[Role, Callable[[Pulse | Pulsed, Source, float], None]] = {}
        # By the last ids that each role had: others may not know yet that it sat down elsewhere.
        self._ids: dict[tuple[RoleKind, int], Role] = {}
        self._ways: dict[type[RoomOp], Callable[[Any, Source, float], None]] = {
            Submit: self._to_proxy,
            Carry: self._to_broker,
            Deliver: self._to_gateway,
            Announce: self._to_routers,
            Login: self._to_broker,
            Noted: self._to_routers,
            Confirmed: self._confirm,
            Pass: self._to_routers,
            Goodbye: self._part,
            Pulse: self._pulse,
            Pulsed: self._pulsed,
            Count: self._count,
            Counted: self._to_gateway,
            Who: self._to_gateway,
            Here: self._to_gateway,
            Probe: self._probe,
        }

    def roles(self) -> list[Role]:
        """All of them."""
        single = (self.publisher, self.proxy, self.gateway, self.prober)
        return [
            *(role for role in single if role is not None),
            *self.brokers.values(),
            *self.routers.values(),
        ]

    def seat(self, role: Role, number: int) -> None:
        """Give a role the id that the registry gave it."""
        role.id = number
        self._ids[role.kind, number] = role
        former = [key for key, known in self._ids.items() if known is role]
        for key in former[:-IDS_MAX]:
            del self._ids[key]

    def forget(self, role: Role) -> None:
        """Hand a role nothing any more."""
        self.meeting.pop(role, None)
        for key in [key for key, known in self._ids.items() if known is role]:
            del self._ids[key]

    def hand(self, op: RoomOp, source: Source, now: float) -> None:
        """Give something to whom it is for."""
        self._ways[type(op)](op, source, now)

    def _give(self, role: Role | None, op: RoomOp, source: Source, now: float) -> None:
        if role is None:
            self.misdirected += 1
        else:
            role.receive(op, source, now)

    def _to_proxy(self, op: RoomOp, source: Source, now: float) -> None:
        self._give(self.proxy, op, source, now)

    def _to_broker(self, op: Carry | Login, source: Source, now: float) -> None:
        self._give(self.brokers.get(op.partition), op, source, now)

    def _to_gateway(self, op: RoomOp, source: Source, now: float) -> None:
        self._give(self.gateway, op, source, now)

    def _to_routers(self, op: RoomOp, source: Source, now: float) -> None:
        # Each takes the rooms of its own partition.
        for router in self.routers.values():
            router.receive(op, source, now)

    def _confirm(self, op: Confirmed, source: Source, now: float) -> None:
        self._to_routers(op, source, now)
        if self.gateway is not None:
            self.gateway.receive(op, source, now)

    def _part(self, op: Goodbye, source: Source, now: float) -> None:
        self._to_routers(op, source, now)
        for broker in self.brokers.values():
            broker.receive(op, source, now)

    def _count(self, op: Count, source: Source, now: float) -> None:
        if op.partition == ANY_PARTITION:
            self._give(self.proxy, op, source, now)
        else:
            self._give(self.brokers.get(op.partition), op, source, now)

    def _probe(self, op: Probe, source: Source, now: float) -> None:
        stamped = {stamp.role for stamp in op.stamps}
        if RoleKind.BROKER in stamped:
            self._give(self.prober, op, source, now)
        elif RoleKind.PROXY in stamped:
            self._give(self.brokers.get(op.partition), op, source, now)
        else:
            self._give(self.proxy, op, source, now)

    def _pulse(self, op: Pulse, source: Source, now: float) -> None:
        role = self._find(op.role, op.id)
        self._meet(role, op, source, now)
        self._give(role, op, source, now)

    def _pulsed(self, op: Pulsed, source: Source, now: float) -> None:
        role = self._find(op.sender, op.sender_id)
        self._meet(role, op, source, now)
        self._give(role, op, source, now)

    def _meet(self, role: Role | None, op: Pulse | Pulsed, source: Source, now: float) -> None:
        if role in self.meeting:
            self.meeting[role](op, source, now)

    def _find(self, kind: RoleKind, number: int) -> Role | None:
        if kind is RoleKind.PUBLISHER:
            return self.publisher
        if kind is RoleKind.PROXY and not number:
            # It asks brokers before it has an id.
            return self.proxy
        if kind is RoleKind.GATEWAY:
            gateway = self.gateway
            return gateway if gateway is not None and gateway.id == number else None
        return self._ids.get((kind, number))
