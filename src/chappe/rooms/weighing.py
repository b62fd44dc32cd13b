"""Setting weights: how much each proxy and broker is given, as somebody outside has found (R6)."""

from __future__ import annotations

import msgspec

from chappe.errors import ClusterError, Conflict, Overload
from chappe.registry.coordination import Coordination
from chappe.rooms.roll import Weights

# Others that write at the same time; more than that is no accident.
_TRIES = 5


async def set_weights(coordination: Coordination, path: str, weights: Weights) -> None:
    """Write weights in place of those that are there; raises Overload when the registry is away."""
    value = msgspec.json.encode(weights)
    try:
        found = await coordination.get(path)
        for _ in range(_TRIES):
            try:
                await coordination.put(path, value, None if found is None else found.version)
            except Conflict:
                found = await coordination.get(path)
            else:
                return
    except ClusterError as error:
        raise Overload(f"rooms: the registry took no weights: {error}") from None
    raise Overload("rooms: others set weights too; try again")
