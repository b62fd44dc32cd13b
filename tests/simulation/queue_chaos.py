"""Bad luck for a broker: its power, its process, its disk and its clients' connections."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.queue_world import QueueWorld

KINDS = {
    "crash": 3,
    "cut": 4,
    "kill": 2,
    "eio": 2,
    "full": 2,
    "slow": 2,
    "reset": 3,
}
SLOW_S = (0.02, 0.4)


class Chaos:
    """Breaks what a seed says, and mends it."""

    def __init__(self, world: QueueWorld, random: Random) -> None:
        self._world = world
        self._random = random
        self._delay_s = world.disk_s

    async def run(self, duration_s: float) -> None:
        """Bring bad luck for a while."""
        until = self._world.loop.time() + duration_s
        while self._world.loop.time() < until:
            await asyncio.sleep(self._random.expovariate(0.5))
            kind = self._random.choices(list(KINDS), list(KINDS.values()))[0]
            if not self._world.durable and kind in ("crash", "cut", "eio"):
                kind = "kill"
            await self._strike(kind)

    def end(self) -> None:
        """Mend everything."""
        self._world.fs.cut(None)
        self._world.fs.capacity = self._world.capacity
        self._world.set_disk_s(self._delay_s)

    async def _strike(self, kind: str) -> None:
        world, random = self._world, self._random
        world.trace.record("strike", what=kind)
        match kind:
            case "crash" | "kill":
                world.crash(power=kind == "crash")
            case "cut":
                # Within a write, a roll, a trim, or the recovery that comes next.
                if random.random() < 0.5:
                    world.fs.cut(random.randint(1, 40))
                else:
                    world.fs.cut(random.randint(1, 10), syncs=True)
            case "eio":
                await self._fail()
            case "full":
                world.fs.capacity = world.capacity - world.fs.room() + random.randint(0, 3_000)
                await asyncio.sleep(random.uniform(0.5, 3))
                world.fs.capacity = world.capacity
                if world.node is not None and world.node.journal.broken:
                    # Somebody else took even the room it had set apart: started again by hand.
                    world.crash(power=False)
            case "slow":
                world.set_disk_s(SLOW_S)
                await asyncio.sleep(random.uniform(0.5, 3))
                world.set_disk_s(self._delay_s)
            case "reset":
                streams = world.network.streams_of("node")
                if streams:
                    world.network.reset(random.choice(streams))

    async def _fail(self) -> None:
        """A broken disk: the node takes nothing any more, until somebody starts it again."""
        world, random = self._world, self._random
        world.fs.fail_sync(random.randint(1, 3))
        await asyncio.sleep(random.uniform(0.5, 3))
        world.crash(power=random.random() < 0.5)
