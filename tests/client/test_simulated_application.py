"""The application layer on a simulated network that breaks: once, in order, and at least once."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from chappe.access.dev import DevAuthenticator
from chappe.access.token import TokenAuthenticator
from chappe.client import Client, Items, Missed, Notice, connect
from chappe.edge.tcp import TcpConnection
from chappe.endpoints.application import Application
from chappe.errors import RequestError
from chappe.events.counting import CountingRecorder
from chappe.hub.hub import Hub
from chappe.hub.options import HubOptions
from chappe.ids import Snowflake
from chappe.simulation import Faults, Simulation, seeds
from chappe.wire.limits import Limits

HUB, PORT = "hub", 7402
SEEDS = 500 if os.environ.get("CHAPPE_PROOF") == "full" else 20
COUNT = 60
TOPIC, QUEUE, SERVICE = "topic:t", "queue:q", "service:s"
ROUGH = Faults(latency_s=(0.001, 0.05), cut=0.3, stall=0.05, reset=0.02, refuse=0.1)


class Run:
    """Alice listens, works and provides over a network that breaks on her side only."""

    def __init__(self, seed: int, history: int) -> None:
        self.simulation = Simulation(seed)
        self.random = self.simulation.stream("client")
        self.history = history
        self.notices: list[Notice] = []
        self.heard: list[int] = []
        self.worked: list[int] = []
        self.handled: list[int] = []
        self.answered: set[int] = set()
        self.unknown: set[int] = set()
        self.refused: set[int] = set()

    async def go(self) -> None:
        network = self.simulation.network
        hub = self._hub()
        network.listen(lambda: TcpConnection(hub), HUB, PORT, None)
        alice = await network.on_host("alice", self._connect("alice"))
        bob = await network.on_host("bob", self._connect("bob"))
        await bob.create(TOPIC, history=self.history, history_s=100_000)
        await bob.create(QUEUE, volatile=True)
        await alice.subscribe(TOPIC)
        await alice.provide(SERVICE, self._handle)
        tasks = [
            asyncio.create_task(self._hear(alice)),
            asyncio.create_task(self._work(await alice.consume(QUEUE, credit=3).open())),
        ]
        ways = (network.link("alice", HUB), network.link(HUB, "alice"))
        for way in ways:
            way.faults = ROUGH
        breaking = asyncio.create_task(self._break())
        await asyncio.gather(*(self._ask(bob, n) for n in range(COUNT)), self._publish(bob))
        breaking.cancel()
        network.heal()
        for way in ways:
            way.faults = Faults()
        async with asyncio.timeout(120):
            while not alice.connected:
                await asyncio.sleep(1)
            await bob.publish(TOPIC, COUNT)
            while self.heard[-1:] != [COUNT] or len(set(self.worked)) < COUNT:
                await asyncio.sleep(1)
        assert await bob.request(SERVICE, -1) == 1
        await alice.close()
        await bob.close()
        await asyncio.gather(*tasks)
        hub.stop()
        self.simulation.trace.record("end", heard=repr(self.heard), worked=repr(self.worked))

    def _hub(self) -> Hub:
        simulation = self.simulation
        hub = Hub(
            loop=simulation.loop,
            clock=simulation.clock,
            ids=Snowflake(0, simulation.clock.wall_ms),
            entropy=simulation.entropy,
            authenticator=DevAuthenticator(TokenAuthenticator([], simulation.clock)),
            recorder=CountingRecorder(),
            options=HubOptions(),
            limits=Limits(),
        )
        Application.embedded(hub, simulation.loop)
        hub.start()
        return hub

    async def _connect(self, name: str) -> Client:
        return await connect(
            f"tcp://{HUB}:{PORT}",
            as_=f"user:{name}",
            rng=self.random,
            on_notice=self.notices.append if name == "alice" else None,
        )

    async def _publish(self, bob: Client) -> None:
        for n in range(COUNT):
            await asyncio.sleep(self.simulation.random.uniform(0, 4))
            await bob.publish(TOPIC, n)
            await bob.send(QUEUE, n)

    async def _ask(self, bob: Client, n: int) -> None:
        await asyncio.sleep(self.simulation.random.uniform(0, 120))
        try:
            assert await bob.request(SERVICE, n) == -n
        except RequestError as error:
            (self.unknown if error.outcome_unknown else self.refused).add(n)
        else:
            self.answered.add(n)

    async def _handle(self, data: Any) -> Any:
        self.handled.append(data)
        await asyncio.sleep(self.simulation.random.uniform(0, 1))
        return -data

    async def _hear(self, alice: Client) -> None:
        async for message in alice:
            self.heard.append(message.data)

    async def _work(self, items: Items) -> None:
        async for item in items:
            self.worked.append(item.data)
            await asyncio.sleep(self.simulation.random.uniform(0, 1))
            await item.ack()

    async def _break(self) -> None:
        random, network = self.simulation.random, self.simulation.network
        while True:
            await asyncio.sleep(random.uniform(5, 20))
            network.partition(["alice"], [HUB], both_ways=random.random() < 0.5)
            await asyncio.sleep(random.uniform(0.1, 30))
            network.heal()


def run_seed(seed: int, history: int = 1000) -> Run:
    run = Run(seed, history)
    run.simulation.run(run.go())
    return run


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_a_topic_with_a_history_loses_and_repeats_nothing(seed):  # H16, H17, H18
    run = run_seed(seed)
    assert run.heard == list(range(COUNT + 1))
    assert not [told for told in run.notices if isinstance(told, Missed)]
    assert set(run.worked) == set(range(COUNT))
    assert run.answered <= set(run.handled)
    assert not run.refused & set(run.handled), "refused for certain, and yet handled"
    assert len(run.handled) == len(set(run.handled)), "handled twice without being idempotent"
    assert len(run.answered | run.unknown | run.refused) == COUNT


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_whatever_a_short_history_lost_was_told(seed):  # H16
    run = run_seed(seed, history=2)
    assert run.heard == sorted(set(run.heard))
    if len(run.heard) <= COUNT:
        assert [told for told in run.notices if isinstance(told, Missed)]


def test_the_runs_have_every_outcome():
    runs = [run_seed(seed, history=2) for seed in range(10)]
    assert any(len(run.heard) <= COUNT for run in runs)
    assert any(len(run.worked) > COUNT for run in runs)
    assert all(run.answered for run in runs)
    assert any(run.unknown for run in runs)
    assert any(run.refused for run in runs)


def test_the_same_seed_gives_the_same_run():
    first, second = run_seed(3), run_seed(3)
    assert first.simulation.trace.digest() == second.simulation.trace.digest()
