"""Queues in more than one Redis: masters that Sentinel promotes, and a Cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from chappe.queues.record import Registered, Tried
from tests.contract.redis_storages import asking, losses, refusal, takes, until
from tests.contract.storages import (
    InRedis,
    all_of,
    committed,
    committing,
    found,
    made,
    opened,
    seen,
    started,
    stored,
)
from tests.loop import on_loop
from tests.servers import RedisCluster, RedisTrio


@pytest.fixture
def own_trio(tmp_path: Path) -> Iterator[RedisTrio]:
    trio = RedisTrio(tmp_path / "trio", down_ms=500)
    yield trio
    trio.kill()


@on_loop
async def test_another_master_goes_on_where_the_first_was(own_trio: RedisTrio):
    engine = InRedis(f"{own_trio.url}?wait=1", timeout_s=20.0)
    async with started(engine) as storage:
        lost = losses(storage)
        state = await made(storage)
        await committed(storage, state, Registered(0, "g", "c", since_ms=1))
        for n in range(20):
            await committed(storage, state, stored(state, 1, b"%d" % n), Tried(0, 1, "g", n + 1))
        before = seen(state)
        own_trio.master.kill()
        # The replica is alone from now on: nobody else could have what it has.
        commit = committing(storage, state, [stored(state, 1, b"in between")])
        await until(lambda: b"role:master" in own_trio.replica.ask("INFO", "replication"), 20)
        assert not lost
        storage.forget(state)
        assert (await refusal(commit)).outcome_unknown
    alone = InRedis(f"{own_trio.url}", timeout_s=20.0)
    alone.url = engine.url.replace("wait=1", "wait=0")
    async with started(alone) as storage:
        await until(lambda: takes(storage), 20)
        state = await opened(storage)
        there = [one.payload for one in await all_of(storage, state, 1)]
        assert there[:20] == [b"%d" % n for n in range(20)]
        assert there[20:] in ([], [b"in between"])
        if not there[20:]:
            assert seen(state) == before
        await committed(storage, state, stored(state, 1, b"after"))


@on_loop
async def test_queues_are_spread_over_a_cluster(redis_cluster: RedisCluster):
    engine = InRedis(redis_cluster.url)
    async with started(engine) as storage:
        states = []
        for n in range(30):
            state = await made(storage, key=("app", f"queue:q{n}"))
            states.append(state)
        await asyncio.gather(
            *[
                committing(storage, state, [stored(state, 1, state.address.encode())])
                for state in states
                for _ in range(5)
            ]
        )
        for state in states:
            there = await all_of(storage, state, 1)
            assert [one.payload for one in there] == [state.address.encode()] * 5
    for server in redis_cluster.servers:
        assert engine.prefix.encode() in server.ask("KEYS", f"{engine.prefix}:*:meta")


@on_loop
async def test_a_queue_goes_on_while_it_moves_to_another_server_of_a_cluster(
    redis_cluster: RedisCluster,
):
    engine = InRedis(redis_cluster.url)
    async with started(engine) as storage:
        state = await made(storage)
        await committed(storage, state, stored(state, 1), Registered(0, "g", "", since_ms=1))
        meta = f"{engine.prefix}:{{app/jobs}}:meta"
        source = next(one for one in redis_cluster.servers if one.ask("EXISTS", meta) == b":1\r\n")
        target = next(one for one in redis_cluster.servers if one is not source)
        async with asking(source) as there, asking(target) as here:
            slot = await there.execute_command("CLUSTER KEYSLOT", meta)
            ids = [await one.execute_command("CLUSTER MYID") for one in (there, here)]
            await here.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
            await there.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])
            await committed(storage, state, stored(state, 1))
            # A slot is moved whole, with what queues of the same name left in it under other
            # prefixes; this one's state, which every commit needs, comes last.
            names = await there.execute_command("CLUSTER GETKEYSINSLOT", slot, 10_000)
            names.sort(key=lambda name: name not in (meta, meta.encode()))
            await there.execute_command(
                "MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", *names[1:]
            )
            # Half of it is here, half there.
            commit = committing(storage, state, [stored(state, 1)])
            await asyncio.sleep(0.1)
            assert not commit.done()
            await there.execute_command(
                "MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", names[0]
            )
            await commit
            for one in (here, there):
                await one.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[1])
            await committed(storage, state, stored(state, 1))
            assert [one.seq for one in await all_of(storage, state, 1)] == [1, 2, 3, 4]
            assert await here.exists(meta) == 1


@on_loop
async def test_one_server_of_a_cluster_that_hangs_stops_only_its_own(tmp_path: Path):
    cluster = await asyncio.to_thread(RedisCluster, tmp_path / "cluster")
    try:
        for server in cluster.servers:
            server.tell("CONFIG", "SET", "cluster-require-full-coverage", "no")
            server.tell("CONFIG", "SET", "cluster-node-timeout", "60000")
        engine = InRedis(cluster.url, timeout_s=0.5)
        async with started(engine) as storage:
            states = [await made(storage, key=("app", f"queue:q{n}")) for n in range(12)]
            held = cluster.servers[0]
            names = held.ask("KEYS", f"{engine.prefix}:*:meta")
            held.hold()
            commits = [committing(storage, state, [stored(state, 1)]) for state in states]
            for state, commit in zip(states, commits, strict=True):
                if f"app/{state.address[6:]}}}".encode() in names:
                    assert (await refusal(commit)).outcome_unknown
                else:
                    await commit
            storage.check()
            held.resume()
            for state in states:
                async with asyncio.timeout(10):
                    while not (await found(storage, state, 1, 1, 1)).messages:
                        await asyncio.sleep(0.05)
    finally:
        cluster.kill()
