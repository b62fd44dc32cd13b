"""A layout of rooms on one machine: how many processes of each role."""

from __future__ import annotations

import msgspec

from chappe.errors import ConfigError
from chappe.rooms.partition import PARTITIONS_MAX, is_power_of_two

# Each of them takes some tens of megabytes, and a machine has only so many cores.
PROCESSES_MAX = 256


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What `chappe rooms up` starts. If nothing is said it is the simple one (R16)."""

    partitions: int = 1
    # Brokers of each partition.
    replicas: int = 3
    proxies: int = 1
    # Of each partition, if they have any.
    routers: int = 1
    # 0: routers are not independent (R12).
    router_partitions: int = 0
    gateways: int = 1

    def __post_init__(self) -> None:
        for name in ("replicas", "proxies", "routers", "gateways"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name}: must be at least 1")
        if not is_power_of_two(self.partitions):
            raise ConfigError(f"--partitions: must be a power of two, {PARTITIONS_MAX} at most")
        if self.router_partitions and not is_power_of_two(self.router_partitions):
            raise ConfigError(
                f"--router-partitions: must be 0 or a power of two, {PARTITIONS_MAX} at most"
            )
        if self.processes > PROCESSES_MAX:
            raise ConfigError(
                f"{self.processes} processes on one machine, where {PROCESSES_MAX} are the most"
            )

    @property
    def independent(self) -> bool:
        """Whether routers have partitions of their own."""
        return self.router_partitions > 0

    @property
    def processes(self) -> int:
        """How many there are of all roles."""
        brokers = self.partitions * self.replicas
        routers = max(1, self.router_partitions) * self.routers
        return brokers + routers + self.proxies + self.gateways
