"""A hub and its clients on a bad day: everything drawn from one seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from chappe.edge.tcp import TcpConnection
from chappe.events.counting import CountingRecorder
from chappe.events.recorder import Queued
from chappe.hub.hub import Hub
from chappe.hub.options import HubOptions, Quota
from chappe.message import Message
from chappe.simulation import Faults, Simulation, Trace
from chappe.wire.ops import Presence
from tests import hubs
from tests.simulation.scripted_client import ScriptedClient

HUB, PORT = "hub", 7402
TOPICS = [f"topic:{name}" for name in ("news", "chat", "ticks")]
# Longer than a kernel's and the hub's patience together: what is broken is known to be by then.
SETTLE_S = 90.0


class SessionLife(msgspec.Struct):
    """When a session was open, as the hub tells it."""

    address: str
    opened: float
    closed: float | None = None
    code: int | None = None


class Accepted(msgspec.Struct, frozen=True):
    """A send or publish that was answered ok."""

    message: int
    sender: str
    to: str
    said_at: float
    answered_at: float


class TracingRecorder(CountingRecorder):
    """Tells the trace what the hub tells it, and keeps the sessions' lives."""

    def __init__(self, trace: Trace, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._trace = trace
        self._loop = loop
        self.sessions: dict[str, SessionLife] = {}
        self.taken: set[int] = set()

    def session_opened(self, app: str, address: str, session: str, edge: str) -> None:
        self._trace.record("hub.opened", address=address, session=session)
        self.sessions[session] = SessionLife(address, self._loop.time())

    def session_closed(
        self, app: str, address: str, session: str, edge: str, code: int, opened: int
    ) -> None:
        self._trace.record("hub.closed", address=address, session=session, code=int(code))
        life = self.sessions[session]
        life.closed, life.code = self._loop.time(), code

    def sent(self, app: str, messages: Sequence[Message], *more: object) -> None:
        self._trace.record("hub.sent", ids=repr([m.id for m in messages]))
        self.taken.update(m.id for m in messages)

    def queued(self, app: str, queue: str, messages: Sequence[Queued]) -> None:
        self._trace.record("hub.queued", ids=repr([m.id for m in messages]))

    def published(
        self, app: str, messages: Sequence[Message], receivers: int, *more: object
    ) -> None:
        self._trace.record("hub.published", ids=repr([m.id for m in messages]), to=receivers)

    def refused(self, app: str, error: str) -> None:
        self._trace.record("hub.refused", error=str(error))

    def dropped(self, app: str, reason: str, messages: int, *more: object) -> None:
        self._trace.record("hub.dropped", reason=reason, messages=messages)


def make_hub(simulation: Simulation, recorder: TracingRecorder, options: HubOptions) -> Hub:
    """A hub on the simulated machine `hub`, listening with the TCP edge."""
    hub = hubs.make_hub(
        simulation.loop,
        simulation.clock,
        entropy=simulation.entropy,
        recorder=recorder,
        options=options,
    )
    hub.start()
    simulation.network.listen(lambda: TcpConnection(hub), HUB, PORT, None)
    return hub


def draw_faults(random: Random) -> Faults:
    """Some links are good, some are bad in one way, some in all."""

    def some(most: float) -> float:
        return random.choice([0.0, random.uniform(0, most)])

    least_s = random.uniform(0.0001, 0.02)
    return Faults(
        latency_s=(least_s, least_s + random.uniform(0.0001, 0.2)),
        bytes_per_s=random.choice([0, 0, 500_000]),
        cut=some(0.8),
        stall=some(0.02),
        reset=some(0.002),
        refuse=some(0.3),
    )


class World:
    """One hub, several clients, and bad luck."""

    def __init__(self, seed: int, *, clients: int = 6, duration_s: float = 60.0) -> None:
        self.simulation = Simulation(seed)
        self.loop = self.simulation.loop
        self.network = self.simulation.network
        self.trace = self.simulation.trace
        self.network.set_faults(draw_faults(self.simulation.stream("faults")))
        self.recorder = TracingRecorder(self.trace, self.loop)
        self.duration_s = duration_s
        self.count = clients
        # Two machines share a user: a person with two devices.
        self.users = [f"user:u{number // 2}" for number in range(clients)]
        self.connections: list[ScriptedClient] = []
        self.accepted: list[Accepted] = []
        self.vanished: list[tuple[float, ScriptedClient]] = []
        self.quiet = False
        # Called now and then, to look at what must hold at any moment.
        self.look: Callable[[World], None] = lambda world: None

    def run(self) -> World:
        self.simulation.run(self._live())
        return self

    async def _live(self) -> None:
        # A rate that nobody reaches: an app with one outlives its sessions, so what they left
        # behind in its tables can be seen.
        options = HubOptions(
            outbox_bytes_max=40_000,
            outboxes_bytes_max=150_000,
            quota=Quota(messages_per_s=1_000_000_000),
        )
        self.hub = make_hub(self.simulation, self.recorder, options)
        actors = [
            self.network.on_host(f"c{number}", self._act(number), name=f"c{number}")
            for number in range(self.count)
        ]
        chaos = self.loop.create_task(self._bring_bad_luck(), name="chaos")
        await asyncio.sleep(self.duration_s)
        self.quiet = True
        await chaos
        self.network.heal()
        self.network.set_faults(Faults())
        await asyncio.gather(*actors)
        await asyncio.sleep(SETTLE_S)
        self.surviving = [
            client
            for client in self.connections
            if client.session in self.hub.sessions and not client.lost.is_set()
        ]
        for client in self.surviving:
            client.transport.close()
        await asyncio.sleep(SETTLE_S)

    async def _act(self, number: int) -> None:
        """Live as one machine: connect, do things, lose the connection, come back."""
        random = self.simulation.stream(f"client/{number}")
        while not self.quiet:
            serial = f"c{number}.{len(self.connections)}"
            client = ScriptedClient(f"c{number}", self.users[number], self.trace, serial)
            try:
                await self.loop.create_connection(lambda client=client: client, HUB, PORT)
                self.connections.append(client)
                await client.hello()
                while not self.quiet and not client.silent:
                    await self._do_something(client, random)
            except OSError as error:
                self.trace.record("client.failed", client=serial, error=type(error).__name__)
                await asyncio.sleep(random.uniform(0, 3))

    async def _do_something(self, client: ScriptedClient, random: Random) -> None:
        kind = random.choices(
            ["publish", "send", "spread", "subscribe", "unsubscribe", "presence", "nap", "leave"],
            [30, 20, 3, 8, 3, 2, 2, 1],
        )[0]
        topic = random.choice(TOPICS)
        if kind == "publish":
            await self._say_many(client, topic, random)
        elif kind == "send":
            await self._say_many(client, random.choice([*self.users, "user:nobody"]), random)
        elif kind == "spread":
            to = random.sample(sorted({*self.users, "user:nobody"}), 3)
            await client.send(to, self._payload(client, random))
        elif kind == "subscribe":
            await client.subscribe(topic)
        elif kind == "unsubscribe":
            await client.unsubscribe(topic)
        elif kind == "presence":
            assert (await client.ask(Presence, to=random.choice(self.users))).ok
        elif kind == "nap":
            client.transport.pause_reading()
            await asyncio.sleep(random.uniform(0, 6))
            client.transport.resume_reading()
        else:
            client.transport.close()
            await client.lost.wait()
            await asyncio.sleep(random.uniform(0, 5))
        if random.random() < 0.5:
            await asyncio.sleep(random.expovariate(3))

    async def _say_many(self, client: ScriptedClient, to: str, random: Random) -> None:
        """Say one message, or several without waiting in between."""
        count = random.choice([1, 1, 1, 5, 20])
        requests = [
            asyncio.create_task(self._say(client, to, self._payload(client, random)))
            for _ in range(count)
        ]
        for result in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _say(self, client: ScriptedClient, to: str, payload: bytes) -> None:
        said_at = self.loop.time()
        is_topic = to.startswith("topic:")
        reply = await (client.publish if is_topic else client.send)(to, payload)
        if reply.ok:
            assert isinstance(reply.message, int | str)
            self.accepted.append(
                Accepted(int(reply.message), client.session, to, said_at, self.loop.time())
            )
        else:
            assert reply.error in ("unreachable", "overload"), reply

    def _payload(self, client: ScriptedClient, random: Random) -> bytes:
        client.said += 1
        filling = "x" * random.choice([0, 10, 100, 3000])
        return msgspec.json.encode([client.serial, client.said, filling])

    async def _bring_bad_luck(self) -> None:
        random = self.simulation.stream("chaos")
        hosts = [f"c{number}" for number in range(self.count)]
        while not self.quiet:
            await asyncio.sleep(random.expovariate(0.3))
            self._strike(random, hosts)
            self.look(self)

    def _strike(self, random: Random, hosts: list[str]) -> None:
        kind = random.choice(["reset", "reset", "partition", "one-way", "heal", "vanish", "clock"])
        host = random.choice(hosts)
        if kind == "reset" and self.network.streams:
            self.network.reset(random.choice(list(self.network.streams)))
        elif kind == "partition":
            self.network.partition(random.sample(hosts, 2), [HUB])
        elif kind == "one-way":
            ends = random.choice([(host, HUB), (HUB, host)])
            self.network.partition([ends[0]], [ends[1]], both_ways=False)
        elif kind == "heal":
            self.network.heal()
        elif kind == "vanish":
            self._vanish(host)
        elif kind == "clock":
            self.simulation.clock.step(random.randint(-60_000, 60_000))

    def _vanish(self, host: str) -> None:
        """A machine loses its power and starts again: the old connection is told nothing."""
        for client in self.connections:
            if client.name == host and not client.lost.is_set() and not client.silent:
                self.vanished.append((self.loop.time(), client))
                client.silent = True
        self.network.vanish(host)
        for client in self.connections:
            if client.name == host and client.silent and not client.lost.is_set():
                client.connection_lost(None)
