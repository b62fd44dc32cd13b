"""What arrives where every link loses some datagrams: reliable messages beside normal ones (R13).

A message goes publisher -> proxy -> broker -> gateway, so a copy arrives with a chance of
(1 - loss) ** 3, and of three copies at least one with 1 - (1 - that) ** 3.
"""

from __future__ import annotations

import asyncio
from math import sqrt
from typing import NamedTuple

from chappe.simulation import Faults
from tests.simulation.room_layout import Layout
from tests.simulation.room_world import RoomWorld

HOPS, COPIES = 3, 3
# So far chance alone leads astray in one of 30,000 runs.
SIGMAS = 4.0
_EVERY_S = 0.02
_ROOM = ("chat", "7")


class Arrived(NamedTuple):
    """How many were sent of a kind, and how many arrived."""

    sent: int
    arrived: int

    @property
    def share(self) -> float:
        """The share that arrived."""
        return self.arrived / self.sent


def copy_chance(loss: float) -> float:
    """The chance that one copy arrives."""
    return (1 - loss) ** HOPS


def reliable_chance(loss: float) -> float:
    """The chance that of three independent copies at least one arrives."""
    return 1 - (1 - copy_chance(loss)) ** COPIES


def spread(chance: float, sent: int) -> float:
    """By how much the share of so many may be off, by chance."""
    return SIGMAS * sqrt(chance * (1 - chance) / sent)


class LossyWorld(RoomWorld):
    """One publisher and one gateway apart from each other, in clean rooms but for the loss."""

    def __init__(self, seed: int, *, loss: float, proxies: int, messages: int) -> None:
        super().__init__(seed, layout=Layout(gateways=2, proxies=proxies, replicas=3))
        self.quiet = True
        self._loss = loss
        self._messages = messages
        self.reliable = self.normal = Arrived(0, 0)

    async def _live(self) -> None:
        await self.begin()
        self.nodes["g1"].join(100, _ROOM)
        await asyncio.sleep(1)
        faults = Faults(loss=self._loss)
        self.network.set_faults(faults)
        said: dict[bool, list[int]] = {False: [], True: []}
        for _ in range(self._messages):
            for reliable in (False, True):
                publication = self.nodes["g0"].publish(_ROOM, reliable=reliable)
                assert publication is not None
                said[reliable].append(publication.id)
                # Each goes by itself: what shares a datagram is lost together.
                await asyncio.sleep(_EVERY_S)
        await asyncio.sleep(1)
        came = {receipt.id for receipt in self.nodes["g1"].crowd.receipts}
        self.normal, self.reliable = (
            Arrived(len(ids), len(came.intersection(ids))) for ids in said.values()
        )
