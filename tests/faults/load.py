"""A load on a cluster that goes on whatever happens, and what must hold of it.

Each message has a number of its own. What is answered `ok` to a single receiver whose connection
stays arrives, what is refused does not, and nothing comes twice to one session; a timeout is
neither, it is unknown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count

from chappe.client import Client
from chappe.errors import ConnectionClosed, RequestError

from .trio import PATIENCE_S, until

TOPIC = "topic:load"
_PAUSE_S = 0.005


class Load:
    """Clients that write to each other and to a topic all the time."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients
        self.ok: dict[str, str] = {}
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.published: list[str] = []
        # By client, everything that came.
        self.got: dict[Client, Counter[str]] = {client: Counter() for client in clients}
        # Which message each id is of: no two may have the same, whichever nodes gave it.
        self._ids: dict[int, str] = {}
        self._numbers = count()
        self._readers = [asyncio.create_task(self._read(client)) for client in clients]
        self._writers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Subscribe all, and begin."""
        for client in self.clients:
            await client.subscribe(TOPIC)
        self._writers = [
            asyncio.create_task(self._write(client, at)) for at, client in enumerate(self.clients)
        ]

    async def stop(self) -> None:
        """Let what is under way end."""
        for task in self._writers:
            task.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)
        for task in self._writers:
            if not task.cancelled():
                task.result()
        self._writers = []

    async def close(self) -> None:
        """End it, with its clients."""
        await self.stop()
        for client in self.clients:
            await client.close()
        for reader in self._readers:
            await reader

    async def _read(self, client: Client) -> None:
        async for message in client:
            self.got[client][message.data] += 1
            known = self._ids.setdefault(message.id, message.data)
            assert known == message.data, f"{known} and {message.data} have one id"

    async def _write(self, client: Client, at: int) -> None:
        for turn in count():
            others = [one for one in self.clients if one is not client]
            other = others[turn % len(others)]
            number = f"{at}-{next(self._numbers)}"
            try:
                if turn % 5:
                    await client.send(other.address, number)
                    self.ok[number] = other.address
                else:
                    await client.publish(TOPIC, number)
                    self.published.append(number)
            except RequestError as error:
                known = not getattr(error, "outcome_unknown", False)
                (self.refused if known else self.unknown).add(number)
            except ConnectionClosed:
                self.unknown.add(number)
            except asyncio.CancelledError:
                self.unknown.add(number)
                raise
            await asyncio.sleep(_PAUSE_S)

    async def goes_on(self, messages: int = 100) -> None:
        """Wait until that many more messages were taken."""
        wanted = len(self.ok) + messages
        await until(lambda: len(self.ok) >= wanted, f"{messages} more messages are taken")

    async def heals(self) -> None:
        """Wait until everybody reaches everybody, alone and by the topic."""
        for sender in self.clients:
            for receiver in self.clients:
                await self._reaches(sender, receiver)
        for sender in self.clients:
            await self._reaches_all(sender)

    async def _reaches(self, sender: Client, receiver: Client) -> None:
        number = f"heal-{next(self._numbers)}"

        async def sent() -> bool:
            try:
                await sender.send(receiver.address, number)
            except RequestError:
                return False
            return True

        await until(sent, f"{sender.address} reaches {receiver.address}")
        got = self.got[receiver]
        await until(lambda: got[number] > 0, f"{receiver.address} hears {sender.address}")
        got[number] = 1  # an answer that got lost may have made it two

    async def _reaches_all(self, sender: Client) -> None:
        async def published() -> bool:
            number = f"heal-{next(self._numbers)}"
            try:
                await sender.publish(TOPIC, number)
                async with asyncio.timeout(0.5):
                    while not all(got[number] for got in self.got.values()):
                        await asyncio.sleep(0.01)
            except (RequestError, TimeoutError):
                return False
            return True

        await until(published, f"what {sender.address} publishes reaches all")

    async def holds(self, *, all_published: bool = False) -> None:
        """See that what was promised is so, now that all is quiet."""
        await self._arrived()
        attempted = set(self.ok) | self.refused | self.unknown | set(self.published)
        for client, got in self.got.items():
            twice = {number: n for number, n in got.items() if n > 1}
            assert not twice, f"{client.address} got {twice}"
            seen = {number for number in got if not number.startswith("heal")}
            assert seen <= attempted, f"{client.address} got what nobody sent"
            assert not seen & self.refused, f"{client.address} got what was refused"
            if all_published:
                await self._heard(client)

    async def _heard(self, client: Client) -> None:
        wanted, got = set(self.published), self.got[client]
        await until(lambda: wanted <= set(got), f"{client.address} hears all that was published")

    async def _arrived(self) -> None:
        """Wait for what was taken for receivers whose connections stayed."""
        by_address = {client.address: client for client in self.clients}

        def lost() -> list[str]:
            return [
                number
                for number, to in self.ok.items()
                if not by_address[to].reconnects and number not in self.got[by_address[to]]
            ]

        async with asyncio.timeout(PATIENCE_S):
            while missing := lost():
                await asyncio.sleep(0.02)
        assert not missing
