"""Stamps: when a probe came to a role and left it, and what its links took from that (R15).

    publisher         proxy           broker          gateway
    went -----------> came, went ---> came, went ---> came
          + ahead           + ahead         + ahead

Each role reads its own clock. `ahead` brings the time at one end of a link to the clock at its
other end. Publisher and gateway of a probe are one process with one clock.
"""

from __future__ import annotations

from typing import NamedTuple

from chappe.wire.rooms import Probe, RoleKind, Stamp

# Who stamps a probe until it is back, in this order.
STAMPED = (RoleKind.PUBLISHER, RoleKind.PROXY, RoleKind.BROKER)


class Delays(NamedTuple):
    """How long a probe was on each of its links, in microseconds."""

    to_proxy: int
    to_broker: int
    to_gateway: int


def stamp(
    op: Probe, name: str, role: RoleKind, came_us: int, went_us: int, ahead_us: int = 0
) -> Probe:
    """Put a role's stamp on a probe, and give it back, ready to be sent on."""
    op.stamps.append(Stamp(name, role, came_us, went_us, ahead_us))
    return op


def maybe_delays(op: Probe, came_us: int, within_us: int) -> Delays | None:
    """What the links of a probe took that is back; None if it has not been where it should.

    No link took longer than the whole way did, by a clock that does not jump: what a clock that did
    says beyond that is cut off.
    """
    if tuple(each.role for each in op.stamps) != STAMPED:
        return None
    first, proxy, broker = op.stamps
    return Delays(
        _between(first, proxy.came, within_us),
        _between(proxy, broker.came, within_us),
        _between(broker, came_us, within_us),
    )


def _between(left: Stamp, came_us: int, within_us: int) -> int:
    return min(max(came_us - left.ahead - left.went, 0), within_us)
