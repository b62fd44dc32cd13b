"""A load on a durable queue that goes on whatever happens, and what must hold of it (Q4 to Q6).

Each message has a number of its own. What was acknowledged to its producer comes, or is a dead
letter; what was surely refused does not come; what a consumer was told to be done with does not
come again; nothing is stored twice; messages of one key come in order, each once the one before it
was acknowledged. What nobody answered is unknown.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

from chappe.client import Client, Item
from chappe.errors import ConnectionClosed, RequestError

from .trio import until

QUEUE = "queue:work"
GROUP = "workers"
CREDIT = 8
KEYS = 3
ATTEMPTS_MAX = 16
# Who sends waits for those who take when so many have not come.
BACKLOG_MAX = 600
# Of so many messages of a producer, one is never acknowledged by anybody.
POISON_EVERY = 50
_PAUSE_S = 0.002
# How long what a node has sent may be on its way to a client on a busy machine.
UNDER_WAY_S = 2.0


@dataclass(slots=True)
class Sent:
    """A message that was sent, and what is known of it."""

    key: str | None
    begun: float
    poison: bool
    outcome: str = "unknown"
    answered: float = 0.0
    id: str = ""


class Heard(NamedTuple):
    """A message that came."""

    number: str
    id: int
    attempt: int
    at: float
    client: Client


class Work:
    """Producers that send all the time, and consumers that take what comes."""

    def __init__(
        self,
        producers: Iterable[Client],
        consumers: Iterable[Client],
        *,
        queue: str = QUEUE,
        name: str = "",
        poison: bool = False,
    ) -> None:
        self.queue = queue
        self._name = name
        self.sent: dict[str, Sent] = {}
        self.heard: list[Heard] = []
        self._seen: set[str] = set()
        # When an acknowledgement was said, and when it was answered that it holds.
        self.acked: dict[str, float] = {}
        self.done: dict[str, float] = {}
        self.nacked: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self._producers = list(producers)
        self._consumers = list(consumers)
        self._poison = poison
        self._writers: list[asyncio.Task[None]] = []
        self._takers: list[asyncio.Task[None]] = []
        # Set unless consumers leave alone what they were given.
        self.taking = asyncio.Event()
        self.taking.set()

    async def start(self) -> None:
        """Begin to take, and to send."""
        self._takers = [asyncio.create_task(self._take(client)) for client in self._consumers]
        self._writers = [
            asyncio.create_task(self._send(client, f"p{self._name}{'abcdef'[at]}"))
            for at, client in enumerate(self._producers)
        ]

    async def stop(self) -> None:
        """Send no more; what is under way ends as it may."""
        await _end(self._writers)
        self._writers = []

    async def close(self) -> None:
        """End all of it."""
        await self.stop()
        await _end(self._takers)
        self._takers = []

    @property
    def ok(self) -> set[str]:
        """What was acknowledged to its producer."""
        return {number for number, sent in self.sent.items() if sent.outcome == "ok"}

    async def goes_on(self, messages: int = 50) -> None:
        """Wait until that many more messages were taken."""
        wanted = len(self.ok) + messages

        def reached() -> bool:
            for task in (*self._writers, *self._takers):
                assert not task.done(), f"somebody gave up: {task}"
            return len(self.ok) >= wanted

        try:
            await until(reached, f"{messages} more messages are stored")
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.figures()} {self.refusals}") from error

    def consumer_at(self, at: int) -> Client:
        """One of those who take."""
        return self._consumers[at]

    async def comes_to(self, at: int) -> None:
        """Wait until something comes to one of those who take."""
        client, since = self._consumers[at], time.monotonic()

        def came() -> bool:
            return any(one.client is client and one.at > since for one in reversed(self.heard))

        await until(came, f"something comes to {client.address}")

    def recovery_s(self, fault: float) -> float | None:
        """How long after a fault a message was stored that was sent after it."""
        times = [
            sent.answered - fault
            for sent in self.sent.values()
            if sent.outcome == "ok" and sent.begun > fault
        ]
        return min(times, default=None)

    async def _send(self, client: Client, name: str) -> None:
        producer = await client.producer(self.queue, name=name, seq=1).open()
        for n in count():
            while self.taking.is_set() and len(self.sent) - len(self._seen) > BACKLOG_MAX:
                await asyncio.sleep(_PAUSE_S)
            number = f"{name}-{n}"
            key = f"{name}/{n % KEYS}" if n % 4 else None
            poison = self._poison and n % POISON_EVERY == POISON_EVERY - 1
            sent = self.sent[number] = Sent(key, time.monotonic(), poison)
            try:
                receipt = await producer.send(number, key=key, num=n)
            except RequestError as error:
                sent.outcome = "unknown" if error.outcome_unknown else "refused"
                self.refusals[str(error)] += 1
            except ConnectionClosed:
                pass
            else:
                assert receipt.num == n
                sent.id, sent.outcome = receipt.message, "ok"
            sent.answered = time.monotonic()
            await asyncio.sleep(_PAUSE_S)

    async def _take(self, client: Client) -> None:
        while True:
            consumer = client.consumer(self.queue, group=GROUP, credit=CREDIT)
            try:
                async for item in consumer:
                    await self._handle(client, item)
                return
            except RequestError:
                await asyncio.sleep(0.05)  # the queue is elsewhere, or nowhere for a while
            finally:
                await consumer.close()

    async def _handle(self, client: Client, item: Item) -> None:
        await self.taking.wait()
        number: str = item.data
        self._seen.add(number)
        self.heard.append(Heard(number, item.id, item.attempt, time.monotonic(), client))
        sent = self.sent.get(number)
        if sent is not None and sent.poison:
            self.nacked[number] += 1
            await item.nack()
            return
        self.acked.setdefault(number, time.monotonic())
        if await item.ack():
            self.done.setdefault(number, time.monotonic())

    async def drained(self, admin: Client) -> None:
        """Wait until all that was stored is done with, or dead."""
        await self.stop()
        seen: Any = None

        async def empty() -> bool:
            nonlocal seen
            try:
                seen = figures = await admin.inspect(self.queue)
                return bool(figures["depth"] == figures["delayed"] == 0)
            except RequestError as error:
                seen = error
                return False

        try:
            await until(empty, f"{self.queue} is empty")
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen} {self.figures()}") from error

    async def holds(self, admin: Client, *, strays: frozenset[Client] = frozenset()) -> None:
        """See that what was promised is so, now that all is drained.

        `strays` are clients of a master that was fenced: on the connection that they had to it,
        what others are done with may still come.
        """
        dead = await dead_letters(admin, self.queue)
        self.nothing_is_lost(dead)
        self.nothing_is_made_up(dead)
        self.done_is_done(strays)
        self.order_holds(dead)
        self.attempts_hold(dead)

    def lost(self, dead: dict[str, Any]) -> set[str]:
        """What was acknowledged to its producer, and never came."""
        return self.ok - {heard.number for heard in self.heard} - set(dead)

    def nothing_is_lost(self, dead: dict[str, Any]) -> None:
        lost = self.lost(dead)
        assert not lost, f"{len(lost)} of {len(self.ok)} lost: {sorted(lost)[:20]}"

    def nothing_is_made_up(self, dead: dict[str, Any]) -> None:
        ids: dict[str, set[int]] = defaultdict(set)
        for heard in self.heard:
            ids[heard.number].add(heard.id)
        for number, letter in dead.items():
            ids[number].add(int(letter.message))
        for number, found in ids.items():
            sent = self.sent.get(number)
            assert sent is not None, f"{number} was never sent"
            assert sent.outcome != "refused", f"{number} was refused, and came"
            assert len(found) == 1, f"{number} was stored as {found}"
            assert sent.outcome != "ok" or {int(sent.id)} == found, f"{number}: {sent.id}, {found}"

    def again(self) -> list[Heard]:
        """What came after somebody was told to be done with it, and was not under way then."""
        return [
            one for one in self.heard if one.at > self.done.get(one.number, one.at) + UNDER_WAY_S
        ]

    def done_is_done(self, strays: frozenset[Client]) -> None:
        again = [one for one in self.again() if one.client not in strays]
        assert not again, f"{again[:5]} were done with: {[self.done[one.number] for one in again]}"

    def order_holds(self, dead: dict[str, Any]) -> None:
        """Of a key, nothing came before all that came first was acknowledged, or had died."""
        lines: dict[str, list[Heard]] = defaultdict(list)
        for heard in self.heard:
            key = self.sent[heard.number].key
            if key is not None:
                lines[key].append(heard)
        for key, line in lines.items():
            firsts = [
                int(number.partition("-")[2]) for number in dict.fromkeys(n.number for n in line)
            ]
            assert firsts == sorted(firsts), f"{key}: {firsts}"
            open_: dict[str, None] = {}
            for heard in line:
                for number in open_:
                    free = number == heard.number or number in dead
                    free = free or self.acked.get(number, heard.at) < heard.at
                    assert free, f"{key}: {heard} came while {number} was not done"
                open_[heard.number] = None

    def attempts_hold(self, dead: dict[str, Any]) -> None:
        times: Counter[str] = Counter(heard.number for heard in self.heard)
        for heard in self.heard:
            assert heard.attempt <= ATTEMPTS_MAX, f"{heard} was tried too often"
        for number, n in times.items():
            assert n <= ATTEMPTS_MAX, f"{number} came {n} times"
        for number, letter in dead.items():
            assert letter.death.attempts == ATTEMPTS_MAX, letter
            assert number not in self.done, f"{number} was done, and died"

    def figures(self) -> dict[str, int]:
        """What happened, in numbers."""
        outcomes = Counter(sent.outcome for sent in self.sent.values())
        times = Counter(heard.number for heard in self.heard)
        return {
            "acknowledged": outcomes["ok"],
            "unknown": outcomes["unknown"],
            "refused": outcomes["refused"],
            "came again": sum(n - 1 for n in times.values()),
        }


async def dead_letters(admin: Client, queue: str) -> dict[str, Any]:
    """The dead letters by their numbers."""
    return {letter.data: letter async for letter in admin.dead_letters(queue)}


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    for result in ended:
        if isinstance(result, Exception):
            raise result
