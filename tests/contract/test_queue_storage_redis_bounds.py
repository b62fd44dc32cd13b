"""What queues in Redis take of memory, and what may be under way to it."""

from __future__ import annotations

import asyncio
import tracemalloc

from chappe.errors import Overload
from chappe.queues.redis import RedisStorage
from chappe.queues.redis.storage import READ_BYTES_MAX
from chappe.queues.state import QueueState
from tests.contract.redis_storages import takes
from tests.contract.storages import (
    InRedis,
    committed,
    committing,
    found,
    made,
    opened,
    started,
    stored,
)
from tests.loop import on_loop
from tests.servers import RedisServer


@on_loop
async def test_a_long_backlog_takes_no_memory_here(redis_server: RedisServer):
    body = b"x" * 128
    engine = InRedis(redis_server.url)
    async with started(engine) as storage:
        state = await made(storage)
        for _ in range(50):
            await committed(
                storage, state, *[stored(state, 1, body, ahead=n) for n in range(1, 2_001)]
            )
        storage.forget(state)
        tracemalloc.start()
        try:
            state = await opened(storage)
            seq, count = 1, 0
            while seq <= state.heads[1]:
                page = await found(storage, state, 1, seq, 1_000)
                assert page.error is None
                count += len(page.messages)
                seq = page.upto + 1
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert count == 100_000
    assert most < 8 * 1024 * 1024


@on_loop
async def test_reads_are_bounded_in_bytes(redis_server: RedisServer):
    async with started(InRedis(redis_server.url)) as storage:
        state = await made(storage)
        for _ in range(10):
            await committed(storage, state, stored(state, 1, bytes(READ_BYTES_MAX // 3)))
        page = await found(storage, state, 1, 1, 1_000)
        assert 1 < len(page.messages) < 4
        big = stored(state, 1, bytes(3 * READ_BYTES_MAX))
        await committed(storage, state, big)
        assert (await found(storage, state, 1, big.seq, 5)).messages == [big]


def maybe_committing(storage: RedisStorage, state: QueueState) -> asyncio.Future[None] | None:
    """Commit a megabyte, unless it is too much."""
    try:
        return committing(storage, state, [stored(state, 1, bytes(1 << 20))])
    except Overload:
        return None


@on_loop
async def test_what_is_on_its_way_is_bounded(own_server: RedisServer):
    async with started(InRedis(own_server.url)) as storage:
        state = await made(storage)
        own_server.hold()
        try:
            commits: list[asyncio.Future[None] | None] = []
            while takes(storage):
                commits.append(maybe_committing(storage, state))
            assert 60 <= len(commits) <= 70
            while (commit := maybe_committing(storage, state)) is not None:
                commits.append(commit)
            assert 120 <= len(commits) <= 140
        finally:
            own_server.resume()
        await asyncio.gather(*[commit for commit in commits if commit is not None])
        storage.check()
