"""Who leads queues is decided by command: `chappe queue promote`, and its HTTP route (Q10).

Promotion is manual here: nobody becomes master by itself, however long the other one is away.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack, closing

import pytest

from chappe.client import Client
from chappe.errors import Overload
from tests.servers import RedisServer

from .process import COMMAND, Api
from .replicas import NAMES, REPLICATION, Replicas
from .stories import queue_known
from .trio import LEASE_S, story, until

pytestmark = pytest.mark.timeout(200)

QUEUE = "queue:kept"
LIMIT_S = 180.0


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    registry = RedisServer(tmp_path_factory.mktemp("registry"))
    manual = REPLICATION.replace('promotion = "auto"', 'promotion = "manual"')
    try:
        replicas = Replicas(tmp_path_factory.mktemp("replicas"), registry, manual)
        yield replicas
        replicas.stop()
    finally:
        registry.kill()


async def by_command(replicas: Replicas, at: int, *more: str) -> str:
    """What the command says that makes a node the master; one that fails says why."""
    http = replicas.nodes[at].addresses["http"]
    promote = (COMMAND, "queue", "promote", replicas.broker, "--http", http, *more)
    done = await asyncio.to_thread(subprocess.run, promote, capture_output=True, timeout=60)
    assert bool(done.returncode) == bool(done.stderr), done
    return (done.stdout + done.stderr).decode().strip()


def over_http(replicas: Replicas, at: int) -> tuple[int, dict[str, object]]:
    """How the route answers that does the same."""
    with closing(Api(replicas.nodes[at], timeout_s=60)) as api:
        status, body = api.request("POST", f"/v1/brokers/{replicas.broker}/promote", b"{}")
    return status, json.loads(body)


async def taken(client: Client, count: int) -> list[int]:
    """So many numbers that a client takes and acknowledges."""
    numbers: list[int] = []
    while len(numbers) < count:
        for item in await client.fetch(QUEUE, count - len(numbers), wait_s=5):
            numbers.append(item.data)
            assert await item.ack()
    return numbers


async def sent(client: Client, *numbers: int) -> None:
    """Send to the queue, each once the one before is stored."""
    async with client.producer(QUEUE, retries=100) as producer:
        for number in numbers:
            await producer.send(number)


def test_a_master_that_is_gone_is_replaced_by_command_and_follows_when_it_is_back(
    replicas: Replicas,
) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            clients = [await replicas.client(at, f"user{at}") for at in range(3)]
            for client in clients:
                stack.push_async_callback(client.close)
            await promotes(clients)

    async def promotes(clients: list[Client]) -> None:
        await replicas.make(clients[0], QUEUE)
        await until(lambda: queue_known(QUEUE, *clients), "all nodes know the queue")
        replicas.broker = (await clients[0].inspect(QUEUE))["broker"]
        first = NAMES.index(replicas.broker)
        second, third = sorted({0, 1, 2} - {first})
        await sent(clients[second], 1, 2, 3)
        await replicas.in_sync()
        await replicas.kill(first)

        # Nobody takes its place by itself.
        await asyncio.sleep(2 * LEASE_S)
        assert not any(map(replicas.serves, (second, third)))
        with pytest.raises(Overload):
            await clients[second].send(QUEUE, 0)
        # A broker that a node knows nothing of is not promoted.
        nobody = replicas.broker
        replicas.broker = "nobody"
        assert "nobody" in await by_command(replicas, second)
        replicas.broker = nobody

        led = replicas.led()
        said = await by_command(replicas, second)
        assert said == f"ok this node is the master of {replicas.broker}"
        assert await replicas.master() == second
        assert replicas.led() == led + 1
        await sent(clients[third], 4, 5)
        came = await taken(clients[second], 2)

        # The old one is back, and follows: it has what was sent meanwhile, and does not lead.
        await replicas.start(first)
        await replicas.in_sync()
        assert await replicas.master() == second
        came += await taken(clients[first], 1)

        # It is promoted over HTTP, while the other one runs; that follows now.
        status, answer = await asyncio.to_thread(over_http, replicas, first)
        assert (status, answer) == (200, {"ok": True})
        await until(
            lambda: asyncio.to_thread(lambda: not replicas.serves(second)), "the other one follows"
        )
        assert await replicas.master() == first
        await sent(clients[second], 6)
        came += await taken(clients[third], 3)
        # All, and each once. What may have been handed out before waits a moment: no order.
        assert sorted(came) == [1, 2, 3, 4, 5, 6]
        await replicas.in_sync()

    story(run, limit_s=LIMIT_S)
