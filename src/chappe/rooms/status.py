"""How rooms do, as one process sees it: who is registered, who answers, what it does itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from chappe.rooms.dispatch import Dispatch
from chappe.rooms.options import RoomsOptions
from chappe.rooms.pulse import Neighbour, Pulses
from chappe.rooms.role import Role
from chappe.rooms.roll import Roll, Seat, Seats, Weights
from chappe.wire.rooms import RoleKind, State

_UNREGISTERED = frozenset((RoleKind.PUBLISHER, RoleKind.GATEWAY))


class Replica(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A proxy, a broker or a router, as the registry has it and as this process knows it."""

    role: str
    id: int
    node: str
    host: str
    port: int
    state: str
    # Of a broker, or of an independent router.
    partition: int | None = None
    # What was set from outside; else it is measured.
    weight: float | None = None
    # Whether it answers; none: nobody here asks it.
    alive: bool | None = None
    # Of the signs of life that were asked for, the share that came; how long they took.
    success: float | None = None
    round_trip_ms: float | None = None
    clock_offset_ms: float | None = None


class OwnRole(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What this process does, and how much of it."""

    role: str
    # None of who is not registered: publishers and gateways.
    id: int | None = None
    state: str
    partition: int | None = None
    # Rooms, members, messages, ...: as the role counts them.
    load: dict[str, int] = {}


class RoomsStatus(msgspec.Struct, kw_only=True):
    """How rooms do, as one process sees it."""

    node: str
    system: str
    balance: str
    partitions: int
    # More than `partitions` while a doubling is under way.
    wanted: int
    independent_routers: bool
    router_partitions: int
    router_wanted: int
    roles: list[OwnRole]
    proxies: list[Replica]
    brokers: list[Replica]
    routers: list[Replica]


class Watched(Protocol):
    """A process, as far as its status goes."""

    options: RoomsOptions
    name: str
    dispatch: Dispatch

    @property
    def roll(self) -> Roll:
        """Who takes part."""
        ...


def status_of(process: Watched) -> RoomsStatus:
    """How rooms do, as this process sees it."""
    roll, options, dispatch = process.roll, process.options, process.dispatch
    known = _Known(dispatch, independent=options.independent_routers)
    replicas = [known.tell(each, roll.weights) for each in replicas_of(roll)]
    return RoomsStatus(
        node=process.name,
        system=options.system,
        balance=options.balance,
        partitions=roll.partitions,
        wanted=roll.wanted,
        independent_routers=options.independent_routers,
        router_partitions=roll.router_partitions,
        router_wanted=roll.router_wanted,
        roles=[_own(role) for role in dispatch.roles() if role is not dispatch.prober],
        proxies=[each for each in replicas if each.role == "proxy"],
        brokers=[each for each in replicas if each.role == "broker"],
        routers=[each for each in replicas if each.role == "router"],
    )


def replicas_of(roll: Roll) -> list[Replica]:
    """All that are registered."""
    rows: list[tuple[RoleKind, int | None, Seats]] = [
        (RoleKind.PROXY, None, roll.proxies),
        (RoleKind.ROUTER, None, roll.routers),
        *((RoleKind.BROKER, partition, seats) for partition, seats in roll.brokers.items()),
        *((RoleKind.ROUTER, partition, seats) for partition, seats in roll.independent.items()),
    ]
    return [_replica(kind, partition, seat) for kind, partition, seats in rows for seat in seats]


def counts_of(role: Role) -> Mapping[str, int]:
    """What a role has and did, if it counts that."""
    counts: Mapping[str, int] = getattr(role, "counts", {})
    return counts


def partition_of_role(role: Role) -> int | None:
    """The partition of a role that has one."""
    partition: int | None = getattr(role, "partition", None)
    return partition


class _Known:
    """What the roles of this process know of others by their answers."""

    def __init__(self, dispatch: Dispatch, *, independent: bool) -> None:
        self._askers: dict[str, list[Role]] = {
            "proxy": [role for role in (dispatch.publisher,) if role is not None],
            "broker": [
                *(role for role in (dispatch.proxy,) if role is not None),
                # Independent ones ask each other.
                *(() if independent else dispatch.routers.values()),
            ],
            "router": [role for role in (dispatch.gateway,) if role is not None],
        }

    def tell(self, replica: Replica, weights: Weights) -> Replica:
        """Add what is known to what the registry says."""
        by_role = {"proxy": weights.proxies, "broker": weights.brokers}
        replica.weight = by_role.get(replica.role, {}).get(replica.id)
        neighbour = self._maybe_find(replica)
        if neighbour is not None:
            replica.alive = neighbour.alive
            replica.success = round(neighbour.success, 4)
            replica.round_trip_ms = round(neighbour.round_trip_s * 1_000, 3)
            replica.clock_offset_ms = neighbour.ahead_us / 1_000
        return replica

    def _maybe_find(self, replica: Replica) -> Neighbour | None:
        for asker in self._askers[replica.role]:
            pulses = getattr(asker, "pulses", None)
            if isinstance(pulses, Pulses) and (found := pulses.get(replica.id)) is not None:
                return found
        return None


def _replica(kind: RoleKind, partition: int | None, seat: Seat) -> Replica:
    host, port = seat.endpoint
    return Replica(
        role=kind.name.lower(),
        id=seat.id,
        node=seat.name,
        host=host,
        port=port,
        state=seat.place.state.name.lower(),
        partition=partition,
    )


def _own(role: Role) -> OwnRole:
    state: State = getattr(role, "state", State.RUNNING)
    return OwnRole(
        role=role.kind.name.lower(),
        # A gateway's is its epoch, which is more than a number of JSON may be in browsers.
        id=None if role.kind in _UNREGISTERED else role.id,
        state=state.name.lower(),
        partition=partition_of_role(role),
        load=dict(counts_of(role)),
    )
