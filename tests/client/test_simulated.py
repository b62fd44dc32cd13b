"""Clients on a simulated network that breaks: what they were told is what happened."""

from __future__ import annotations

import asyncio
import os

import pytest

from chappe.client import Client, ClientOptions, connect
from chappe.edge.tcp import TcpConnection
from chappe.errors import ChappeError
from chappe.hub.hub import Hub
from chappe.simulation import Faults, Simulation, seeds
from tests.hubs import make_hub

HUB, PORT = "hub", 7402
SEEDS = 500 if os.environ.get("CHAPPE_PROOF") == "full" else 20
MESSAGES = 60
ROUGH = Faults(latency_s=(0.001, 0.05), cut=0.3, stall=0.05, reset=0.02, refuse=0.1)


class Run:
    """Alice sends to Bob over a network that breaks on her side only."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.random = self.simulation.stream("client")
        self.ok: set[int] = set()
        self.unknown: set[int] = set()
        self.failed: set[int] = set()
        self.got: list[int] = []

    async def go(self) -> None:
        simulation, network = self.simulation, self.simulation.network
        hub = self._hub()
        network.listen(lambda: TcpConnection(hub), HUB, PORT, None)
        alice = await network.on_host("alice", self._connect("alice"))
        bob = await network.on_host("bob", self._connect("bob"))
        await alice.subscribe("topic:t")
        reading = asyncio.create_task(self._read(bob))
        for way in (network.link("alice", HUB), network.link(HUB, "alice")):
            way.faults = ROUGH
        breaking = asyncio.create_task(self._break())
        await asyncio.gather(*(self._send(alice, n) for n in range(MESSAGES)))
        breaking.cancel()
        network.heal()
        for way in (network.link("alice", HUB), network.link(HUB, "alice")):
            way.faults = Faults()
        await self._check_alice(alice, bob)
        await alice.close()
        await bob.close()
        await reading
        hub.stop()
        simulation.trace.record("end", got=repr(self.got), ok=len(self.ok))

    def _hub(self) -> Hub:
        simulation = self.simulation
        hub = make_hub(simulation.loop, simulation.clock, entropy=simulation.entropy)
        hub.start()
        return hub

    async def _connect(self, name: str) -> Client:
        return await connect(
            f"tcp://{HUB}:{PORT}", as_=f"user:{name}", options=ClientOptions(), rng=self.random
        )

    async def _send(self, alice: Client, n: int) -> None:
        await asyncio.sleep(self.simulation.random.uniform(0, 120))
        try:
            await alice.send("user:bob", n)
        except ChappeError as error:
            unknown = getattr(error, "outcome_unknown", False)
            (self.unknown if unknown else self.failed).add(n)
        else:
            self.ok.add(n)

    async def _read(self, bob: Client) -> None:
        async for message in bob:
            if isinstance(message.data, int):
                self.got.append(message.data)

    async def _break(self) -> None:
        random, network = self.simulation.random, self.simulation.network
        while True:
            await asyncio.sleep(random.uniform(5, 20))
            network.partition(["alice"], [HUB], both_ways=random.random() < 0.5)
            await asyncio.sleep(random.uniform(0.1, 30))
            network.heal()

    async def _check_alice(self, alice: Client, bob: Client) -> None:
        """Once the network is whole she is back within her longest delay, with her topic."""
        async with asyncio.timeout(60):
            while (await bob.publish("topic:t", "whole")).nodes == 0 or not alice.connected:
                await asyncio.sleep(1)
            await bob.publish("topic:t", "last")
            while (await alice.receive()).data != "last":
                pass
        assert alice.pending == 0
        assert alice.subscriptions == ("topic:t",)


def run_seed(seed: int) -> Run:
    run = Run(seed)
    run.simulation.run(run.go())
    return run


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_what_a_client_was_told_is_what_happened(seed):  # H5
    run = run_seed(seed)
    got = set(run.got)
    assert len(got) == len(run.got), "a message came twice"
    assert run.ok <= got, "answered ok, and lost"
    assert not run.failed & got, "failed for certain, and yet carried out"
    assert got <= run.ok | run.unknown
    assert len(run.ok | run.unknown | run.failed) == MESSAGES


def test_the_runs_have_every_outcome():
    runs = [run_seed(seed) for seed in range(10)]
    assert any(run.ok for run in runs)
    assert any(run.unknown for run in runs)
    assert any(run.unknown & set(run.got) for run in runs)
    assert any(run.failed for run in runs)


def test_the_same_seed_gives_the_same_run():
    first, second = run_seed(3), run_seed(3)
    assert first.simulation.trace.digest() == second.simulation.trace.digest()
    assert first.got == second.got
