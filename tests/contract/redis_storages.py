"""Storages in Redis as tests see them: whether they take something, what they lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from chappe.errors import Overload, RequestError
from chappe.queues.redis import RedisStorage
from chappe.queues.state import QueueState
from chappe.redis.script import Script
from tests.servers import RedisServer


@asynccontextmanager
async def asking(server: RedisServer) -> AsyncIterator[Any]:
    """A client of the test's own."""
    client: Any = Redis(port=server.port, encoding="latin-1", decode_responses=True)
    try:
        yield client
    finally:
        await client.aclose()


async def until(true: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not true():
            await asyncio.sleep(0.01)


def takes(storage: RedisStorage) -> bool:
    """Whether a storage says that it takes something."""
    try:
        storage.check()
    except Overload:
        return False
    return True


def losses(storage: RedisStorage) -> list[tuple[QueueState, RequestError]]:
    told: list[tuple[QueueState, RequestError]] = []
    storage.lost = lambda state, error: told.append((state, error))
    return told


async def refusal(commit: asyncio.Future[None]) -> Overload:
    with pytest.raises(Overload) as refused:
        await commit
    return refused.value


class Wire:
    """Stands between a storage and its scripts: answers get lost, calls come again late."""

    def __init__(self, storage: RedisStorage) -> None:
        self._calls = storage._calls
        self._run = self._calls.run_script
        self._calls.run_script = self.run_script  # type: ignore[method-assign]
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.losing = 0

    async def run_script(self, *arguments: Any, **more: Any) -> Any:
        self.calls.append((arguments, more))
        answer = await self._run(*arguments, **more)
        if self.losing:
            self.losing -= 1
            raise self._calls._broken(ConnectionError("the answer was lost"))
        return answer

    async def again(self, script: Script) -> None:
        """All calls of a script come again, as from a buffer somewhere."""
        for arguments, more in [call for call in self.calls if call[0][0] is script]:
            await self._run(*arguments, **more)
