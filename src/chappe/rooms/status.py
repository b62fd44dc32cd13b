"""How rooms do, as one process sees it: who is registered, who answers, what it does itself."""

from __future__ import annotations

import msgspec


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
    id: int
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
