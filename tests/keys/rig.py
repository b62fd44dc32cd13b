"""A hub with handlers that do what its sessions say, on our own edge, and clients of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from chappe import Hub
from chappe.keys.options import KeysOptions

# Beats that come often enough to be waited for, and deaths that a busy machine does not fake.
OPTIONS = KeysOptions(interval_s=1.5, cache_s=0.5, answer_s=2.0)
PATIENCE_S = 30.0


def obedient(hub: Hub) -> Hub:
    """Give a hub handlers that give and take keys, and say when that is done."""

    @hub.text("/keys", type="take")
    async def take(session: Any, message: Any) -> None:
        known = await hub.subscribe(session, message.key)
        await session.send(known, type="taken", key=message.key)

    @hub.text("/keys", type="leave")
    async def leave(session: Any, message: Any) -> None:
        await session.send(
            await hub.unsubscribe(session, message.key), type="left", key=message.key
        )

    return hub


class Person:
    """A client, and what it was sent, in order."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        # What came by key: the data of a text, or bytes.
        self.got: list[Any] = []
        self._came = asyncio.Event()
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with suppress(ConnectionClosed):
            async for said in self._connection:
                if isinstance(said, bytes):
                    self.got.append(said)
                elif (message := json.loads(said))["type"] == "message":
                    self.got.append(message["data"])
                else:
                    self._replies.put_nowait(message)
                self._came.set()

    async def begin(self, kind: str, key: str) -> None:
        """Say something, whatever is answered."""
        await self._connection.send(json.dumps({"type": kind, "key": key}))

    def cut(self) -> None:
        """Be gone without a word."""
        self._connection.transport.abort()

    async def say(self, kind: str, key: str) -> dict[str, Any]:
        """Say something, and what is answered."""
        await self.begin(kind, key)
        async with asyncio.timeout(PATIENCE_S):
            return await self._replies.get()

    async def take(self, *keys: str) -> None:
        """Get keys; returns when every replica knows."""
        for key in keys:
            assert (await self.say("take", key))["data"] is True

    async def gets(self, *wanted: Any) -> None:
        """See that this has come so far, in this order, and nothing else."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.got) < len(wanted):
                self._came.clear()
                await self._came.wait()
        assert self.got == list(wanted)

    @property
    def close_code(self) -> int | None:
        return self._connection.close_code

    async def leave(self) -> None:
        await self._connection.close()
        await self.reading

    async def is_closed(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.reading


@asynccontextmanager
async def replicas(bus: str, count: int, options: KeysOptions = OPTIONS) -> AsyncIterator[Any]:
    """So many hubs on one bus, as `.hubs`, and `.person(at)` to be a client of one."""
    street = Street([obedient(Hub(bus, keys=options)) for _ in range(count)])
    # Whatever happens: a connection that is left open would hold up the loop's end.
    async with AsyncExitStack() as stack:
        for hub in street.hubs:
            stack.push_async_callback(hub.stop)
            await hub.start()
            street.ports.append(await hub.listen(0))
        stack.push_async_callback(street.leave)
        yield street


class Street:
    """Hubs on one bus, and those who are connected to them."""

    def __init__(self, hubs: list[Hub]) -> None:
        self.hubs = hubs
        self.ports: list[int] = []
        self.people: list[Person] = []

    async def leave(self) -> None:
        """Let all of them go."""
        await asyncio.gather(*(person.leave() for person in self.people))

    async def person(self, at: int, *keys: str) -> Person:
        """Somebody at one of them, who has keys."""
        address = f"ws://127.0.0.1:{self.ports[at]}/keys"
        person = Person(await connect(address, compression=None, ping_interval=None))
        self.people.append(person)
        await person.take(*keys)
        return person


async def until(true: Callable[[], Any], what: str) -> None:
    """Wait for something that no event tells of."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = true()
                if found if not asyncio.iscoroutine(found) else await found:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None
