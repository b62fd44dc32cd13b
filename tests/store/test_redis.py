"""The Redis store: a server that goes away, hangs, is full, or does not know us."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from chappe.errors import StorageError
from chappe.store.redis import RedisStore
from chappe.store.store import Store
from chappe.store.url import open_store
from tests.loop import on_loop
from tests.servers import RedisServer

PASSWORD = "a-password-nobody-may-see"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server for one test, which may do to it what it likes."""
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


def open_at(server: RedisServer, query: str = "") -> Store:
    return open_store(f"{server.url}/0{query}", Path("nowhere"))


@asynccontextmanager
async def closing(store: Store) -> AsyncIterator[Store]:
    """Close a store whatever happens: a connection left open would hold up the loop's end."""
    try:
        yield store
    finally:
        await store.close()


async def until_it_works(store: Store) -> None:
    """Ask until Redis is back; the suite's time limit is the bound."""
    while True:
        try:
            await store.get("t", ["k"])
            return
        except StorageError:
            await asyncio.sleep(0.01)


@on_loop
async def test_a_redis_that_restarts_is_found_again_with_what_was_acknowledged(
    server: RedisServer,
):
    async with closing(open_at(server)) as store:
        await store.change("t", {f"k{i}": b"v" for i in range(100)})
        assert await store.swap("t", "k0", b"v", b"swapped")
        server.kill()
        with pytest.raises(StorageError, match=str(server.port)):
            await store.change("t", {"k": b"lost"})
        with pytest.raises(StorageError, match=str(server.port)):
            await store.swap("t", "k", None, b"lost")
        server.start()
        await until_it_works(store)
        found = dict([item async for page in store.scan("t") for item in page])
        assert len(found) == 100
        assert found["k0"] == b"swapped"
        # The script that swaps was forgotten with the process.
        assert await store.swap("t", "k0", b"swapped", b"again")
        await store.change("t", {"k": b"v"}, ["k1"])


@on_loop
async def test_a_connection_that_breaks_is_not_noticed(server: RedisServer):
    async with closing(open_at(server)) as store:
        for turn in range(5):
            await store.change("t", {"k": str(turn).encode()})
            server.cut_connections()
            assert await store.get("t", ["k"]) == {"k": str(turn).encode()}
            server.cut_connections()


@on_loop
async def test_a_key_that_redis_gives_twice_is_given_once(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    async with closing(open_at(server)) as store:
        await store.change("t", {f"k{i}": b"v" for i in range(5000)})
        given: dict[bytes, bytes] = {}
        scan = store._redis.hscan  # type: ignore[attr-defined]

        async def scan_again(*arguments: Any) -> tuple[int, dict[bytes, bytes]]:
            # As Redis does, now and then, with a table that shrinks meanwhile.
            cursor, page = await scan(*arguments)
            given.update(page)
            return cursor, dict(given)

        monkeypatch.setattr(store._redis, "hscan", scan_again)  # type: ignore[attr-defined]
        found = [key async for page in store.scan("t") for key, _ in page]
        assert len(found) == len(set(found)) == 5000


@on_loop
async def test_a_redis_that_hangs_is_told_in_time(server: RedisServer):
    async with closing(RedisStore(server.url, "redis://shown", "chappe", timeout_s=0.1)) as store:
        await store.change("t", {"k": b"v"})
        server.hold()
        try:
            for asked in (
                store.get("t", ["k"]),
                store.change("t", {"k": b"w"}),
                store.swap("t", "k", b"v", b"w"),
                store.clear("t", "k"),
            ):
                with pytest.raises(StorageError, match="redis://shown"):
                    await asyncio.wait_for(asked, 10)
        finally:
            server.resume()
        await until_it_works(store)


@on_loop
async def test_a_change_that_redis_has_no_room_for_is_not_made_by_half(server: RedisServer):
    async with closing(open_at(server)) as store:
        await store.change("t", {"before": b"v"})
        with redis.Redis(port=server.port) as client:
            client.config_set("maxmemory", "1")
            with pytest.raises(StorageError, match=r"(?i)oom|memory|transaction"):
                await store.change("t", {f"k{i}": b"v" for i in range(20_000)}, ["before"])
            client.config_set("maxmemory", "0")
        assert await store.get("t", ["before", "k0"]) == {"before": b"v"}


@on_loop
async def test_a_key_of_somebody_else_is_told(server: RedisServer):
    async with closing(open_at(server)) as store:
        with redis.Redis(port=server.port) as client:
            client.set("chappe:t", "not a table")
        for asked in (
            store.get("t", ["k"]),
            store.change("t", {"k": b"hidden"}),
            store.swap("t", "k", None, b"hidden"),
        ):
            with pytest.raises(StorageError, match="WRONGTYPE") as told:
                await asked
            assert "hidden" not in "".join(traceback.format_exception(told.value))


@on_loop
async def test_two_prefixes_and_two_databases_are_two_stores(server: RedisServer):
    stores = [
        open_at(server),
        open_at(server, "?prefix=other"),
        open_store(f"{server.url}/1", Path("nowhere")),
    ]
    async with AsyncExitStack() as stack:
        for i, store in enumerate(stores):
            await stack.enter_async_context(closing(store))
            await store.change("t", {"k": str(i).encode()})
        for i, store in enumerate(stores):
            assert await store.get("t", ["k"]) == {"k": str(i).encode()}
    with redis.Redis(port=server.port) as client:
        assert sorted(client.keys()) == [b"chappe:t", b"other:t"]


@on_loop
async def test_no_error_shows_the_password(server: RedisServer):
    with redis.Redis(port=server.port) as client:
        client.config_set("requirepass", "the right one")
    at = f"127.0.0.1:{server.port}"
    wrong = open_store(f"redis://:{PASSWORD}@{at}/0", Path("nowhere"))
    right = open_store(f"redis://:the%20right%20one@{at}/0", Path("nowhere"))
    async with closing(wrong), closing(right):
        with pytest.raises(StorageError, match=at) as refused:
            await wrong.get("t", ["k"])
        await right.change("t", {"k": b"v"})
        server.kill()
        with pytest.raises(StorageError, match=at) as gone:
            await right.get("t", ["k"])
    for error in (refused.value, gone.value):
        seen: BaseException | None = error
        while seen is not None:
            assert PASSWORD not in str(seen)
            assert "the right one" not in str(seen)
            seen = seen.__cause__ or seen.__context__
