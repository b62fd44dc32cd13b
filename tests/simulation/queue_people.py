"""Who uses queues in a simulated run: producers, consumers, and an administrator who looks on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from chappe.wire.ops import (
    Ack,
    Cancel,
    Consume,
    Create,
    Delivery,
    Fetch,
    Inspect,
    Nack,
    Op,
    Register,
    Reply,
    Send,
)
from chappe.wire.packed import encode_op, frame
from tests.simulation.queue_history import FAIL, OK, UNKNOWN, Heard, Sent, Settled, number_of
from tests.simulation.queue_history import payload_of as payload
from tests.simulation.scripted_client import ScriptedClient

if TYPE_CHECKING:
    from tests.simulation.queue_world import QueueWorld

NODE, PORT = "node", 7402
ANSWER_S = 6.0
TRIES_MAX = 16
CREDIT = 8


class QueueClient(ScriptedClient):
    """A connection that hands on what it is delivered, and says at once what a turn brings."""

    def __init__(self, person: Person, serial: str) -> None:
        super().__init__(person.name, person.user, person.world.trace, serial)
        self.take: Callable[[QueueClient, Delivery], None] = person.take
        self._saying: list[bytes] = []

    def say(self, op: Op) -> None:
        if not self._saying:
            self._loop.call_soon(self._say_all)
        self._saying.append(frame(encode_op(op)))

    def _say_all(self) -> None:
        said, self._saying = self._saying, []
        self.transport.write(b"".join(said))

    def _hear(self, op: Op) -> None:
        super()._hear(op)
        if isinstance(op, Delivery):
            self.take(self, op)


class Person:
    """Somebody with a connection, made anew whenever it breaks."""

    def __init__(self, world: QueueWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.user = f"user:{name}"
        self.random = world.simulation.stream(name)
        self._client: QueueClient | None = None
        self._serial = 0

    def take(self, client: QueueClient, delivery: Delivery) -> None:
        """Hear of one's dead letters."""
        assert delivery.from_.startswith("queue:"), delivery
        letter = msgspec.json.decode(bytes(delivery.data))["dead_letter"]  # type: ignore[arg-type]
        self.world.history.told.add((self.user, int(letter["message"])))

    async def connected(self) -> QueueClient:
        """A connection that works, as far as is known."""
        while self._client is None or self._client.lost.is_set():
            self._serial += 1
            client = QueueClient(self, f"{self.name}.{self._serial}")
            try:
                await self.world.loop.create_connection(lambda client=client: client, NODE, PORT)
                async with asyncio.timeout(ANSWER_S):
                    await client.hello()
                self._client = client
            except OSError:
                await asyncio.sleep(self.random.uniform(0.05, 0.5))
        return self._client

    async def ask(self, client: QueueClient, kind: Any, **fields: Any) -> tuple[str, Reply | None]:
        """Ask, and say what is known of the outcome."""
        try:
            async with asyncio.timeout(ANSWER_S):
                reply = await client.ask(kind, **fields)
        except (ConnectionError, TimeoutError):
            return UNKNOWN, None
        if reply.ok:
            return OK, reply
        return (UNKNOWN if reply.outcome == "unknown" else FAIL), reply


class Producer(Person):
    """Sends, in several ways."""

    def __init__(self, world: QueueWorld, name: str, *, idempotent: bool) -> None:
        super().__init__(world, name)
        self.idempotent = idempotent
        self._seq = 0

    async def act(self) -> None:
        while not self.world.quiet:
            if self.random.random() < 0.3:
                await self._burst(self.random.randint(2, 20))
            else:
                await self._send(self._draw(keyed=self.random.random() < 0.6))
            await asyncio.sleep(self.random.expovariate(self.world.rate))

    async def _burst(self, count: int) -> None:
        """Send many at once. Retries would change their order: so those have no keys."""
        client = await self.connected()
        keyed = not self.idempotent and self.random.random() < 0.5
        draws = [self._draw(keyed=keyed) for _ in range(count)]
        if keyed:
            # In one queue mostly, so that a run has several of a key.
            for sent in draws:
                sent.queue = draws[0].queue
                sent.key = None if sent.queue in self.world.ordered else sent.key
        await asyncio.gather(*(self._send(sent, client) for sent in draws))

    def _draw(self, *, keyed: bool) -> Sent:
        random, world = self.random, self.world
        queue = random.choice(world.queues)
        sent = Sent(len(world.history.sent), queue, self.user, world.loop.time())
        if queue in world.ordered and not keyed:
            # In a queue that keeps its order as a whole, one producer's messages follow each other.
            sent.queue = world.queues[0]
        if keyed and sent.queue not in world.ordered:
            sent.key = f"{self.name}/{random.randrange(2)}"
        sent.red = random.random() < 0.3
        sent.poison = random.random() < 0.03
        if not keyed and random.random() < 0.15:
            sent.delay_s = random.choice([0.3, 2.0, 6.0])
        if self.idempotent:
            self._seq += 1
            sent.producer = (self.name, self._seq)
        world.history.sent[sent.number] = sent
        return sent

    async def _send(self, sent: Sent, client: QueueClient | None = None) -> None:
        """Try until it is known what became of it, if a retry is recognised as such."""
        random = self.random
        filling = "x" * random.choice([0, 10, 100, 1500])
        fields: dict[str, Any] = {
            "to": sent.queue,
            "data": Raw(payload(sent.number, filling)),
            "key": sent.key,
            "tags": ["red"] if sent.red else None,
            "num": sent.number if random.random() < 0.2 else None,
        }
        if sent.delayed:
            fields["delay_ms"] = int(sent.delay_s * 1000)
        if sent.producer is not None:
            fields["producer"], fields["seq"] = sent.producer
        for _ in range(TRIES_MAX if sent.producer is not None else 1):
            asked, client = client or await self.connected(), None
            outcome, reply = await self.ask(asked, Send, **fields)
            if outcome != FAIL and sent.outcome != OK:
                sent.outcome = outcome
            if reply is not None and reply.ok:
                assert isinstance(reply.message, int)
                assert reply.num == fields["num"]
                sent.ids.add(reply.message)
                if random.random() < 0.9 or self.world.quiet:
                    break
                # An answer that was not heard: the same is sent once more.
            else:
                await asyncio.sleep(random.uniform(0.05, 0.5))
        if sent.delayed and sent.ids and random.random() < 0.4:
            await self._cancel(sent)

    async def _cancel(self, sent: Sent) -> None:
        left_s = max(0.0, sent.invoked + sent.delay_s - self.world.loop.time())
        # At any time, or just when it is due.
        wait_s = self.random.choice([left_s * self.random.random(), left_s])
        await asyncio.sleep(wait_s + self.random.uniform(0, 0.02))
        assert len(sent.ids) == 1, f"{sent} was stored more than once"
        (message,) = sent.ids
        client = await self.connected()
        sent.cancelled, _ = await self.ask(client, Cancel, message=message, to=sent.queue)


