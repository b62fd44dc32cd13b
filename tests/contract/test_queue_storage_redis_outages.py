"""A Redis that queues are kept in dies, pauses, forgets, or would forget."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chappe.errors import ConfigError, Overload
from chappe.queues.record import Registered
from chappe.queues.redis import open_redis
from tests.contract.redis_storages import asking, losses, refusal, takes, until
from tests.contract.storages import (
    LIMITS,
    InRedis,
    all_of,
    committed,
    committing,
    made,
    opened,
    seen,
    started,
    stored,
)
from tests.loop import on_loop
from tests.servers import RedisServer


@on_loop
async def test_nothing_committed_is_lost_when_redis_is_killed(own_server: RedisServer):  # Q11
    engine = InRedis(own_server.url)
    async with started(engine) as storage:
        state = await made(storage)
        commits = [committing(storage, state, [stored(state, 1, b"%d" % n)]) for n in range(50)]
        await asyncio.gather(*commits)
        own_server.kill()
        # What is under way when it dies is carried out when it is back, once.
        under_way = [committing(storage, state, [stored(state, 1, b"u")]) for _ in range(10)]
        await until(lambda: not takes(storage))
        await asyncio.to_thread(own_server.start)
        await asyncio.gather(*under_way)
        await until(lambda: takes(storage))
        before = seen(state)
    async with started(engine) as storage:
        state = await opened(storage)
        assert seen(state) == before
        there = await all_of(storage, state, 1)
        assert [one.payload for one in there] == [b"%d" % n for n in range(50)] + [b"u"] * 10


@on_loop
async def test_while_redis_pauses_nobody_knows_and_then_it_heals(own_server: RedisServer):
    engine = InRedis(own_server.url, timeout_s=0.3)
    async with started(engine) as storage, asking(own_server) as client:
        state = await made(storage)
        await client.client_pause(1_500, all=False)
        first = committing(storage, state, [stored(state, 1, b"first")])
        await asyncio.sleep(0.1)
        second = committing(storage, state, [stored(state, 1, b"second")])
        for commit in (first, second):
            error = await refusal(commit)
            assert error.outcome_unknown
            assert "no answer in time" in error.reason
        await until(lambda: not takes(storage))
        await until(lambda: takes(storage))
        await committed(storage, state, stored(state, 1, b"third"))
        there = await all_of(storage, state, 1)
        assert [one.payload for one in there] == [b"first", b"second", b"third"]


@on_loop
async def test_a_queue_opened_again_after_a_doubt_knows_what_became_of_it(own_server: RedisServer):
    engine = InRedis(own_server.url, timeout_s=0.3)
    async with started(engine) as storage, asking(own_server) as client:
        state = await made(storage)
        await client.client_pause(1_000, all=False)
        assert (await refusal(committing(storage, state, [stored(state, 1)]))).outcome_unknown
        storage.forget(state)
        with pytest.raises(Overload):
            await opened(storage)
        back: list[None] = []
        storage.back = lambda: back.append(None)
        await until(lambda: bool(back))
        again = await opened(storage)
        await committed(storage, again, stored(again, 1))
        there = await all_of(storage, again, 1)
        assert [one.seq for one in there] == list(range(1, again.heads[1] + 1))


@pytest.mark.parametrize("how", ["empty", "older"])
@on_loop
async def test_a_redis_that_forgot_is_found_out(own_server: RedisServer, how: str):
    engine = InRedis(own_server.url)
    async with started(engine) as storage, asking(own_server) as client:
        lost = losses(storage)
        state = await made(storage)
        meta = f"{engine.prefix}:{{app/jobs}}:meta"
        await committed(storage, state, stored(state, 1, b"1"))
        older = await client.hget(meta, "commit")
        await committed(storage, state, stored(state, 1, b"2"))
        if how == "empty":
            own_server.flush()
        else:
            await client.hset(meta, "commit", older)
            await client.xdel(f"{engine.prefix}:{{app/jobs}}:lane:1", "2-0")
        error = await refusal(committing(storage, state, [stored(state, 1, b"3")]))
        assert "gone from Redis" in error.reason
        assert not error.outcome_unknown
        assert len(lost) == 1
        storage.forget(state)
        again = await opened(storage)
        there = await all_of(storage, again, 1) if again.lanes else []
        assert [one.payload for one in there] == ([] if how == "empty" else [b"1"])


@on_loop
async def test_a_redis_that_takes_no_writes_is_waited_for(own_server: RedisServer):
    engine = InRedis(own_server.url)
    async with started(engine) as storage, asking(own_server) as client:
        state = await made(storage)
        for refuse, allow in (
            (("maxmemory", "1"), ("maxmemory", "0")),
            (("min-replicas-to-write", "3"), ("min-replicas-to-write", "0")),
        ):
            await client.config_set(*refuse)
            commit = committing(storage, state, [stored(state, 1)])
            await until(lambda: not takes(storage))
            assert not commit.done()
            await client.config_set(*allow)
            await commit
            await until(lambda: takes(storage))
        assert [one.seq for one in await all_of(storage, state, 1)] == [1, 2]


@on_loop
async def test_a_commit_waits_for_replicas(own_server: RedisServer, tmp_path: Path):
    engine = InRedis(f"{own_server.url}?wait=1&wait_ms=50", timeout_s=0.5)
    async with started(engine) as storage:
        state = await opened(storage)
        error = await refusal(committing(storage, state, [Registered(0, "g", "", since_ms=1)]))
        assert error.outcome_unknown
        with pytest.raises(Overload, match="0 of 1 replicas"):
            storage.check()
    where = {"replicaof": f"127.0.0.1 {own_server.port}", "repl-diskless-sync-delay": "0"}
    replica = await asyncio.to_thread(RedisServer, tmp_path / "replica", where)
    try:
        engine = InRedis(f"{own_server.url}?wait=1&wait_ms=50")
        async with started(engine) as storage:
            state = await made(storage)
            await committed(storage, state, stored(state, 1, b"kept"))
            own_server.kill()
            assert b"kept" in replica.ask(
                "XRANGE", f"{engine.prefix}:{{app/jobs}}:lane:1", "-", "+"
            )
            await asyncio.to_thread(own_server.start)
    finally:
        replica.kill()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"appendonly": "no"}, "appendonly is off"),
        ({"appendfsync": "no"}, "appendfsync is no"),
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, "allkeys-lru"),
        ({}, "CONFIG is refused"),
    ],
)
@on_loop
async def test_a_redis_that_would_forget_is_refused(
    tmp_path: Path, settings: dict[str, str], said: str
):
    server = await asyncio.to_thread(RedisServer, tmp_path / "redis", settings)
    try:
        if not settings:
            server.tell("ACL", "SETUSER", "default", "-config")
        engine = InRedis(server.url)
        with pytest.raises(ConfigError, match=said):
            await engine.start()
        storage = open_redis(engine.url, LIMITS)
        with pytest.raises(Overload, match=said):
            await opened(storage)
        await storage.close()
        async with started(InRedis(f"{server.url}?aof=any")) as storage:
            state = await made(storage)
            await committed(storage, state, stored(state, 1))
    finally:
        server.kill()


@on_loop
async def test_everysec_is_good_enough(tmp_path: Path):
    server = await asyncio.to_thread(RedisServer, tmp_path / "redis", {"appendfsync": "everysec"})
    try:
        async with started(InRedis(server.url)) as storage:
            await made(storage)
    finally:
        server.kill()


@on_loop
async def test_a_redis_that_is_away_at_first_is_found_later(own_server: RedisServer):
    own_server.kill()
    async with started(InRedis(own_server.url, timeout_s=2.0)) as storage:
        with pytest.raises(Overload):
            storage.check()
        with pytest.raises(Overload):
            await opened(storage)
        await asyncio.to_thread(own_server.start)
        await until(lambda: takes(storage))
        await made(storage)
