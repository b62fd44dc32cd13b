"""Forgeries: datagrams whose MAC is wrong, by where they come from.

Most often nobody forges anything: a process has another secret than the others, or is reached at
another address than it says, and nothing that it sends is ever believed. Its log, and theirs, is
where somebody will look. Anybody can send such datagrams, so few lines are written of them.
"""

from __future__ import annotations

import math
from collections import OrderedDict

import structlog

from chappe.rooms.outbox import Address
from chappe.rooms.role import Endpoint

log = structlog.get_logger()

# One may be an accident; so many without one that is right are not.
_ENOUGH = 3
# How often one line follows another, and another one of the same sender.
_EVERY_S = 10.0
_AGAIN_S = 600.0
_SENDERS_MAX = 64


class Forgeries:
    """Tells of those who send nothing else."""

    def __init__(self, me: Endpoint) -> None:
        self._me = f"{me[0]}:{me[1]}"
        # How many came of each, and when it was told of; who came longest ago is first.
        self._of: OrderedDict[Address, tuple[int, float]] = OrderedDict()
        self._told = -math.inf

    def __bool__(self) -> bool:
        return bool(self._of)

    def came(self, source: Address, now: float) -> None:
        """A datagram was not what it says it is."""
        count, told = self._of.pop(source, (0, -math.inf))
        if len(self._of) >= _SENDERS_MAX:
            self._of.popitem(last=False)
        count += 1
        if count >= _ENOUGH and now - told >= _AGAIN_S and now - self._told >= _EVERY_S:
            told = self._told = now
            log.warning(
                "rooms.secret",
                reason=f"datagrams from {source[0]}:{source[1]} fail their MAC: does it have the "
                f"same cluster.secret and cluster.cluster, and send to {self._me}?",
                datagrams=count,
            )
        self._of[source] = (count, told)

    def believe(self, source: Address) -> None:
        """One of its datagrams is right: the others were an accident, or another's."""
        self._of.pop(source, None)