class Consumer(Person):
    """Takes messages for a group: pushed to it, or fetched."""

    def __init__(
        self, world: QueueWorld, name: str, queue: str, group: str, *, pushed: bool
    ) -> None:
        super().__init__(world, name)
        self.queue = queue
        self.group = group
        self.pushed = pushed
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def _source(self) -> dict[str, Any]:
        source: dict[str, Any] = {"to": self.queue}
        if self.group:
            source["group"] = self.group
        if self.group == "red":
            source["tags"] = ["red"]
        return source

    async def join(self) -> None:
        """Let the group come into being, for good."""
        while True:
            client = await self.connected()
            if self.group:
                outcome, _ = await self.ask(client, Register, name=self.name, **self._source)
            else:
                outcome, _ = await self.ask(client, Fetch, **self._source)
            if outcome == OK:
                return
            await asyncio.sleep(0.1)

    async def act(self) -> None:
        while not self.world.over:
            client = await self.connected()
            if self.pushed:
                await self._be_pushed(client)
            else:
                n = self.random.randint(1, 5)
                wait_ms = self.random.choice([0, 100, 1000])
                await self.ask(client, Fetch, n=n, wait_ms=wait_ms, **self._source)
                await asyncio.sleep(self.random.uniform(0, 0.2))
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _be_pushed(self, client: QueueClient) -> None:
        outcome, _ = await self.ask(client, Consume, credit=CREDIT, **self._source)
        if outcome != OK:
            await asyncio.sleep(0.2)
            return
        while not client.lost.is_set() and not self.world.over:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await client.lost.wait()

    def take(self, client: QueueClient, delivery: Delivery) -> None:
        world = self.world
        assert delivery.to == self.queue, delivery
        number = number_of(bytes(delivery.data))  # type: ignore[arg-type]
        world.history.heard.append(
            Heard(
                world.loop.time(),
                self.queue,
                self.group,
                self.name,
                int(delivery.message),
                number,
                delivery.attempt,
                delivery.key,
            )
        )
        task = world.loop.create_task(self._work(client, int(delivery.message), number))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _work(self, client: QueueClient, message: int, number: int) -> None:
        world, random = self.world, self.random
        kinds, chances = ["ack", "nack", "forget", "leave"], [80, 10, 5, 2]
        if world.quiet:
            kinds, chances = ["ack"], [1]
        kind = random.choices(kinds, chances)[0]
        sent = world.history.sent.get(number)
        if sent is not None and sent.poison and kind == "ack":
            kind = "nack"
        await asyncio.sleep(random.choice([0.0, random.uniform(0, 0.3)]))
        if kind == "leave":
            client.transport.abort()
        elif kind != "forget":
            await self._settle(client, kind, message, number)

    async def _settle(self, client: QueueClient, kind: str, message: int, number: int) -> None:
        now = self.world.loop.time
        settled = Settled(kind, self.queue, self.group, message, number, now())
        self.world.history.settled.append(settled)
        fields: dict[str, Any] = {"message": message}
        if kind == "nack" and self.random.random() < 0.2:
            fields["delay_ms"] = 200
        if client.lost.is_set():
            settled.outcome = FAIL
            return
        settled.outcome, _ = await self.ask(client, Ack if kind == "ack" else Nack, **fields)
        settled.answered = now()


class Administrator(Person):
    """Makes queues, and looks at them."""

    async def until_ok(self, kind: Any, **fields: Any) -> Reply:
        """Ask until it is done."""
        for _ in range(100):
            outcome, reply = await self.ask(await self.connected(), kind, **fields)
            if outcome == OK and reply is not None:
                return reply
            await asyncio.sleep(0.2)
        raise AssertionError(f"{kind.__name__} {fields} was never answered ok: {reply}")

    async def create(self, queue: str, **options: Any) -> None:
        await self.until_ok(Create, to=queue, **options)

    async def figures(self, queue: str) -> dict[str, Any]:
        return _data(await self.until_ok(Inspect, to=queue))

    async def dead(self, queue: str) -> list[dict[str, Any]]:
        """All dead letters of a queue."""
        found: list[dict[str, Any]] = []
        after: int | None = None
        while True:
            page = _data(await self.until_ok(Inspect, to=queue, dead=True, n=50, after=after))
            found += page["messages"]
            after = page["next"]
            if after is None:
                return found


def _data(reply: Reply) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(bytes(reply.data))  # type: ignore[arg-type]
    return decoded
