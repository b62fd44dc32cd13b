"""What lies in Redis when queues are kept there: whole commits, each once, and nothing else."""

from __future__ import annotations

import asyncio

from chappe.errors import RequestError
from chappe.queues.options import QueueOptions
from chappe.queues.record import DELAY_LANE, Done, Registered, Tried
from chappe.queues.redis.script import COMMIT, OPEN
from chappe.queues.state import QueueState
from tests.contract.redis_storages import Wire, asking, losses, refusal
from tests.contract.storages import (
    KEY,
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
async def test_what_redis_itself_shows_is_the_truth(redis_server: RedisServer):
    engine = InRedis(redis_server.url)
    async with started(engine) as storage, asking(redis_server) as client:
        state = await made(storage)
        await committed(storage, state, Registered(0, "g", "c", since_ms=1))
        await committed(storage, state, *[stored(state, 1, ahead=n) for n in range(1, 6)])
        await committed(storage, state, Tried(0, 1, "g", 4), Tried(0, 1, "g", 3, 5))
        await committed(storage, state, Done(0, 1, "g", [1, 2], 2))
        storage.discard(state, 1, [1, 2])
        # A mark ahead: what is stored under it is pending at once.
        await committed(storage, state, Tried(0, 1, "g", 100))
        await committed(storage, state, stored(state, 1))
        lane = f"{engine.prefix}:{{app/jobs}}:lane:1"
        (group,) = await client.xinfo_groups(lane)
        assert (group["name"], group["pending"]) == ("g", 4)
        assert group["last-delivered-id"] == "6-0"
        pending = await client.xpending_range(lane, "g", "-", "+", 10)
        assert {(one["message_id"], one["times_delivered"]) for one in pending} == {
            *{("3-0", 5), ("4-0", 1), ("5-0", 1), ("6-0", 1)}
        }
        assert {one["consumer"] for one in pending} == {"node-a"}
        assert [entry for entry, _ in await client.xrange(lane)] == ["3-0", "4-0", "5-0", "6-0"]
        names = await client.keys(f"{engine.prefix}:*")
        assert {name.partition("}")[0] for name in names} == {f"{engine.prefix}:{{app/jobs"}


@on_loop
async def test_who_opened_a_queue_earlier_is_refused(redis_server: RedisServer):  # Q10
    engine = InRedis(redis_server.url)
    async with started(engine) as one, started(engine) as two:
        lost = losses(one)
        old = await made(one)
        await committed(one, old, stored(old, 1, b"by the first"))
        new = await opened(two)
        assert seen(new) == seen(old)
        commits = [committing(one, old, [stored(old, 1, b"stray")]) for _ in range(3)]
        for commit in commits:
            error = await refusal(commit)
            assert "lives elsewhere now" in error.reason
            assert not error.outcome_unknown
        assert [state for state, _ in lost] == [old]
        assert "lives elsewhere" in (await refusal(committing(one, old, []))).reason
        one.discard(old, 1, [1])
        await committed(two, new, stored(new, 1, b"by the second"))
        there = await all_of(two, new, 1)
        assert [message.payload for message in there] == [b"by the first", b"by the second"]
        # It may come back, and then the other is refused.
        one.forget(old)
        back = await opened(one)
        await committed(one, back, stored(back, 1, b"by the first again"))
        assert not (await refusal(committing(two, new, [stored(new, 1)]))).outcome_unknown
        one.check()


@on_loop
async def test_a_commit_happens_whole_or_not_at_all(redis_server: RedisServer):
    engine = InRedis(redis_server.url)
    async with started(engine) as storage, asking(redis_server) as client:
        lost = losses(storage)
        state = await made(storage, (1, 2))
        # Somebody else writes into one of the streams.
        await client.xadd(f"{engine.prefix}:{{app/jobs}}:lane:2", {"r": "?"}, "9-0")
        error = await refusal(committing(storage, state, [stored(state, 1), stored(state, 2)]))
        assert "lane:2 was changed by somebody else" in error.reason
        assert not error.outcome_unknown
        assert await client.exists(f"{engine.prefix}:{{app/jobs}}:lane:1") == 0
        assert len(lost) == 1


@on_loop
async def test_a_commit_whose_answer_is_lost_happens_once(redis_server: RedisServer):
    async with started(InRedis(redis_server.url)) as storage:
        wire = Wire(storage)
        state = await made(storage)
        wire.losing = 2
        await committed(storage, state, stored(state, 1), Registered(0, "g", "", since_ms=1))
        await committed(storage, state, stored(state, 1))
        await wire.again(COMMIT)
        await committed(storage, state, stored(state, 1))
        assert [one.seq for one in await all_of(storage, state, 1)] == [1, 2, 3]
        before = seen(state)
        storage.forget(state)
        assert seen(await opened(storage)) == before


@on_loop
async def test_an_opening_that_comes_late_takes_the_queue_from_nobody(redis_server: RedisServer):
    async with started(InRedis(redis_server.url)) as storage:
        wire = Wire(storage)
        state = await made(storage)
        await wire.again(OPEN)
        await committed(storage, state, stored(state, 1))


@on_loop
async def test_a_removal_whose_answer_is_lost_is_a_removal(redis_server: RedisServer):
    engine = InRedis(redis_server.url)
    async with started(engine) as storage, asking(redis_server) as client:
        state = await made(storage)
        await committed(storage, state, stored(state, 1), Registered(0, "g", "c", since_ms=1))
        removed: asyncio.Future[RequestError | None] = asyncio.get_running_loop().create_future()
        Wire(storage).losing = 1
        storage.remove(state, removed.set_result)
        assert await removed is None
        assert await client.keys(f"{engine.prefix}:*jobs*") == []


@on_loop
async def test_a_queue_that_nobody_makes_does_not_stay(redis_server: RedisServer):
    engine = InRedis(redis_server.url)
    async with started(engine) as storage, asking(redis_server) as client:
        state = await opened(storage)
        meta = f"{engine.prefix}:{{app/jobs}}:meta"
        assert await client.pttl(meta) > 0
        storage.forget(state)
        await made(storage)
        assert await client.pttl(meta) == -1


@on_loop
async def test_what_a_crash_left_behind_goes_when_the_queue_is_opened(redis_server: RedisServer):
    engine = InRedis(redis_server.url)
    async with started(engine) as storage, asking(redis_server) as client:
        state = await made(storage)
        await committed(storage, state, Registered(0, "g", "", since_ms=1))
        await committed(storage, state, *[stored(state, 1, ahead=n) for n in range(1, 6)])
        await committed(storage, state, Tried(0, 1, "g", 5), Done(0, 1, "g", [1, 2, 4, 4], 3))
        storage.forget(state)
        again = await opened(storage)
        await committed(storage, again)
        await committed(storage, again, stored(again, DELAY_LANE, due_ms=1))
        lane = f"{engine.prefix}:{{app/jobs}}:lane:1"
        assert [entry for entry, _ in await client.xrange(lane)] == ["3-0", "4-0", "5-0"]


@on_loop
async def test_what_is_forgotten_of_producers_is_gone_from_redis(redis_server: RedisServer):
    engine = InRedis(redis_server.url)
    async with started(engine) as storage, asking(redis_server) as client:
        state = await made(storage)
        for n in range(40):
            known = {"producer": "abcde"[n % 5], "producer_seq": n}
            await committed(storage, state, stored(state, 1, **known))
        base = f"{engine.prefix}:{{app/jobs}}"
        assert set(await client.hkeys(f"{base}:producers")) == {"c", "d", "e"}
        assert set(await client.keys(f"{base}:producer:*")) == {
            f"{base}:producer:{n}" for n in "cde"
        }
        # Each was forgotten in between, and has come again.
        assert await client.zcard(f"{base}:producer:e") == len(state.producers["e"]) == 1
        for n in range(10):
            await committed(storage, state, stored(state, 1, producer="e", producer_seq=100 + n))
        assert await client.zcard(f"{base}:producer:e") == LIMITS.producer_window


@on_loop
async def test_options_of_a_maker_stay_when_another_opens(redis_server: RedisServer):
    engine = InRedis(redis_server.url)
    async with started(engine) as storage:
        await made(storage, (1, 2, 3))
        answer: asyncio.Future[QueueState | None] = asyncio.get_running_loop().create_future()
        storage.open(KEY, QueueOptions(lanes=7), lambda state, _: answer.set_result(state))
        state = await answer
        assert state is not None
        assert (state.options.lanes, state.lanes) == (3, [1, 2, 3])
