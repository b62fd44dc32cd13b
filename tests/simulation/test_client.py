"""SDK clients on the simulated network: they come back, with their subscriptions, from a seed."""

from __future__ import annotations

import asyncio
import os
from typing import Any
from unittest.mock import patch

import pytest

from chappe.client import Client, ClientOptions, connect
from chappe.edge.origin import Origins
from chappe.edge.websocket import WebSocketEdge
from chappe.errors import ConnectionClosed, Overload, Unreachable
from chappe.hub.options import HubOptions
from chappe.message import Message
from chappe.simulation import Faults, Simulation, seeds
from tests.simulation.processes import digest_in_a_process
from tests.simulation.workload import HUB, PORT, TracingRecorder, draw_faults, make_hub

SEEDS = 200 if os.environ.get("CHAPPE_PROOF") == "full" else 5
TOPIC = "topic:news"
WEBSOCKET_PORT = 7400
URLS = {"tcp": f"tcp://{HUB}:{PORT}", "websocket": f"ws://{HUB}:{WEBSOCKET_PORT}/ws"}
CLIENTS = 4
TROUBLE_S = 120.0
# Longer than the largest backoff and every patience: whoever can be back is back.
RECOVERY_S = 120.0


class Fleet:
    """Some clients that subscribe, publish and send while their network breaks."""

    def __init__(self, seed: int, edge: str) -> None:
        self._url = URLS[edge]
        self.simulation = Simulation(seed)
        self.network = self.simulation.network
        self.trace = self.simulation.trace
        self.network.set_faults(draw_faults(self.simulation.stream("faults")))
        self.received: dict[str, list[Message]] = {}
        self.clients: list[Client] = []
        self.quiet = False

    def run(self) -> Fleet:
        # picows draws the key of its handshake from the operating system.
        with patch("os.urandom", self.simulation.entropy):
            self.simulation.run(self._live())
        return self

    async def _live(self) -> None:
        recorder = TracingRecorder(self.trace, self.simulation.loop)
        self.hub = make_hub(self.simulation, recorder, HubOptions())
        edge = WebSocketEdge(self.hub, Origins([], loopback=True), loop=self.simulation.loop)
        self.network.listen(edge.protocol, HUB, WEBSOCKET_PORT, None)
        names = [f"c{number}" for number in range(CLIENTS)]
        tasks = [self.network.on_host(name, self._act(name)) for name in names]
        await self._break_things(names)
        self.quiet = True
        self.network.heal()
        self.network.set_faults(Faults())
        await asyncio.gather(*tasks)
        await asyncio.sleep(RECOVERY_S)
        await self._check_all_are_back(names)
        for client in self.clients:
            await client.close()
        await asyncio.sleep(RECOVERY_S)
        assert not self.hub.sessions
        assert not self.network.streams

    async def _break_things(self, names: list[str]) -> None:
        random = self.simulation.stream("chaos")
        until = self.simulation.loop.time() + TROUBLE_S
        while self.simulation.loop.time() < until:
            await asyncio.sleep(random.expovariate(0.2))
            match random.choice(["reset", "partition", "one-way", "heal", "heal"]):
                case "reset" if self.network.streams:
                    self.network.reset(random.choice(list(self.network.streams)))
                case "partition":
                    self.network.partition(random.sample(names, 2), [HUB])
                case "one-way":
                    self.network.partition([HUB], [random.choice(names)], both_ways=False)
                case _:
                    self.network.heal()

    async def _act(self, name: str) -> None:
        random = self.simulation.stream(name)
        client = await self._connect(name)
        self.clients.append(client)
        received = self.received[name] = []
        self.simulation.loop.create_task(self._collect(name, client, received))
        number = 0
        while not self.quiet:
            number += 1
            to = random.choice([TOPIC, f"user:c{random.randrange(CLIENTS)}"])
            ask = client.publish if to == TOPIC else client.send
            self.trace.record("ask", client=name, outcome=await _outcome(ask(to, [name, number])))
            await asyncio.sleep(random.expovariate(2))

    async def _connect(self, name: str) -> Client:
        """Try until it works: only the first connect is not the client's own to repeat."""
        while True:
            connecting = connect(
                self._url,
                as_=f"user:{name}",
                rng=self.simulation.stream(f"{name}/jitter"),
                options=ClientOptions(backoff_max_s=5.0),
                on_notice=lambda notice: self.trace.record("notice", of=name, it=repr(notice)),
            )
            try:
                client = await connecting
                break
            except (ConnectionClosed, Overload):
                await asyncio.sleep(1)
        while await _outcome(client.subscribe(TOPIC)) != "ok":
            await asyncio.sleep(1)
        return client

    async def _collect(self, name: str, client: Client, received: list[Message]) -> None:
        async for message in client:
            received.append(message)
            self.trace.record("received", client=name, message=message.id, data=message.payload)

    async def _check_all_are_back(self, names: list[str]) -> None:
        """Everybody gets what is published now, and what is sent to them."""
        assert all(client.connected for client in self.clients)
        assert all(client.subscriptions == (TOPIC,) for client in self.clients)
        published = await self.clients[0].publish(TOPIC, "last")
        sent = {name: await self.clients[0].send(f"user:{name}", "you") for name in names}
        await asyncio.sleep(10)
        for name in names:
            ids = [str(message.id) for message in self.received[name]]
            assert ids.count(published.message) == 1
            assert ids.count(sent[name]) == 1
            assert len(ids) == len(set(ids))


async def _outcome(request: Any) -> str:
    try:
        await request
        return "ok"
    except (Overload, Unreachable) as error:
        return str(error)


@pytest.mark.parametrize("edge", URLS)
def test_clients_come_back_the_same_way_each_time_and_in_every_process(edge: str):
    digest = Fleet(2, edge).run().trace.digest()
    assert Fleet(2, edge).run().trace.digest() == digest
    assert Fleet(3, edge).run().trace.digest() != digest
    expression = f"tests.simulation.test_client.Fleet(2, {edge!r})"
    assert digest_in_a_process(expression, "1") == digest
    assert digest_in_a_process(expression, "4242") == digest


@pytest.mark.parametrize("edge", URLS)
@pytest.mark.parametrize("group", range(5))
def test_every_client_is_back_with_its_subscriptions_after_any_trouble(group: int, edge: str):
    reconnects = 0
    for seed in seeds(SEEDS)[group::5]:
        fleet = Fleet(seed, edge).run()
        reconnects += sum(client.reconnects for client in fleet.clients)
    assert reconnects > 0 or not seeds(SEEDS)[group::5]


@pytest.mark.parametrize(("seed", "edge"), [(6, "tcp")])
def test_a_seed_that_failed_once_does_not_fail_again(seed: int, edge: str):
    # A beat was due on a link that had said goodbye, and could not be written any more.
    Fleet(seed, edge).run()
