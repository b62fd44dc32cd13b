"""Stamps: when a probe came to a role and left it, and what its links took from that (R15).

    publisher         proxy           broker          gateway
    went -----------> came, went ---> came, went ---> came
          + ahead           + ahead         + ahead

Each role reads its own clock. `ahead` brings the time at one end of a link to the clock at its
other end. Publisher and gateway of a probe are one process with one clock, so once around it is 0:
the publisher need not know how far a proxy's clock is ahead, and no time is found that was not
spent.
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
    ahead = first.ahead or -(proxy.ahead + broker.ahead)
    return Delays(
        _within(proxy.came - ahead - first.went, within_us),
        _within(broker.came - proxy.ahead - proxy.went, within_us),
        _within(came_us - broker.ahead - broker.went, within_us),
    )


def _within(delay_us: int, within_us: int) -> int:
    return min(max(delay_us, 0), within_us)
