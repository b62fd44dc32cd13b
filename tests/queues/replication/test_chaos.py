"""Q10: nodes are killed, stopped, cut off, and the registry too; nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

import pytest

from chappe.simulation.simulation import seeds
from tests.queues.replication.village import Village, Villager, village

ROUNDS = 12
# A few in every run, many for the proof.
PROOF = os.environ.get("CHAPPE_PROOF") == "full"


class Chaos:
    """Producers that append, and somebody who breaks things; then all is healed and looked at."""

    def __init__(self, place: Village, random: Random) -> None:
        self.place = place
        self.random = random
        self.acked: list[int] = []
        self.unknown: set[int] = set()
        self.refused: set[int] = set()
        self._value = 0
        self._over = False

    async def run(self) -> None:
        for name in ("a", "b", "c"):
            await self.place.add(name)
        await self.place.master()
        producers = [asyncio.create_task(self._produce()) for _ in range(3)]
        for _ in range(ROUNDS):
            await asyncio.sleep(self.random.uniform(0.1, 3.0))
            await self._break()
        await self._heal()
        self._over = True
        await asyncio.gather(*producers)

    async def _produce(self) -> None:
        while not self._over:
            await asyncio.sleep(self.random.uniform(0.01, 0.3))
            masters = [node for _, node in sorted(self.place.nodes.items()) if node.serves()]
            if not masters:
                continue
            value, self._value = self._value, self._value + 1
            node = self.random.choice(masters)
            self.unknown.add(value)
            outcome = node.append(value)
            await asyncio.wait([outcome], timeout=20)
            if not outcome.done():
                assert node.gone or node.process.stopped, f"{value} was never answered"
            elif (error := outcome.result()) is None:
                self.acked.append(value)
                self.unknown.discard(value)
            elif not getattr(error, "outcome_unknown", False):
                self.refused.add(value)
                self.unknown.discard(value)

    async def _break(self) -> None:
        node = self.place.nodes[self.random.choice("abc")]
        fault = self.random.choice(
            ["kill", "power", "stop", "isolate", "cut", "unregister", "forget", "heal", "heal"]
        )
        loop: Any = asyncio.get_running_loop()
        if fault in ("kill", "power") and not node.gone:
            node.kill(power=fault == "power")
        elif fault == "stop" and not node.gone:
            loop.stop_process(node.process)
        elif fault == "isolate":
            self.place.isolate(node.name)
        elif fault == "cut":
            self.place.cut(node.name, self.random.choice([n for n in "abc" if n != node.name]))
        elif fault == "unregister" and self.place.registry is not None:
            self.place.registry.cut(node.name)
        elif fault == "forget" and self.place.registry is not None:
            self.place.registry.forget()
        else:
            await self._heal()

    async def _heal(self) -> None:
        loop: Any = asyncio.get_running_loop()
        for node in list(self.place.nodes.values()):
            if node.process.stopped and not node.gone:
                loop.resume_process(node.process)
        self.place.heal()
        for node in list(self.place.nodes.values()):
            if node.gone:
                await node.again()
        await asyncio.sleep(self.random.uniform(0, 10))


async def settle(place: Village) -> Villager:
    """Wait until one is master and all have its log."""
    await place.master()
    await place.until(lambda: sum(node.serves() for node in place.nodes.values()) == 1, 60)
    await place.agree("a", "b", "c")
    return await place.master()


async def check(place: Village) -> None:
    """Let there be chaos, and see that what was acknowledged is there, in all copies."""
    chaos = Chaos(place, place.simulation.stream("chaos"))
    await chaos.run()
    master = await settle(place)
    state = master.state()
    assert len(set(state)) == len(state)
    assert [value for value in chaos.acked if value not in state] == []
    assert chaos.refused.isdisjoint(state)
    assert set(state) <= set(chaos.acked) | chaos.unknown
    assert chaos.acked


def replicated(seed: int, story: Any) -> None:
    """Run a story in a village whose copies are acknowledged."""
    village(seed, story, replicas=2, mode="acknowledged", promotion="auto", timeout_s=1.0)


@pytest.mark.parametrize("seed", seeds(300 if PROOF else 12))
def test_nothing_acknowledged_is_lost(seed: int):
    replicated(seed, check)
