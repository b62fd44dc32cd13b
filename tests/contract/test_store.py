"""What every store promises, whatever it keeps things in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chappe.errors import StorageError
from chappe.store.memory import MemoryStore
from chappe.store.store import Store
from chappe.store.url import open_store
from tests.loop import on_loop
from tests.node.keeper_process import KeeperProcess
from tests.servers import RedisServer

Opening = Callable[[], Store]

# Text that has misled stores: separators, patterns of Redis, NUL, more than one byte, long.
KEYS = [
    "a",
    "",
    "a:b",
    "*",
    "a*",
    "[a]",
    "a\\b",
    "a?b",
    "^-]",
    "\0",
    "a\0b",
    "é",
    "日本",
    "x" * 2000,
]
VALUES = [b"", b"\0", bytes(range(256)), b"\xff\xfe", b"0", b"x" * 200_000]


_numbers = count()


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[KeeperProcess]:
    keeper = KeeperProcess(tmp_path, "sqlite:")
    yield keeper
    keeper.stop()


@pytest.fixture(params=["memory", "sqlite", "redis", "keeper"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    """Opens an empty store; what is opened again holds what was written."""
    if request.param == "memory":
        shared = MemoryStore()
        return lambda: shared
    if request.param == "keeper":
        keeper: KeeperProcess = request.getfixturevalue("keeper")
        return keeper.store
    if request.param == "sqlite":
        return lambda: open_store("sqlite:", tmp_path)
    server: RedisServer = request.getfixturevalue("redis_server")
    url = f"{server.url}/?prefix=test{next(_numbers)}"
    return lambda: open_store(url, tmp_path)


@asynccontextmanager
async def opened(opening: Opening) -> AsyncIterator[Store]:
    store = opening()
    try:
        yield store
    finally:
        await store.close()


async def all_of(store: Store, table: str, prefix: str = "") -> dict[str, bytes]:
    """What a scan gives; fails if it gives anything twice."""
    found: dict[str, bytes] = {}
    async for page in store.scan(table, prefix):
        for key, value in page:
            assert key not in found
            found[key] = value
    return found


@on_loop
async def test_what_was_written_is_read(opening: Opening):
    async with opened(opening) as store:
        assert await store.get("t", ["a", "b"]) == {}
        await store.change("t", {"a": b"1", "b": b"2"})
        assert await store.get("t", ["b", "c", "a"]) == {"a": b"1", "b": b"2"}
        await store.change("t", {"a": b"3", "c": b"4"}, ["b", "never there"])
        assert await store.get("t", ["a", "b", "c"]) == {"a": b"3", "c": b"4"}
        await store.change("t", {}, ["a"])
        await store.change("t", {})
        assert await all_of(store, "t") == {"c": b"4"}
        assert await store.get("t", []) == {}


@on_loop
async def test_what_is_written_and_removed_at_once_is_written(opening: Opening):
    async with opened(opening) as store:
        await store.change("t", {"a": b"1"})
        await store.change("t", {"a": b"2", "b": b"3"}, ["a", "b"])
        assert await all_of(store, "t") == {"a": b"2", "b": b"3"}


@on_loop
async def test_keys_and_values_come_back_as_they_were(opening: Opening):
    async with opened(opening) as store:
        written = {key: VALUES[i % len(VALUES)] for i, key in enumerate(KEYS)}
        await store.change("t", written)
        assert await store.get("t", KEYS) == written
        assert await all_of(store, "t") == written
        for value in VALUES:
            before = (await store.get("t", ["a"]))["a"]
            assert await store.swap("t", "a", before, value)
            assert await store.get("t", ["a"]) == {"a": value}


@on_loop
async def test_tables_know_nothing_of_each_other(opening: Opening):
    async with opened(opening) as store:
        await store.change("t", {"a": b"1"})
        await store.change("t:a", {"a": b"2"})
        await store.change("tt", {"a": b"3"})
        assert await all_of(store, "t") == {"a": b"1"}
        await store.clear("t")
        assert await store.get("t", ["a"]) == {}
        assert await store.get("t:a", ["a"]) == {"a": b"2"}
        assert await store.swap("t", "a", None, b"4")
        assert await store.get("tt", ["a"]) == {"a": b"3"}


@on_loop
async def test_a_swap_happens_only_over_what_is_expected(opening: Opening):
    async with opened(opening) as store:
        assert not await store.swap("t", "k", b"", b"1")
        assert await store.swap("t", "k", None, b"1")
        assert not await store.swap("t", "k", None, b"2")
        assert not await store.swap("t", "k", b"2", b"3")
        assert not await store.swap("t", "k", b"2", None)
        assert await store.get("t", ["k"]) == {"k": b"1"}
        assert await store.swap("t", "k", b"1", b"")
        assert not await store.swap("t", "k", None, b"2")
        assert await store.swap("t", "k", b"", None)
        assert await store.swap("t", "k", None, None)
        assert await store.get("t", ["k"]) == {}


@on_loop
async def test_of_many_who_swap_at_once_one_wins(opening: Opening):
    async with opened(opening) as one, opened(opening) as other:
        for turn in range(5):
            before = None if turn == 0 else (await one.get("t", ["k"]))["k"]
            won = await asyncio.gather(
                *(
                    store.swap("t", "k", before, f"{turn} {i}".encode())
                    for i in range(20)
                    for store in (one, other)
                )
            )
            assert sum(won) == 1
            assert (await other.get("t", ["k"]))["k"] == f"{turn} {won.index(True) // 2}".encode()


@on_loop
async def test_counting_by_swaps_loses_nothing(opening: Opening):
    async def add(store: Store) -> None:
        while True:
            raw = (await store.get("t", ["n"])).get("n")
            if await store.swap("t", "n", raw, str(int(raw or b"0") + 1).encode()):
                return

    async with opened(opening) as one, opened(opening) as other:
        await asyncio.gather(*(add(store) for _ in range(20) for store in (one, other)))
        assert await one.get("t", ["n"]) == {"n": b"40"}


@on_loop
async def test_a_change_is_seen_whole_or_not_at_all(opening: Opening):
    keys = [f"k{i}" for i in range(50)]

    async def write(store: Store, mark: bytes) -> None:
        for _ in range(10):
            await store.change("t", dict.fromkeys(keys, mark))
            await store.change("t", {}, keys)

    async with opened(opening) as one, opened(opening) as other:
        writing = [
            asyncio.create_task(write(one, b"1")),
            asyncio.create_task(write(other, b"2")),
        ]
        while not all(task.done() for task in writing):
            seen = await one.get("t", keys)
            assert len(seen) in (0, len(keys))
            assert len(set(seen.values())) <= 1
        await asyncio.gather(*writing)


@on_loop
async def test_a_prefix_is_text_and_no_pattern(opening: Opening):
    async with opened(opening) as store:
        await store.change("t", dict.fromkeys(KEYS, b"v"))
        for prefix in ["", "a", "a*", "*", "[", "a\\", "a?", "^", "\0", "é", "日", "x", "no"]:
            expected = {key for key in KEYS if key.startswith(prefix)}
            assert set(await all_of(store, "t", prefix)) == expected
        await store.clear("t", "a")
        assert set(await all_of(store, "t")) == {key for key in KEYS if not key.startswith("a")}
        await store.clear("t", "*")
        assert "" in await all_of(store, "t")
        await store.clear("t")
        assert await all_of(store, "t") == {}


@on_loop
async def test_a_scan_while_others_change_gives_what_stays_once(opening: Opening):
    staying = {f"s{i}": str(i).encode() for i in range(3000)}

    async def change(store: Store, done: asyncio.Event) -> None:
        # Growing and shrinking makes Redis move its keys about.
        while not done.is_set():
            passing = {f"p{i}": b"" for i in range(6000)}
            await store.change("t", passing)
            await store.change("t", {}, passing)

    async with opened(opening) as store:
        await store.change("t", staying)
        done = asyncio.Event()
        changing = asyncio.create_task(change(store, done))
        for _ in range(3):
            found: list[str] = []
            async for page in store.scan("t"):
                found += [key for key, _ in page]
                await asyncio.sleep(0)
            kept = [key for key in found if key.startswith("s")]
            assert len(kept) == len(set(kept))
            assert set(kept) == set(staying)
        done.set()
        await changing


@on_loop
async def test_a_hundred_thousand_keys(opening: Opening):
    many = {f"k{i:06}": str(i).encode() for i in range(100_000)}
    async with opened(opening) as store:
        await store.change("t", many)
        assert await store.get("t", list(many)) == many
        pages = [len(page) async for page in store.scan("t")]
        assert sum(pages) == len(many)
        assert max(pages) <= 2000
        assert len(await all_of(store, "t", "k0123")) == 100
        await store.change("t", {}, list(many)[1:])
        assert await all_of(store, "t") == {"k000000": b"0"}


@pytest.mark.parametrize("opening", ["sqlite", "redis", "keeper"], indirect=True)
@on_loop
async def test_a_store_opened_again_holds_what_was_acknowledged(opening: Opening):
    async with opened(opening) as store:
        writing = [asyncio.create_task(store.change("t", {f"k{i}": b"v"})) for i in range(100)]
        await asyncio.gather(*writing)
    async with opened(opening) as store:
        assert len(await all_of(store, "t")) == 100


@on_loop
async def test_a_closed_store_says_so(opening: Opening):
    store = opening()
    await store.close()
    await store.close()
    for asked in (
        store.get("t", ["k"]),
        store.change("t", {"k": b"v"}),
        store.swap("t", "k", None, b"v"),
        store.clear("t"),
        all_of(store, "t"),
    ):
        with pytest.raises(StorageError, match="closed"):
            await asked


@on_loop
async def test_a_caller_that_gives_up_disturbs_nobody(opening: Opening):
    async with opened(opening) as store:
        asked = [asyncio.create_task(store.change("t", {f"k{i}": b"v"})) for i in range(50)]
        await asyncio.sleep(0)
        for task in asked[::2]:
            task.cancel()
        await asyncio.wait(asked)
        found = await all_of(store, "t")
        assert {f"k{i}" for i in range(1, 50, 2)} <= set(found)
        assert await store.swap("t", "after", None, b"v")


_key = st.sampled_from(["a", "b", "aa", "ab", "\0", "é*", ""])
_value = st.binary(max_size=3)
_step = st.one_of(
    st.tuples(
        st.just("change"), st.dictionaries(_key, _value, max_size=3), st.lists(_key, max_size=3)
    ),
    st.tuples(st.just("swap"), _key, st.none() | _value, st.none() | _value),
    st.tuples(st.just("clear"), st.sampled_from(["", "a", "aa", "é"])),
)


@given(steps=st.lists(_step, max_size=12))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=30,
)
def test_any_store_does_what_a_dictionary_does(opening: Opening, steps: list):
    @on_loop
    async def run() -> None:
        model = MemoryStore()
        async with AsyncExitStack() as stack:
            real = opening()
            if not isinstance(real, MemoryStore):  # that one is shared by all examples
                stack.push_async_callback(real.close)
            await real.clear("t")
            for name, *arguments in steps:
                told = await getattr(real, name)("t", *arguments)
                assert told == await getattr(model, name)("t", *arguments)
                assert await all_of(real, "t") == await all_of(model, "t")

    run()
