"""Bad luck for a simulated cluster: what breaks, and its end."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from chappe.errors import ClusterError
from chappe.simulation import Faults

if TYPE_CHECKING:
    from tests.simulation.cluster_world import ClusterWorld

NODES_MAX = 7
CALM = Faults()
SLOW = Faults(latency_s=(0.2, 1.5), bytes_per_s=20_000, stall=0.05)
KINDS = {
    "halves": 3,
    "one-way": 2,
    "registry": 2,
    "vanish": 2,
    "kill": 2,
    "pause": 3,
    "slow": 2,
    "reset": 3,
    "leave": 1,
    "join": 1,
    "client": 2,
    "heal": 5,
}


class Chaos:
    """Breaks what a seed says, and mends it."""

    def __init__(self, world: ClusterWorld, random: Random) -> None:
        self._world = world
        self._random = random
        self._repairs: dict[asyncio.Task[None], None] = {}
        self._cut: set[str] = set()
        self._over = asyncio.Event()

    async def run(self, duration_s: float) -> None:
        """Bring bad luck for a while."""
        until = self._world.loop.time() + duration_s
        while self._world.loop.time() < until:
            await asyncio.sleep(self._random.expovariate(0.35))
            kind = self._random.choices(list(KINDS), list(KINDS.values()))[0]
            self._strike(kind)

    async def end(self) -> None:
        """Mend everything; nodes that are down start."""
        world = self._world
        self._over.set()
        self._heal()
        world.network.set_faults(CALM)
        if self._repairs:
            await asyncio.wait(list(self._repairs))
        for repair in self._repairs:
            repair.result()
        await asyncio.gather(*(world.start(n) for n in world.machines if n not in world.nodes))

    def _heal(self) -> None:
        self._world.network.heal()
        self._world.network.set_faults(self._world.network.faults)
        for name in sorted(self._cut):
            self._world.registry.heal(name)
        self._cut.clear()

    def _strike(self, kind: str) -> None:
        names = sorted(name for name, node in self._world.nodes.items() if node.up)
        self._world.trace.record("strike", what=kind)
        one = self._random.choice(names)
        if kind in ("halves", "one-way", "slow", "client", "reset", "heal"):
            self._break_network(kind, one, names)
        else:
            self._break_node(kind, one, names)

    def _break_network(self, kind: str, one: str, names: list[str]) -> None:
        network, random = self._world.network, self._random
        match kind:
            case "halves":
                side = set(random.sample(names, random.randint(1, max(1, len(names) // 2))))
                network.partition(sorted(side), [n for n in names if n not in side])
            case "one-way":
                others = [name for name in names if name != one]
                network.partition([one], others[:2], both_ways=False)
            case "slow":
                for other in names:
                    network.link(one, other).faults = SLOW
            case "client":
                device = random.choice(self._world.devices)
                network.partition([device.name], some_of(random, names))
            case "reset" if network.streams:
                network.reset(random.choice(list(network.streams)))
            case "heal":
                self._heal()

    def _break_node(self, kind: str, one: str, names: list[str]) -> None:
        world, random = self._world, self._random
        match kind:
            case "registry":
                world.registry.cut(one)
                self._cut.add(one)
            case "vanish" | "kill" if len(names) > 1:
                world.crash(one, power=kind == "vanish")
                self._later(self._restart(one, random.expovariate(0.1)))
            case "pause":
                self._later(self._pause(one, random.uniform(1, 30)))
            case "leave" if len(names) > 2:
                self._later(self._leave(one, random.expovariate(0.1)))
            case "join" if len(world.machines) < NODES_MAX:
                self._later(self._restart(world.add_machine(len(world.machines)), 0))

    def _later(self, repair: object) -> None:
        task: asyncio.Task[None] = self._world.loop.create_task(repair)  # type: ignore[arg-type]
        self._repairs[task] = None

    async def _rest(self, delay_s: float) -> None:
        """Wait a while, but not beyond the end of all this."""
        try:
            async with asyncio.timeout(delay_s):
                await self._over.wait()
        except TimeoutError:
            pass

    async def _restart(self, name: str, delay_s: float) -> None:
        """Start a node, again and again if it can link nobody, as whoever looks after it would."""
        world = self._world
        await self._rest(delay_s)
        while name not in world.nodes:
            try:
                await world.start(name)
            except ClusterError:
                await world.give_up(name)
                await asyncio.sleep(1)

    async def _pause(self, name: str, duration_s: float) -> None:
        world = self._world
        node = world.nodes[name]
        world.trace.record("pause", node=name)
        world.loop.stop_process(node.process)
        await self._rest(duration_s)
        if not node.crashed:
            world.trace.record("resume", node=name)
            world.loop.resume_process(node.process)

    async def _leave(self, name: str, delay_s: float) -> None:
        await self._world.drain(name)
        await self._restart(name, delay_s)


def some_of(random: Random, names: list[str]) -> list[str]:
    """A part of the names, not none."""
    return random.sample(names, random.randint(1, len(names)))
