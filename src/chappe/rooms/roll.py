"""The roll: who takes part in rooms, as the registry has it (R4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from chappe.wire.rooms import State


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What a role says of itself in the registry."""

    # Of its node.
    name: str
    host: str
    port: int
    state: State = State.RUNNING
    # Of a broker or an independent router: it keeps the rooms with room % modulus == partition %
    # modulus. Less than the number of partitions for a while after a doubling.
    modulus: int = 0
    # What one that does not run has waited for too long; empty: nothing, or not for long.
    waits: str = ""


@dataclass(frozen=True, slots=True)
class Seat:
    """A role that is registered: its id, which the registry gave, and what it says of itself."""

    id: int
    place: Place

    @property
    def endpoint(self) -> tuple[str, int]:
        return (self.place.host, self.place.port)

    @property
    def name(self) -> str:
        return self.place.name

    @property
    def running(self) -> bool:
        return self.place.state is State.RUNNING


Seats = tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each proxy and broker is to be given, by registry id, as somebody outside has set
    it; who is not named is measured. 0 takes nothing."""

    proxies: Mapping[int, float] = field(default_factory=dict)
    brokers: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Roll:
    """All that is registered; seats are in order of their ids.

    Before anything is known of brokers, `partitions` is 0. `wanted` is more than `partitions` while
    a doubling is under way. With independent routers, `routers` is empty and
    `router_partitions` above 0.
    """

    proxies: Seats = ()
    routers: Seats = ()
    brokers: Mapping[int, Seats] = field(default_factory=dict)
    partitions: int = 0
    wanted: int = 0
    independent: Mapping[int, Seats] = field(default_factory=dict)
    router_partitions: int = 0
    router_wanted: int = 0
    weights: Weights = Weights()


EMPTY = Roll()
