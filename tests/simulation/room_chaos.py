"""Bad luck for simulated rooms: what breaks, and its end."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from chappe.simulation import Faults
from tests.simulation.room_node import LOGINS, MESSAGES, Kinds

if TYPE_CHECKING:
    from tests.simulation.room_world import RoomWorld

CALM = Faults()
SLOW = Faults(latency_s=(0.1, 0.8), loss=0.1)
LOSS_MAX = 0.3
KINDS = {
    "halves": 2,
    "one-way": 2,
    "lossy": 2,
    "slow": 2,
    "crash": 4,
    "drain": 2,
    "pause": 3,
    "deaf": 3,
    "cut": 2,
    "cut-all": 1,
    "forget": 1,
    "registry-slow": 2,
    "store": 1,
    "double": 2,
    "double-routers": 2,
    "withdraw": 1,
    "heal": 4,
}


def draw_faults(random: Random) -> Faults:
    """Some links lose much, some nothing; some double, some mix up the order."""
    least_s = random.uniform(0.0001, 0.005)
    return Faults(
        latency_s=(least_s, least_s + random.choice([0.001, random.uniform(0.001, 0.1)])),
        loss=random.choice([0.0, random.uniform(0, 0.1), random.uniform(0, LOSS_MAX)]),
        duplicate=random.choice([0.0, random.uniform(0, 0.3)]),
    )


class Chaos:
    """Breaks what a seed says, and mends it."""

    def __init__(self, world: RoomWorld, random: Random) -> None:
        self._world = world
        self._random = random
        self._repairs: dict[asyncio.Task[None], None] = {}
        self._doublings: dict[asyncio.Task[object], None] = {}
        self._cut: set[str] = set()
        self._over = asyncio.Event()

    async def run(self, duration_s: float) -> None:
        """Bring bad luck for a while."""
        until = self._world.loop.time() + duration_s
        while self._world.loop.time() < until:
            await asyncio.sleep(self._random.expovariate(0.8))
            kind = self._random.choices(list(KINDS), list(KINDS.values()))[0]
            self._world.trace.record("strike", what=kind)
            self._strike(kind)

    async def end(self) -> None:
        """Mend everything; processes that are down start."""
        world = self._world
        self._over.set()
        self._heal()
        world.network.set_faults(CALM)
        for doubling in self._doublings:
            # Whoever runs the tool loses patience, and somebody goes on with it another day.
            doubling.cancel()
        waiting = [*self._repairs, *self._doublings]
        if waiting:
            await asyncio.wait(waiting)
        for repair in self._repairs:
            repair.result()
        if len(world.hubs) > 1 and self._random.random() < 0.4:
            world.retire(self._random.choice(world.hubs).name)
        down = [name for name in world.machines if name not in world.nodes]
        await asyncio.gather(*(world.start(name) for name in down))

    def _heal(self) -> None:
        world = self._world
        world.network.heal()
        world.network.set_faults(world.network.faults)
        world.registry.slow_down((0.0, 0.0))
        world.store.away = False
        for name in sorted(self._cut):
            world.registry.heal(name)
        self._cut.clear()

    def _strike(self, kind: str) -> None:
        names = sorted(name for name, node in self._world.nodes.items() if node.up)
        if not names:
            return
        one = self._random.choice(names)
        if kind in ("halves", "one-way", "lossy", "slow", "heal"):
            self._break_network(kind, one, names)
        elif kind in ("crash", "drain", "pause", "deaf"):
            self._break_process(kind, one)
        else:
            self._break_what_all_share(kind, one, names)

    def _break_network(self, kind: str, one: str, names: list[str]) -> None:
        network, random = self._world.network, self._random
        match kind:
            case "halves":
                side = set(random.sample(names, random.randint(1, max(1, len(names) // 2))))
                network.partition(sorted(side), [name for name in names if name not in side])
            case "one-way":
                others = [name for name in names if name != one]
                some = random.sample(others, random.randint(0, len(others)))
                network.partition([one], some, both_ways=False)
            case "lossy" | "slow":
                faults = SLOW if kind == "slow" else Faults(loss=random.uniform(0.1, 0.9))
                for other in names:
                    network.link(one, other).faults = faults
            case "heal":
                self._heal()

    def _break_process(self, kind: str, one: str) -> None:
        random, world = self._random, self._world
        match kind:
            case "crash":
                world.crash(one)
                self._later(self._restart(one, random.expovariate(0.3)))
            case "drain":
                self._later(self._leave(one, random.expovariate(0.3)))
            case "pause":
                self._later(self._pause(one, random.uniform(0.5, 12)))
            case "deaf":
                kinds = random.choice([MESSAGES, LOGINS])
                self._later(self._deafen(one, kinds, random.uniform(2, 8)))

    def _break_what_all_share(self, kind: str, one: str, names: list[str]) -> None:
        random, world = self._random, self._world
        match kind:
            case "cut":
                self._cut_off([one])
            case "cut-all":
                self._cut_off([*names, "tool"])
            case "forget":
                world.registry.forget()
            case "registry-slow":
                world.registry.slow_down((0.0, random.uniform(0.01, 1.0)))
            case "store":
                world.store.away = True
            case "double":
                self._double(routers=False)
            case "double-routers" if world.layout.router_partitions:
                self._double(routers=True)
            case "withdraw":
                routers = bool(world.layout.router_partitions) and random.random() < 0.5
                self._later(world.withdraw(routers=routers))

    def _cut_off(self, names: list[str]) -> None:
        for name in names:
            self._world.registry.cut(name)
            self._cut.add(name)

    def _double(self, *, routers: bool) -> None:
        """Once, or go on with it: more partitions than twice as many need too many machines."""
        world = self._world
        if any(not doubling.done() for doubling in self._doublings) or world.doubled(routers):
            return
        doubling = world.double(routers=routers, timeout_s=self._random.uniform(1, 15))
        self._doublings[world.loop.create_task(doubling)] = None

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
        await self._rest(delay_s)
        if name not in self._world.nodes:
            await self._world.start(name)

    async def _pause(self, name: str, duration_s: float) -> None:
        world = self._world
        node = world.nodes[name]
        world.trace.record("pause", life=node.life)
        world.loop.stop_process(node.process)
        await self._rest(duration_s)
        if not node.crashed:
            world.trace.record("resume", life=node.life)
            world.loop.resume_process(node.process)

    async def _deafen(self, name: str, kinds: Kinds, duration_s: float) -> None:
        """R5: let a process answer beats, and move nothing of some kinds."""
        node = self._world.nodes[name]
        node.deaf_to.update(kinds)
        await self._rest(duration_s)
        node.deaf_to.subtract(kinds)

    async def _leave(self, name: str, delay_s: float) -> None:
        await self._world.drain(name)
        await self._restart(name, delay_s)
