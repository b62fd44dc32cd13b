"""Masters of replicated queues are killed, paused and cut off (Q10).

Each node has clients of its own that know no other: they are still there when their node is a
master that others have replaced, and what it would take from them then would be lost, or come
again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from chappe.client import Client
from tests.servers import RedisServer, ZooKeeperServer

from .figures import FULL, percentiles, tell
from .replicas import PAUSE_S, Replicas
from .stories import queue_known
from .trio import story, until
from .work import QUEUE, Work

pytestmark = pytest.mark.timeout(3_600 if FULL else 200)

RUNS = 50 if FULL else 2
# What a master that lives on may do: a run of each is little, beside those whose master dies.
RUNS_ALIVE = 50 if FULL else 1
# The runs before which the registry forgets everything: every fifth, or the second of a few.
FORGETFUL = range(4, RUNS, 5) if FULL else range(1, RUNS)
LIMIT_S = 3_500.0 if FULL else 190.0
# Does something to the node that is master, and returns how to undo it.
Fault = Callable[[Replicas, int], Awaitable[Callable[[], Awaitable[None]]]]


REGISTRIES = [RedisServer, ZooKeeperServer] if FULL else [RedisServer]


@pytest.fixture(scope="module", params=REGISTRIES, ids=lambda kind: kind.package)
def replicas(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas]:
    registry: RedisServer | ZooKeeperServer = request.param(tmp_path_factory.mktemp("registry"))
    try:
        replicas = Replicas(tmp_path_factory.mktemp("replicas"), registry)
        yield replicas
        replicas.stop()
    finally:
        registry.kill()


@asynccontextmanager
async def at_work(replicas: Replicas, name: str) -> AsyncIterator[tuple[Work, list[Client]]]:
    """A producer and a consumer of a queue on each node."""
    async with AsyncExitStack() as stack:
        people: list[Client] = []
        for who in ("producer", "consumer", "admin"):
            for at in range(3):
                people.append(await replicas.client(at, f"{name}-{who}{at}"))
                stack.push_async_callback(people[-1].close)
        producers, consumers, admins = people[:3], people[3:6], people[6:]
        if not await admins[0].presence(QUEUE):
            await replicas.make(admins[0], QUEUE, lanes=2, retry_s=0.05)
        await until(lambda: queue_known(QUEUE, *admins), "all nodes know the queue")
        replicas.broker = (await admins[0].inspect(QUEUE))["broker"]
        work = Work(producers, consumers, name=name)
        stack.push_async_callback(work.close)
        await work.start()
        await work.goes_on(30)
        yield work, admins


async def suffers(
    replicas: Replicas, name: str, fault: Fault, before: Callable[[], None], runs: int = RUNS
) -> None:
    """Let the master suffer again and again, and see that nothing is lost."""
    times_s: list[float] = []
    kind = replicas.registry.package
    # The registry changes little: once in full is enough.
    runs = runs if isinstance(replicas.registry, RedisServer) else runs // 5
    async with at_work(replicas, name) as (work, admins):
        strays: set[Client] = set()
        for run in range(runs):
            if run in FORGETFUL:
                await forgets(replicas, before)
                await work.goes_on(30)
            master = await replicas.master()
            work.taking.clear()
            await work.goes_on(20)
            if run % 2:
                work.taking.set()
            began = time.monotonic()
            undo = await fault(replicas, master)
            work.taking.set()
            await replicas.master(but=master)
            await work.goes_on(10)
            times_s.append(work.recovery_s(began) or 0.0)
            # Also to those whose own connections never broke.
            for other in {0, 1, 2} - {master}:
                await work.comes_to(other)
            await undo()
            strays.add(work.consumer_at(master))
            await work.goes_on(30)
            await replicas.master()
        await work.drained(admins[0])
        await work.holds(admins[0], strays=frozenset(strays))
        await replicas.in_sync()
        tell(
            f"master {name}, acknowledged replication, {kind}",
            runs=runs,
            lost=0,
            **percentiles("recovery", times_s),
            **work.figures(),
            strays=len(work.again()),
        )


async def forgets(replicas: Replicas, restart: Callable[[], None]) -> None:
    """Restart the registry, and wait until the master has written down again what it forgot."""
    led = replicas.led()
    await asyncio.to_thread(restart)
    if isinstance(replicas.registry, RedisServer):
        # Who dies before that is waited for: nobody else knows who has all.
        await until(lambda: replicas.led() > led, "it is written down again")


async def kill(replicas: Replicas, master: int) -> Callable[[], Awaitable[None]]:
    await replicas.kill(master)
    return lambda: replicas.start(master)


async def pause(replicas: Replicas, master: int) -> Callable[[], Awaitable[None]]:
    replicas.nodes[master].hold()
    woken = asyncio.get_running_loop().time() + PAUSE_S

    async def resume() -> None:
        await asyncio.sleep(max(0.0, woken - asyncio.get_running_loop().time()))
        replicas.nodes[master].resume()

    return resume


async def cut(replicas: Replicas, master: int) -> Callable[[], Awaitable[None]]:
    await asyncio.to_thread(replicas.network.cut, f"n{master}")
    return lambda: asyncio.to_thread(replicas.network.heal)


def restart(replicas: Replicas) -> Callable[[], None]:
    """A registry that was restarted: a Redis has forgotten everything then."""
    registry = replicas.registry
    if isinstance(registry, RedisServer):
        return lambda: registry.restart(empty=True)
    return registry.restart


def test_a_queue_that_all_nodes_make_at_once_is_one(replicas: Replicas) -> None:  # Q3
    async def run() -> None:
        clients = [await replicas.client(at, f"maker{at}") for at in range(3)]
        for n in range(5):
            queue = f"queue:made-{n}"

            async def make(client: Client, queue: str = queue) -> None:
                async with client.producer(queue) as producer:
                    await producer.send(client.address)

            await asyncio.gather(*map(make, clients))
            items = []
            while len(items) < 3:
                items += await clients[0].fetch(queue, 3, wait_s=5)
            assert {item.data for item in items} == {client.address for client in clients}
        for client in clients:
            await client.close()

    story(run)


def test_nothing_acknowledged_is_lost_when_a_master_is_killed(replicas: Replicas) -> None:
    story(suffers, replicas, "killed", kill, restart(replicas), limit_s=LIMIT_S)


def test_a_master_that_was_paused_takes_nothing_any_more(replicas: Replicas) -> None:
    story(suffers, replicas, "paused", pause, restart(replicas), RUNS_ALIVE, limit_s=LIMIT_S)


def test_a_master_that_was_cut_off_takes_nothing_any_more(replicas: Replicas) -> None:
    story(suffers, replicas, "cut", cut, restart(replicas), RUNS_ALIVE, limit_s=LIMIT_S)


def test_queues_go_on_after_a_registry_has_forgotten_them(replicas: Replicas) -> None:
    async def run() -> None:
        async with at_work(replicas, "forgotten") as (work, admins):
            await asyncio.to_thread(restart(replicas))
            await work.goes_on(30)
            master = await replicas.master()
            # Forgotten, and its master dead: nobody knows who has all, so all wait for it.
            await asyncio.to_thread(restart(replicas))
            await replicas.kill(master)
            await replicas.start(master)
            await work.goes_on(30)
            await work.drained(admins[0])
            await work.holds(admins[0])

    story(run, limit_s=LIMIT_S)


def test_a_damaged_copy_is_fetched_again_and_never_leads(replicas: Replicas) -> None:
    async def run() -> None:
        async with at_work(replicas, "damaged") as (work, admins):
            work.taking.clear()
            await work.goes_on(60)
            master = await replicas.master()
            await replicas.kill(master)
            work.taking.set()
            replicas.damage(master)
            # At once: it was master when it died, and nobody else is it yet.
            await replicas.start(master)
            await work.goes_on(30)
            assert await replicas.master() != master
            assert "journal damaged" in replicas.nodes[master].log()
            await work.drained(admins[0])
            await work.holds(admins[0])
            await replicas.in_sync()

    story(run, limit_s=LIMIT_S)
