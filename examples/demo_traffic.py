"""Mixed traffic for the demo: topics, users, rooms, two queues, a service, push, and who come and
go.

Everybody does as much as gets answered, and goes on after an error: a node will be killed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path

from chappe import ChappeError, Client, Item, connect
from demo_push import PushTraffic

USERS, PUBLISHERS, SENDERS, ASKERS, SPEAKERS = 20, 2, 2, 2, 2
TOPICS = ("topic:prices", "topic:news", "topic:scores")
# All users are in the first, some in each of the others; half of what is said is said in the first.
ROOMS = ("room:plaza", "room:1", "room:2", "room:3", "room:4", "room:5")
QUEUES = ("queue:orders", "queue:mails")
SERVICE = "service:quotes"
# What one client has under way at a time; less of what is written to disk and worked off.
BURST = {"published": 16, "sent": 16, "asked": 8, "queued": 3, "said": 8}
# One job in so many cannot be done: it is tried again, and ends as a dead letter.
BAD = 250

# Not secret, only mixed.
_random = random.Random(7)


class Traffic:
    """Clients that talk to a cluster until they are told to stop."""

    def __init__(self, urls: list[str], http: list[str], folder: Path) -> None:
        self._urls = urls
        self._over = asyncio.Event()
        self.counts: Counter[str] = Counter()
        self._push = PushTraffic(http, folder, self.counts)

    async def run(self, meanwhile: Awaitable[None]) -> None:
        """Make traffic until `meanwhile` is done."""
        async with AsyncExitStack() as stack:
            tasks = await self._start(stack)
            tasks += await self._push.start(stack)
            try:
                await meanwhile
            finally:
                self._over.set()
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def _start(self, stack: AsyncExitStack) -> list[asyncio.Task[None]]:
        async def client(name: str, *urls: str) -> Client:
            return await stack.enter_async_context(connect(urls or self._urls, as_=f"user:{name}"))

        # Asked on two nodes: where each queue lives, its name decides.
        makers = [await client(f"maker-{n}", self._urls[n]) for n in (0, -1)]
        for maker, queue in zip(makers, QUEUES, strict=True):
            await maker.create(queue, attempts_max=3, retry_s=0.05)
        users = [await client(f"u{n}") for n in range(USERS)]
        for n, user in enumerate(users):
            await user.subscribe(TOPICS[n % len(TOPICS)])
            await user.join(ROOMS[0])
            await user.join(ROOMS[1 + n % (len(ROOMS) - 1)])
        for n in range(2):
            await (await client(f"provider-{n}")).provide(SERVICE, _quote)
        steady = [self._read(user) for user in users]
        for queue in QUEUES:
            steady += [self._consume(await client(f"worker-{n}"), queue) for n in range(3)]
        loops: list[tuple[str, Client, Callable[[Client], Awaitable[object]]]] = [
            *[("published", await client(f"publisher-{n}"), _publish) for n in range(PUBLISHERS)],
            *[("sent", await client(f"sender-{n}"), _send) for n in range(SENDERS)],
            *[("asked", await client(f"asker-{n}"), _ask) for n in range(ASKERS)],
            *[("said", await client(f"speaker-{n}"), _say) for n in range(SPEAKERS)],
            *[("queued", await client("shop"), _job(queue)) for queue in QUEUES],
        ]
        steady += [self._repeat(name, who, do) for name, who, do in loops]
        steady.append(self._come_and_go())
        return [asyncio.ensure_future(one) for one in steady]

    async def _repeat(
        self, name: str, client: Client, do: Callable[[Client], Awaitable[object]]
    ) -> None:
        """Do something in bursts, and the next burst when all of one is answered."""
        while not self._over.is_set():
            burst = (do(client) for _ in range(BURST[name]))
            done = await asyncio.gather(*burst, return_exceptions=True)
            for answer in done:
                if not isinstance(answer, BaseException):
                    self.counts[name] += 1
                elif isinstance(answer, ChappeError):
                    self.counts[f"{name}: {type(answer).__name__}"] += 1
                else:
                    raise answer
            await asyncio.sleep(0.01)

    async def _read(self, client: Client) -> None:
        async for _message in client:
            self.counts["received"] += 1

    async def _consume(self, client: Client, queue: str) -> None:
        while not self._over.is_set():
            try:
                async with client.consume(queue, group="workers", credit=32) as items:
                    async for item in items:
                        await self._work(item)
            except ChappeError:
                await asyncio.sleep(0.2)  # its node is gone, and will be back

    async def _work(self, item: Item) -> None:
        if item.data["n"] % BAD == 0:
            await item.nack()
            return
        await item.ack()
        self.counts["worked off"] += 1

    async def _come_and_go(self) -> None:
        for n in count():
            try:
                async with connect(self._urls, as_=f"user:guest-{n % 5}"):
                    await asyncio.sleep(_random.uniform(0.1, 1.0))
            except ChappeError:
                self.counts["guests turned away"] += 1


async def _quote(data: object) -> dict[str, object]:
    await asyncio.sleep(0.002)  # as if it asked a database
    return {"of": data, "price": 42}


async def _publish(client: Client) -> None:
    await client.publish(_random.choice(TOPICS), {"price": _random.random()})


async def _say(client: Client) -> None:
    room = ROOMS[0] if _random.random() < 0.5 else _random.choice(ROOMS[1:])
    # One in ten must arrive: it goes three ways.
    await client.publish(room, {"text": "hello, all"}, reliable=_random.random() < 0.1)


async def _send(client: Client) -> None:
    await client.send(f"user:u{_random.randrange(USERS)}", {"text": "hello"})


async def _ask(client: Client) -> None:
    await client.request(SERVICE, {"share": _random.randrange(100)}, timeout_s=5, idempotent=True)


def _job(queue: str) -> Callable[[Client], Awaitable[object]]:
    numbers = count(1)

    async def send(client: Client) -> None:
        await client.send(queue, {"n": next(numbers)})

    return send
