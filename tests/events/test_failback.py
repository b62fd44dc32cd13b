"""What is told of queues whose master goes and comes back: each thing once, by whoever did it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from chappe.client import Client
from chappe.errors import Overload
from chappe.node.sealing import seal
from tests.events.tables import Row, check_serials, of, rows, until_told
from tests.events.test_untold import KINDS, told
from tests.faults.process import Api
from tests.faults.replicas import NAMES, REPLICATION, Replicas
from tests.faults.stories import queue_known
from tests.faults.trio import story, until
from tests.servers import RedisServer

pytestmark = pytest.mark.timeout(200)

QUEUE = "queue:kept"
MANUAL = REPLICATION.replace('promotion = "auto"', 'promotion = "manual"')
EVENTS = "[events]\nenabled = true\nshare = 0.0\nseal_s = 3600\n"


@pytest.fixture
def replicas(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Replicas]:
    monkeypatch.delenv("CHAPPE_EVENTS_ENABLED")
    replicas = Replicas(tmp_path, redis_server, MANUAL + EVENTS)
    yield replicas
    replicas.stop()


def folder_of(replicas: Replicas, at: int) -> Path:
    return replicas.nodes[at].data / "events"


def promote(replicas: Replicas, at: int) -> None:
    with closing(Api(replicas.nodes[at], timeout_s=60)) as api:
        status, body = api.request("POST", f"/v1/brokers/{replicas.broker}/promote", b"{}")
    assert (status, json.loads(body)) == (200, {"ok": True})


async def work(client: Client, *numbers: int) -> None:
    """Send these, and take one message."""
    producer = client.producer(QUEUE, retries=100)

    async def opened() -> bool:
        # Until it is known who leads the journal, nobody can be served.
        with suppress(Overload):
            await producer.open()
            return True
        return False

    await until(opened, "the queue is served")
    async with producer:
        for number in numbers:
            await producer.send(number)
    taken: list[object] = []
    while not taken:
        for item in await client.fetch(QUEUE, 1, wait_s=5):
            assert await item.ack()
            taken.append(item)


async def comes_back(replicas: Replicas, first: int, second: Client, *numbers: int) -> None:
    """While a master is away another works; then it is back, follows, and leads again."""
    at = next(n for n in range(3) if n != first)
    await asyncio.to_thread(promote, replicas, at)
    assert await replicas.master() == at
    await work(second, *numbers)
    await replicas.start(first)
    await replicas.in_sync()
    assert await replicas.master() == at
    await asyncio.to_thread(promote, replicas, first)
    assert await replicas.master(but=at) == first


def test_a_master_that_comes_back_tells_what_it_did_and_not_what_another_told(
    replicas: Replicas, tmp_path: Path
) -> None:
    async def run() -> None:
        clients = [await replicas.client(at, f"user{at}") for at in range(3)]
        try:
            await fails_over_twice(clients)
        finally:
            for client in clients:
                await client.close()

    async def fails_over_twice(clients: list[Client]) -> None:
        await replicas.make(clients[0], QUEUE)
        await until(lambda: queue_known(QUEUE, *clients), "all nodes know the queue")
        replicas.broker = (await clients[0].inspect(QUEUE))["broker"]
        first = NAMES.index(replicas.broker)
        other = clients[next(n for n in range(3) if n != first)]
        events = folder_of(replicas, first)
        log = events / "_log" / replicas.broker
        await asyncio.to_thread(until_told, log)
        shutil.copytree(events, tmp_path / "before")
        await work(other, 1, 2, 3)
        await replicas.in_sync()
        await replicas.kill(first)
        # As if it had been killed before it said a word of what it had just stored.
        shutil.rmtree(events)
        shutil.copytree(tmp_path / "before", events)
        await comes_back(replicas, first, other, 4, 5)

        # Now it says all, so that another goes on exactly where its last word was.
        await work(other, 6)
        await asyncio.to_thread(until_told, log)
        await replicas.in_sync()
        await replicas.kill(first)
        await comes_back(replicas, first, other, 7, 8)

    story(run, limit_s=180.0)
    for node in replicas.nodes:
        node.stop()
    table: list[Row] = []
    for at in range(3):
        seal(folder_of(replicas, at))
        table += rows(folder_of(replicas, at))
    check_serials(table)
    assert max(told(table).values()) == 1
    stored, acked = of(table, "stored"), of(table, "acked")
    assert (len(stored), len(acked)) == (8, 4)
    first = replicas.broker
    mine = [row for row in of(table, *KINDS) if row["node"] == first]
    # What it had no time to tell, it told when it was back.
    assert [row["kind"] for row in mine if row.get("reason") == "recovered"] == [
        *["stored"] * 3,
        "acked",
    ]
    assert len(mine) == 4 + 2
