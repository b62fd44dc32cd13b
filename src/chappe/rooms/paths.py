"""Where rooms are in the registry (R4)."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.rooms.options import RoomsOptions


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The paths of something that has partitions."""

    root: str

    @property
    def number(self) -> str:
        """How many partitions there are."""
        return f"{self.root}/partition_num"

    @property
    def wanted(self) -> str:
        """How many there are to be; more than there are while a doubling is under way."""
        return f"{self.root}/partition_wanted"

    def row(self, partition: int) -> str:
        """The seats of a partition's replicas."""
        return f"{self.root}/partition{partition}"


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of one system of rooms, and of the routers that it uses."""

    proxies: str
    routers: str
    weights: str
    brokers: Partitioned
    independent: Partitioned


def paths_of(options: RoomsOptions) -> Paths:
    """The paths that a process goes by; independent routers may be those of another system."""
    root = f"/{options.system}"
    return Paths(
        proxies=f"{root}/proxy",
        routers=f"{root}/router",
        weights=f"{root}/weights",
        brokers=Partitioned(f"{root}/broker"),
        independent=Partitioned(f"/{options.router_system}/router"),
    )
