"""A person's device in a simulated cluster: an SDK client that does things and writes them down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from chappe.client import (
    Client,
    ClientOptions,
    Disconnected,
    Dropped,
    Item,
    Missed,
    Notice,
    Renewed,
    StreamDial,
    Unsubscribed,
)
from chappe.errors import ConnectionClosed, Overload, RequestError
from chappe.message import Message
from tests.simulation.cluster_node import TCP_PORT

if TYPE_CHECKING:
    from tests.simulation.cluster_world import ClusterWorld

OPTIONS = ClientOptions(backoff_max_s=4.0)
TOPICS = ("topic:chat", "topic:news", "topic:kept")
KEPT = "topic:kept"
QUEUE = "queue:jobs"
SERVICE = "service:echo"
ACK_TIMEOUT_S = 8.0
REQUEST_S = 10.0


@dataclass(slots=True)
class Deed:
    """Something that was asked for, and what is known of its outcome."""

    kind: str
    device: str
    to: str
    invoked: float
    answered: float = 0.0
    # ok, fail (surely not done) or unknown (perhaps done).
    outcome: str = "invoked"
    result: Any = None
    # What was said, as it travels.
    word: bytes = b""


@dataclass(slots=True)
class Gap:
    """The client was told that messages of a topic may be missing: before the one at this place,
    or between what it recovered since the connection before it broke."""

    topic: str
    begin: int
    place: int
    notice: Notice


class Device:
    """One machine of a user."""

    def __init__(self, world: ClusterWorld, number: int, user: str) -> None:
        self.world = world
        self.name = f"c{number}"
        self.user = user
        self.random = world.simulation.stream(f"{self.name}/acts")
        self.received: list[Message] = []
        self.gaps: list[Gap] = []
        self.said = 0
        self.closing = False
        self._broke_at = 0
        self.provides = number in (1, 3)
        # One fetches, one is pushed.
        self.fetches, self.consumes = number == 2, number == 4
        self.client: Client

    async def open(self) -> None:
        """Connect to some node, and begin to read."""
        world = self.world
        jitter = world.simulation.stream(f"{self.name}/jitter")

        async def dial(factory: Any) -> Any:
            node = self.random.choice(sorted(world.machines))
            return await world.loop.create_connection(factory, node, TCP_PORT)

        while True:
            self.client = Client(
                StreamDial(dial, OPTIONS.received_bytes_max),
                rng=jitter,
                as_=self.user,
                options=OPTIONS,
            )
            # At once, not in the next turn: what came before it is then known.
            self.client._connection.tell = self._notice
            try:
                await self.client.open()
                break
            except (ConnectionClosed, RequestError):
                await asyncio.sleep(1)
        self._reading = world.loop.create_task(self._read())

    async def settle_in(self) -> None:
        """Subscribe and provide, as it will all the time."""
        for topic in TOPICS:
            await self.until_ok(
                "subscribe", topic, lambda topic=topic: self.client.subscribe(topic)
            )
        if self.provides:
            await self.until_ok(
                "provide", SERVICE, lambda: self.client.provide(SERVICE, self._serve)
            )
        if self.consumes:
            self._consuming = self.world.loop.create_task(self.consume())

    async def until_ok(self, kind: str, to: str, ask: Any) -> None:
        while (await self.do(kind, to, ask())).outcome != "ok":
            await asyncio.sleep(1)

    async def _serve(self, data: Any) -> Any:
        await asyncio.sleep(self.random.expovariate(5))
        return [self.name, data]

    async def _read(self) -> None:
        async for message in self.client:
            self.received.append(message)
            self.world.trace.record(
                "received", device=self.name, message=message.id, to=message.to, at=message.offset
            )

    def _notice(self, notice: Notice) -> None:
        self.world.trace.record("notice", device=self.name, it=repr(notice))
        assert not isinstance(notice, Unsubscribed), notice
        place = len(self.received) + self.client.waiting
        if isinstance(notice, Disconnected):
            self._broke_at = place
        elif isinstance(notice, Missed | Renewed | Dropped):
            begin = self._broke_at if isinstance(notice, Missed) else place
            self.gaps.append(Gap(getattr(notice, "topic", ""), begin, place, notice))

    async def act(self) -> None:
        """Live, until the world is to be quiet."""
        fetching = self.world.loop.create_task(self._fetch()) if self.fetches else None
        while not self.world.quiet:
            await self._do_something()
            await asyncio.sleep(self.random.expovariate(1.5))
        if fetching is not None:
            await fetching

    async def _do_something(self) -> None:
        random, client = self.random, self.client
        kinds = ["send", "publish", "many", "presence", "enqueue", "request", "post", "topics"]
        kind = random.choices(kinds, [10, 10, 2, 2, 4, 5, 3, 1])[0]
        someone = random.choice(self.world.addresses)
        topic = random.choice(TOPICS)
        match kind:
            case "send":
                await self.send(someone)
            case "many":
                await self.send(random.sample(self.world.addresses, 3))
            case "publish":
                await self.publish(topic, random.choice([1, 1, 3]))
            case "presence":
                await self.do(kind, someone, client.presence(someone))
            case "enqueue":
                await self.enqueue()
            case "request":
                await self.request()
            case "post":
                self._post(random.choice([someone, topic]))
            case "topics" if topic != KEPT:
                await self.do("unsubscribe", topic, client.unsubscribe(topic))
                await self.until_ok("subscribe", topic, lambda: client.subscribe(topic))

    async def send(self, to: str | list[str]) -> Deed:
        word = self.word()
        kind, named = ("send", to) if isinstance(to, str) else ("many", " ".join(to))
        return await self.do(kind, named, self.client.send(to, word), word)

    async def publish(self, topic: str, count: int) -> list[Deed]:
        words = [self.word() for _ in range(count)]
        asks = [(word, self.client.publish(topic, word)) for word in words]
        return await asyncio.gather(*(self.do("publish", topic, ask, word) for word, ask in asks))

    async def enqueue(self) -> Deed:
        word = self.word()
        return await self.do("enqueue", QUEUE, self.client.send(QUEUE, word), word)

    async def request(self) -> Deed:
        word = self.word()
        idempotent = self.random.random() < 0.5
        ask = self.client.request(SERVICE, word, timeout_s=REQUEST_S, idempotent=idempotent)
        deed = await self.do("request", SERVICE, ask)
        if deed.outcome == "ok":
            assert deed.result[1] == word, f"{deed} answers another request than {word}"
        took_s = deed.answered - deed.invoked
        assert took_s <= REQUEST_S + 0.5, f"{deed} was answered after {took_s} s"
        return deed

    def _post(self, to: str) -> None:
        with suppress(Overload, ConnectionClosed):
            self.client.post(to, self.word())

    async def _fetch(self) -> None:
        while not self.world.quiet:
            await self.take_jobs(self.random.choice([1, 2, 5]), wait_s=2.0)
            await asyncio.sleep(self.random.expovariate(2))

    async def consume(self) -> None:
        """Take what the queue pushes, to the end; begin anew when it is refused."""
        while not self.closing:
            try:
                async with self.client.consume(QUEUE, credit=3) as items:
                    async for item in items:
                        await self._settle(item)
            except (RequestError, ConnectionClosed):
                await asyncio.sleep(1)

    async def take_jobs(self, n: int, wait_s: float) -> int:
        """Take some jobs once; how many came."""
        deed = await self.do("fetch", QUEUE, self.client.fetch(QUEUE, n, wait_s=wait_s))
        if deed.outcome != "ok":
            return 0
        items: list[Item] = deed.result
        for item in items:
            await self._settle(item)
        return len(items)

    async def _settle(self, item: Item) -> None:
        """Most jobs are done, some handed back, some kept for too long."""
        fate = self.random.choices(["ack", "nack", "keep"], [10, 2, 1])[0]
        if fate == "keep" and not self.world.quiet:
            return
        kind, ask = ("nack", item.nack()) if fate == "nack" else ("ack", item.ack())
        settled = await self.do(kind, str(item.id), ask)
        if settled.outcome == "ok" and not settled.result:
            settled.outcome = "unknown"

    def word(self) -> list[Any]:
        """Something that nobody has said before."""
        self.said += 1
        return [self.name, self.said]

    async def do(self, kind: str, to: str, asking: Awaitable[Any], word: Any = None) -> Deed:
        """Ask for something, and write down what became of it."""
        loop = self.world.loop
        deed = Deed(kind, self.name, to, loop.time(), word=msgspec.json.encode(word))
        self.world.deeds.append(deed)
        try:
            deed.result = await asking
            deed.outcome = "ok"
        except RequestError as error:
            unknown = getattr(error, "outcome_unknown", False)
            deed.outcome = "unknown" if unknown else "fail"
            deed.result = error
        except ConnectionClosed as error:
            deed.outcome, deed.result = "unknown", error
        deed.answered = loop.time()
        self.world.trace.record("did", what=kind, device=self.name, to=to, outcome=deed.outcome)
        return deed

    async def close(self) -> None:
        """Leave for good."""
        self.closing = True
        await self.client.close()
        await asyncio.wait([self._reading])
