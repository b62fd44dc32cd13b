"""The durable queues of a node: they stay with its folder, whatever it is called (Q11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from chappe.client import Client, connect
from chappe.node.options import JOURNALS
from chappe.node.workers import _take_along
from tests.node.running import running

QUEUE = "queue:orders"


def run(test: Any) -> None:
    uvloop.run(asyncio.wait_for(test, 60))


def data_of(folder: Path) -> Path:
    return folder / "data"


@asynccontextmanager
async def entered(folder: Path, **options: Any) -> AsyncIterator[Client]:
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(running(folder, **options))
        yield await stack.enter_async_context(connect(node.addresses()["tcp"], as_="user:a"))


async def put(folder: Path, data: Any, **options: Any) -> None:
    async with entered(folder, **options) as client, client.producer(QUEUE) as producer:
        await producer.send(data)


async def taken(folder: Path, **options: Any) -> list[Any]:
    async with entered(folder, **options) as client:
        found = await client.fetch(QUEUE, 10, wait_s=5)
        for item in found:
            await item.nack()
        return [item.data for item in found]


def test_a_node_that_gets_another_name_keeps_its_queues(tmp_path: Path) -> None:
    async def test() -> None:
        await put(tmp_path, 1)
        await put(tmp_path, 2, name="alpha")
        assert await taken(tmp_path, name="beta") == [1, 2]
        # Without a name it is called as its journal is.
        assert await taken(tmp_path) == [1, 2]
        assert [one.name for one in (data_of(tmp_path) / JOURNALS).iterdir()] == ["beta"]

    run(test())


def test_the_first_worker_goes_on_with_what_was_there_without_workers(tmp_path: Path) -> None:
    async def test() -> None:
        await put(tmp_path, 1)
        first = data_of(tmp_path) / "worker-1"
        _take_along(data_of(tmp_path), first)
        assert not (data_of(tmp_path) / JOURNALS).exists()
        _take_along(data_of(tmp_path), first)
        assert await taken(tmp_path, data=str(first)) == [1]

    run(test())
