"""A desk on states in memory, with comets that write down what they are told."""

from __future__ import annotations

import asyncio
from random import Random

from chappe.events.pushrecorder import PushRecorder
from chappe.ids import PrefixedIds
from chappe.push.admin.desk import PushDesk
from chappe.push.admin.options import DeskOptions
from chappe.push.admin.order import Aim, Order
from chappe.push.app import Limits, PushApp
from chappe.push.identity import load_identity
from chappe.push.seal import Seal
from chappe.push.state.sqlite import SqlitePlace
from chappe.push.state.states import States
from tests.push.recording import HandClock, RecordingComets, RecordingProvider, Tells

ENTROPY = Random("desks").randbytes
SEAL = Seal(bytes(32), ENTROPY)


class Bench:
    """A desk and all that stands around it."""

    def __init__(self, states: States, identity, comets, clock, options, server=1) -> None:
        self.states = states
        self.comets = comets
        self.clock = clock
        self.provider = RecordingProvider()
        self.tells = Tells()
        self.desk = PushDesk(
            states,
            comets,
            SEAL,
            identity,
            ids=PrefixedIds(server, clock.wall_ms),
            clock=clock,
            entropy=ENTROPY,
            recorder=PushRecorder(self.tells),
            provider=self.provider,
            options=options,
        )

    async def app(self, name: str = "shop", *, open: bool = True, **limits) -> PushApp:
        app, _ = await self.desk.apps.create(name, open=open, limits=Limits(**limits))
        return app

    async def client(self, app: PushApp, device: str, *, on: int | None = None) -> str:
        """A client of a device, connected to a comet if one is named."""
        client = (await self.desk.tokens.give(app, device)).client
        if on is not None:
            await self.states.route.move({client: on})
            self.comets.here[on].add(client)
        return client

    async def send(self, app: PushApp, content: bytes = b"hi", *, order=None, **aim):
        aim = {name: tuple(v) if isinstance(v, list) else v for name, v in aim.items()}
        return await self.desk.sending.send(
            app, Order(aim=Aim(**aim), content=content, **(order or {}))
        )

    async def waiting(self, client: str) -> list[str]:
        return (await self.states.message.waiting([client])).get(client, [])

    async def tally(self, app: PushApp, job: str):
        return (await self.desk.jobs.find(app, job))[1]


async def make_bench(options: DeskOptions | None = None, clock=None, servers=(1, 2)) -> Bench:
    clock = clock or HandClock()
    states = SqlitePlace(None, clock.wall_ms).states
    identity = await load_identity(states.meta, SEAL, ENTROPY)
    return Bench(states, identity, RecordingComets(*servers), clock, options)


def with_bench(test, **made):
    """Run a coroutine function with a new bench, to its end."""

    async def main():
        bench = await make_bench(**made)
        try:
            await test(bench)
        finally:
            await bench.states.close()

    asyncio.run(main())
