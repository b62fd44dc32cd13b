"""How many partitions there are and are to be, however late one learns of either."""

from __future__ import annotations

import asyncio

from chappe.registry.coordination import Coordination, Versioned
from chappe.registry.memory import MemoryRegistry
from chappe.rooms.division import Division
from chappe.rooms.options import RoomsOptions
from chappe.rooms.paths import paths_of

PATHS = paths_of(RoomsOptions()).brokers


def divided(coordination: Coordination) -> Division:
    return Division(coordination, PATHS, lease_s=1.0, changed=lambda: None, forgotten=lambda: None)


async def late() -> None:
    coordination = MemoryRegistry().open("n").coordination
    assert coordination is not None
    division = divided(coordination)
    await division._see_number(Versioned(b"2", 1))
    async with asyncio.timeout(5):
        while not all(bench.known for bench in division.benches.values()):
            await asyncio.sleep(0.01)
    # Who doubles now would not see that a doubling to these very two is to be finished.
    assert not division.known
    await division._see_wanted(Versioned(b"2", 2))
    assert division.known
    assert (division.asked, division.wanted) == (2, 2)
    await division.stop()
    await coordination.close()


# R9
def test_nothing_is_known_before_it_is_known_what_is_wanted() -> None:
    asyncio.run(late())
