"""Layouts of rooms: which processes there are, drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from chappe.wire.rooms import RoleKind
from tests.simulation.room_node import ALL, BROKER, HUB, PROXY, ROUTER

PROCESSES_MIN, PROCESSES_MAX = 5, 20


class Planned(NamedTuple):
    """A machine that is to be: its name, its roles, and what is special about its options."""

    name: str
    roles: frozenset[RoleKind]
    own: dict[str, Any]


class Layout(NamedTuple):
    """So many of each; of partitions of routers none if those are plain."""

    gateways: int = 2
    proxies: int = 1
    partitions: int = 1
    replicas: int = 3
    routers: int = 1
    router_partitions: int = 0
    # Whether a process has one broker, or router, of each partition.
    whole: bool = False
    # Processes with all roles; then there are no others.
    mixed: int = 0

    @property
    def processes(self) -> int:
        """How many there are."""
        return self.mixed or sum(1 for _ in self.machines())

    @property
    def most(self) -> int:
        """How many there are after everything has doubled once."""
        if self.whole or self.mixed:
            return self.processes
        doubled = self._replace(
            partitions=2 * self.partitions, router_partitions=2 * self.router_partitions
        )
        return doubled.processes

    def machines(self) -> Iterator[Planned]:
        """All machines."""
        if self.mixed:
            yield from (Planned(f"m{number}", ALL, {}) for number in range(self.mixed))
            return
        yield from (Planned(f"g{number}", HUB, {}) for number in range(self.gateways))
        yield from (Planned(f"p{number}", PROXY, {}) for number in range(self.proxies))
        yield from self._row(BROKER, self.partitions, self.replicas, "partition")
        if self.router_partitions:
            yield from self._row(ROUTER, self.router_partitions, self.routers, "router_partition")
        else:
            yield from (Planned(f"r{number}", ROUTER, {}) for number in range(self.routers))

    def _row(
        self, roles: frozenset[RoleKind], partitions: int, replicas: int, option: str
    ) -> Iterator[Planned]:
        letter = "b" if roles == BROKER else "r"
        if self.whole:
            yield from (Planned(f"{letter}{number}", roles, {}) for number in range(replicas))
            return
        for partition in range(partitions):
            for number in range(replicas):
                yield Planned(f"{letter}{partition}-{number}", roles, {option: partition})

    def added(self, *, routers: bool) -> list[Planned]:
        """The machines that a doubling needs besides those that there are."""
        if self.whole or self.mixed:
            return []
        if routers:
            after = self._replace(router_partitions=2 * self.router_partitions)
        else:
            after = self._replace(partitions=2 * self.partitions)
        known = {planned.name for planned in self.machines()}
        return [planned for planned in after.machines() if planned.name not in known]


SIMPLE = Layout()


def draw_layout(random: Random) -> Layout:
    """Any layout of which a doubling has 20 processes at most."""
    kind = random.random()
    if kind < 0.15:
        return SIMPLE
    if kind < 0.3:
        return Layout(mixed=random.randint(5, 6), router_partitions=random.choice([0, 0, 1, 2]))
    while True:
        layout = Layout(
            gateways=random.randint(1, 4),
            proxies=random.randint(1, 4),
            partitions=random.choice([1, 1, 2]),
            replicas=random.randint(1, 3),
            routers=random.randint(1, 2),
            router_partitions=random.choice([0, 0, 1, 2]),
            whole=random.random() < 0.4,
        )
        if layout.processes >= PROCESSES_MIN and layout.most <= PROCESSES_MAX:
            return layout
