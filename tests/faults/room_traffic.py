"""Messages to rooms that go on whatever happens: what came, what came twice, what was lost when.

Each message has a number of its own, and all members are in all rooms: so every member is to have
every number.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import NamedTuple

from chappe.client import Client
from chappe.errors import ConnectionClosed, RequestError

from .rooms_layout import RoomsLayout
from .rooms_up import RoomsUp
from .trio import PATIENCE_S

ROOMS = tuple(f"room:{number}" for number in range(8))
# So many messages a second where it does not matter how many.
RATE = 100.0
# What is on its way when a publisher stops has arrived by then, or never does.
SETTLE_S = 0.5
# Publishing goes on while answers are awaited, to so many.
_UNDER_WAY_MAX = 400


class Sent(NamedTuple):
    """A message that was taken."""

    room: str
    at: float


class Traffic:
    """Publishers that write to rooms in turn, and members that hear all of it."""

    def __init__(
        self,
        publishers: Sequence[Client],
        members: Sequence[Client],
        *,
        rate: float,
        reliable: bool = False,
        rooms: Sequence[str] = ROOMS,
        steady: bool = False,
    ) -> None:
        self._publishers = publishers
        self.members = members
        self._rate = rate
        self._reliable = reliable
        self.rooms = rooms
        # Whether what could not be in time is not made up for: so no two leave together.
        self._steady = steady
        self.sent: dict[int, Sent] = {}
        self.refused = 0
        self.unknown: set[int] = set()
        # By member: how often each number came, and the numbers of each room in their order.
        self.got: list[Counter[int]] = [Counter() for _ in members]
        self.order: list[dict[str, list[int]]] = [{} for _ in members]
        # By publisher: the first number is not known before its message is taken.
        self._numbers = count()
        self._readers: list[asyncio.Task[None]] = []
        self._writer: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Join all, and begin."""
        self._readers = [
            asyncio.create_task(self._read(at, member)) for at, member in enumerate(self.members)
        ]
        for member in self.members:
            await asyncio.gather(*(member.join(room) for room in self.rooms))
        self._writer = asyncio.create_task(self._write())

    async def stop(self) -> None:
        """Publish no more, and wait for what is under way."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.wait([self._writer])
            if not self._writer.cancelled():
                self._writer.result()
            self._writer = None
        if self._asking:
            await asyncio.wait(self._asking)
        await asyncio.sleep(SETTLE_S)

    async def close(self) -> None:
        """End it; members hear nothing more."""
        await self.stop()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def published(self, n: int) -> None:
        """Wait until so many more were taken."""
        until = len(self.sent) + n
        async with asyncio.timeout(PATIENCE_S + 4 * n / self._rate):
            while len(self.sent) < until:
                await asyncio.sleep(0.02)

    async def publish(self, room: str, number: int) -> None:
        """Publish one more, which is not counted."""
        await self._publishers[0].publish(room, number)

    def lost(self, at: int, since: float = 0.0, until: float = math.inf) -> list[int]:
        """Numbers that a member has not got, of those published between two moments."""
        got = self.got[at]
        return [n for n, one in self.sent.items() if since <= one.at < until and n not in got]

    def last_loss(self, since: float, until: float = math.inf) -> float:
        """How long after a moment the last message was published that somebody has not got."""
        members = range(len(self.members))
        times = [self.sent[n].at for at in members for n in self.lost(at, since, until)]
        return max(times, default=since) - since

    def twice(self) -> list[int]:
        """Numbers that came twice to somebody."""
        return [n for got in self.got for n, times in got.items() if times > 1]

    def disordered(self) -> Iterator[tuple[str, int, int]]:
        """Of one publisher's messages to a room, those that were overtaken: by what."""
        for order in self.order:
            for room, numbers in order.items():
                last: dict[int, int] = {}
                for number in numbers:
                    whose = number % len(self._publishers)
                    if number < last.get(whose, -1):
                        yield room, number, last[whose]
                    last[whose] = max(number, last.get(whose, -1))

    async def _read(self, at: int, member: Client) -> None:
        got, order = self.got[at], self.order[at]
        async for message in member:
            number = message.data
            got[number] += 1
            order.setdefault(message.to, []).append(number)

    async def _write(self) -> None:
        """Publish so many a second."""
        due = time.monotonic()
        for number in self._numbers:
            due += 1 / self._rate
            left = due - time.monotonic()
            if left > 0 or number % 16 == 0 or self._steady:
                await asyncio.sleep(max(left, 0.0) or 1 / self._rate * self._steady)
            if len(self._asking) >= _UNDER_WAY_MAX:
                await asyncio.wait(self._asking, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.create_task(self._publish(number))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _publish(self, number: int) -> None:
        whose = number % len(self._publishers)
        # Every publisher to every room, whatever their numbers.
        room = self.rooms[number // len(self._publishers) % len(self.rooms)]
        at = time.monotonic()
        try:
            await self._publishers[whose].publish(room, number, reliable=self._reliable)
        except ConnectionClosed:
            self.unknown.add(number)
        except RequestError as error:
            if getattr(error, "outcome_unknown", False):
                self.unknown.add(number)
            else:
                self.refused += 1
        else:
            self.sent[number] = Sent(room, at)


@asynccontextmanager
async def going_on(traffic: Traffic) -> AsyncIterator[Traffic]:
    """Have traffic while something happens."""
    await traffic.start()
    try:
        yield traffic
    finally:
        await traffic.close()


@asynccontextmanager
async def members_everywhere(
    layout: RoomsLayout | RoomsUp, rate: float = RATE, *others: int
) -> AsyncIterator[Traffic]:
    """Publishers on the first gateway, and a member on each of both."""
    async with AsyncExitStack() as stack:
        publishers = [
            await stack.enter_async_context(layout.client(f"p{at}", 0)) for at in range(2)
        ]
        stays = await stack.enter_async_context(layout.client("stays", 0))
        wanders = await stack.enter_async_context(layout.client("wanders", 1, *others))
        yield await stack.enter_async_context(
            going_on(Traffic(publishers, [stays, wanders], rate=rate))
        )
