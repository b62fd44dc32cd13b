"""A registry as a node has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from chappe.errors import ConfigError
from chappe.registry.coordination import Coordination
from chappe.registry.membership import Membership


async def _with_its_processes() -> str | None:
    return "it forgets all it knows when it ends"


@dataclass(frozen=True, slots=True)
class Registry:
    """Who is in the cluster, and what it agrees on, if this kind of registry can do that."""

    kind: str
    membership: Membership
    coordination: Coordination | None
    # Why it may come back without what it knew; None if it keeps that on a disk.
    forgets: Callable[[], Awaitable[str | None]] = _with_its_processes

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
