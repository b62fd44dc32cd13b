"""The bus when servers of a Redis change: masters that die, slots that move, TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.cluster import key_slot

from chappe import Hub, KeysOptions
from chappe.redis.calls import Failure
from tests.cluster.bus.test_redis import attempt, bus_of
from tests.keys.rig import OPTIONS, obedient, replicas, until
from tests.loop import on_loop
from tests.servers import RedisCluster, RedisTrio

QUICK = KeysOptions(interval_s=1.0, timeout_s=1.0, cache_s=0.3)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RedisCluster]:
    """A Cluster for one test, which may do to it what it likes."""
    servers = RedisCluster(tmp_path / "cluster")
    yield servers
    servers.kill()


@asynccontextmanager
async def clients(cluster: RedisCluster) -> AsyncIterator[list[Redis]]:
    found = [Redis(port=server.port) for server in cluster.servers]
    try:
        yield found
    finally:
        for client in found:
            await client.aclose()


async def move(cluster: RedisCluster, channel: str) -> None:
    """Give the slot of a channel, which somebody listens on, to another server."""
    slot = key_slot(channel.encode())
    async with clients(cluster) as servers:
        names = [(await one.execute_command("CLUSTER MYID")).decode() for one in servers]
        heard = [await one.execute_command("PUBSUB", "SHARDNUMSUB", channel) for one in servers]
        owner = next(at for at, (_, count) in enumerate(heard) if count)
        other = (owner + 1) % len(servers)
        say = "CLUSTER SETSLOT"
        await servers[other].execute_command(say, slot, "IMPORTING", names[owner])
        await servers[owner].execute_command(say, slot, "MIGRATING", names[other])
        for one in (servers[other], servers[owner], *servers):
            await one.execute_command(say, slot, "NODE", names[other])


@on_loop
async def test_a_channel_whose_slot_moves_is_listened_on_where_it_is(cluster: RedisCluster):
    async with replicas(cluster.url, 2) as street:
        person, hub = await street.person(1, "k"), street.hubs[1]
        await move(cluster, f"chappe:{hub.name}")

        async def heard() -> bool:
            return await attempt(street.hubs[0], "key:k", "there") == 1

        await until(heard, "it hears again")
        await until(lambda: hub.counts()["bus_up"], "and is heard")
        assert "there" in person.got


@on_loop
async def test_who_starts_while_a_cluster_is_away_hears_as_others_do(cluster: RedisCluster):
    async with replicas(cluster.url, 1) as street:
        for server in cluster.servers:
            server.hold()
        late = obedient(Hub(cluster.url, keys=OPTIONS))
        await late.start()
        for server in cluster.servers:
            server.resume()
        try:
            hubs = (late, street.hubs[0])
            await until(lambda: all(hub.counts()["bus_up"] for hub in hubs), "both are up")
            person = await street.person(0, "k")
            assert await late.send("key:k", 1) == 1
            await person.gets(1)
        finally:
            await late.stop()


@on_loop
async def test_who_cannot_be_reached_keeps_nothing_from_others(cluster: RedisCluster):
    async with replicas(cluster.url, 3) as street:
        _, reached = await street.person(1, "k"), await street.person(2, "k")
        calls, cut = bus_of(street.hubs[0])._calls, f"chappe:{street.hubs[1].name}"
        run = calls.run

        async def cut_off(key: str, *commands: Any, **more: Any) -> Any:
            if key == cut:
                raise Failure("its server", temporary=True, maybe_done=True, everywhere=False)
            return await run(key, *commands, **more)

        calls.run = cut_off  # type: ignore[method-assign]
        for number in range(5):
            await attempt(street.hubs[0], "key:k", number)
        await reached.gets(*range(5))
        assert street.hubs[0].counts()["bus_up"]


@on_loop
async def test_when_a_master_dies_the_bus_goes_on_with_the_next(tmp_path: Path):
    trio = RedisTrio(tmp_path / "trio", down_ms=1_000)
    try:
        async with replicas(trio.url, 2, QUICK) as street:
            near, far = await street.person(0, "k"), await street.person(1, "k")
            assert await street.hubs[0].send("key:k", 0) == 2
            await asyncio.to_thread(trio.master.kill)
            numbers = iter(range(1, 10_000))

            async def healed() -> bool:
                found = [await attempt(hub, "key:k", next(numbers)) for hub in street.hubs]
                return found == [2, 2]

            await until(healed, "a new master serves")
            last = next(numbers) - 1
            for person in (near, far):
                await until(lambda: last in person.got, "it arrives")  # noqa: B023
                assert len(set(person.got)) == len(person.got)
    finally:
        trio.kill()
