"""What Redis as an engine of queues does when it is shared, away, slow, or not what it was."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from redis.asyncio import Redis

from chappe.errors import ConfigError, Overload, RequestError
from chappe.queues.options import QueueOptions
from chappe.queues.record import DELAY_LANE, Done, Registered, Tried
from chappe.queues.redis import RedisStorage, open_redis
from chappe.queues.redis.script import COMMIT, OPEN, Script
from chappe.queues.redis.storage import READ_BYTES_MAX
from chappe.queues.state import QueueState
from tests.contract.storages import (
    KEY,
    LIMITS,
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
from tests.node.certificate import make_certificate
from tests.servers import RedisCluster, RedisServer, RedisTrio, free_port


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis that a test may treat badly."""
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


@pytest.fixture
def own_trio(tmp_path: Path) -> Iterator[RedisTrio]:
    trio = RedisTrio(tmp_path / "trio", down_ms=500)
    yield trio
    trio.kill()


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


@on_loop
async def test_a_user_and_a_password_are_used_and_never_told(own_server: RedisServer):
    own_server.tell("ACL", "SETUSER", "ann", "on", ">s3cret", "~*", "&*", "+@all")
    own_server.tell("ACL", "SETUSER", "default", "off")
    place = f"127.0.0.1:{own_server.port}"
    with structlog.testing.capture_logs() as logs:
        async with started(InRedis(f"redis://ann:s3cret@{place}")) as storage:
            await made(storage)
        storage = open_redis(f"redis://ann:wr0ng@{place}", LIMITS, timeout_s=1.0)
        await storage.start()
        with pytest.raises(Overload) as refused:
            await opened(storage)
        await storage.close()
    told = f"{refused.value} {logs}"
    assert place in told
    assert "s3cret" not in told
    assert "wr0ng" not in told


@on_loop
async def test_a_socket_of_the_same_machine_will_do(tmp_path: Path):
    path = tmp_path / "r.sock"
    server = await asyncio.to_thread(RedisServer, tmp_path / "redis", {"unixsocket": str(path)})
    try:
        async with started(InRedis(f"unix://{path}")) as storage:
            state = await made(storage)
            await committed(storage, state, stored(state, 1))
    finally:
        server.kill()


@on_loop
async def test_a_redis_over_tls(tmp_path: Path):
    certificate, key = make_certificate(tmp_path)
    port = free_port()
    settings = {"tls-port": str(port), "tls-auth-clients": "no", "tls-cert-file": str(certificate)}
    settings |= {"tls-key-file": str(key), "tls-ca-cert-file": str(certificate)}
    server = await asyncio.to_thread(RedisServer, tmp_path / "redis", settings)
    try:
        url = f"rediss://127.0.0.1:{port}"
        async with started(InRedis(f"{url}?ssl_ca_certs={certificate}")) as storage:
            state = await made(storage)
            await committed(storage, state, stored(state, 1))
        # One that nobody vouches for is not spoken to.
        async with started(InRedis(url, timeout_s=2.0)) as storage:
            with pytest.raises(Overload, match=r"(?i)certificate"):
                await opened(storage)
    finally:
        server.kill()


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
            names = await there.keys(f"{engine.prefix}:*")
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
