"""A registry as a node has it."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.errors import ConfigError
from chappe.registry.coordination import Coordination
from chappe.registry.membership import Membership


@dataclass(frozen=True, slots=True)
class Registry:
    """Who is in the cluster, and what it agrees on, if this kind of registry can do that."""

    kind: str
    membership: Membership
    coordination: Coordination | None

    def coordinate(self, purpose: str) -> Coordination:
        """The coordination, for something that cannot do without; raises ConfigError."""
        if self.coordination is None:
            raise ConfigError(
                f"registry: {self.kind} knows members only, and {purpose} needs values and leases:"
                " use redis:// or zookeeper://"
            )
        return self.coordination

    async def close(self) -> None:
        """Leave, release everything and let go."""
        if self.coordination is not None:
            await self.coordination.close()
        await self.membership.close()
