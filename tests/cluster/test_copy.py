"""The copy of routes in the store: the last word about each address, and nobody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from chappe.cluster import copy as module
from chappe.cluster.copy import TABLE, RouteCopy
from chappe.errors import StorageError
from chappe.store.memory import MemoryStore
from tests.loop import on_loop

_TURNS_MAX = 500


class Sick(MemoryStore):
    """A store that fails when it is told to, before or after it has written."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False
        self.batches: list[int] = []

    async def change(
        self, table: str, puts: Mapping[str, bytes], deletes: Iterable[str] = ()
    ) -> None:
        deletes = list(deletes)
        self.batches.append(len(puts) + len(deletes))
        if self.failing:
            raise StorageError("memory: sick")
        await super().change(table, puts, deletes)

    async def clear(self, table: str, prefix: str = "") -> None:
        if self.failing:
            raise StorageError("memory: sick")
        await super().clear(table, prefix)


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REST_S", 0)


async def keys(store: MemoryStore) -> set[str]:
    return {key async for page in store.scan(TABLE) for key, _ in page}


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(_TURNS_MAX):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not become so")


async def written(store: MemoryStore, expected: set[str]) -> None:
    """See the store come to hold that and stay so."""
    for _ in range(_TURNS_MAX):
        if await keys(store) == expected:
            break
    for _ in range(20):
        assert await keys(store) == expected


WORDS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["shop", "chat"]), st.integers(0, 3), st.booleans()),
        st.integers(0, 5),
        st.sampled_from(["sick", "well"]),
    ),
    max_size=30,
)


@given(WORDS)
def test_in_the_end_the_store_holds_the_last_word_about_each(
    words: list[tuple[str, int, bool] | int | str],
) -> None:
    async def run() -> None:
        store = Sick()
        copy = RouteCopy(store, "a")
        copy.start()
        last: dict[str, bool] = {}
        for word in words:
            if isinstance(word, str):
                store.failing = word == "sick"
            elif isinstance(word, int):
                for _ in range(word):
                    await asyncio.sleep(0)
            else:
                app, n, online = word
                copy.note(app, f"user:{n}/x", online=online)
                last[f"a/{app}/user:{n}/x"] = online
        store.failing = False
        await written(store, {key for key, online in last.items() if online})
        await copy.stop()

    before, module._REST_S = module._REST_S, 0
    try:
        asyncio.run(run())
    finally:
        module._REST_S = before


@on_loop
async def test_nobody_writes_while_nothing_changes_and_batches_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_BATCH", 10)
    store = Sick()
    copy = RouteCopy(store, "a")
    copy.start()
    for n in range(25):
        copy.note("shop", f"user:{n}", online=True)
    await written(store, {f"a/shop/user:{n}" for n in range(25)})
    assert store.batches == [10, 10, 5]
    copy.note("shop", "user:0", online=False)
    await until(lambda: store.batches == [10, 10, 5, 1])
    await copy.stop()


class Slow(MemoryStore):
    """A store whose writes last as long as a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def change(
        self, table: str, puts: Mapping[str, bytes], deletes: Iterable[str] = ()
    ) -> None:
        self.begun.set()
        await self.go_on.wait()
        await super().change(table, puts, deletes)


@pytest.mark.parametrize("online", [False, True])
@on_loop
async def test_what_changes_while_it_is_written_is_written_again(online: bool) -> None:
    store = Slow()
    await MemoryStore.change(store, TABLE, {} if online else {"a/shop/user:x": b""})
    copy = RouteCopy(store, "a")
    copy.start()
    copy.note("shop", "user:x", online=not online)
    await store.begun.wait()
    copy.note("shop", "user:x", online=online)
    store.go_on.set()
    await written(store, {"a/shop/user:x"} if online else set())
    await copy.stop()


@on_loop
async def test_a_store_that_fails_is_counted_and_tried_again() -> None:
    store = Sick()
    copy = RouteCopy(store, "a")
    copy.start()
    store.failing = True
    copy.note("shop", "user:x", online=True)
    await until(lambda: copy.failures >= 3)
    store.failing = False
    await written(store, {"a/shop/user:x"})
    failures = copy.failures
    # A node that cannot take its routes along leaves all the same.
    store.failing = True
    await copy.stop()
    assert copy.failures == failures
    assert await keys(store) == {"a/shop/user:x"}


@on_loop
async def test_a_store_that_goes_on_failing_is_logged_once_until_it_is_well() -> None:
    store = Sick()
    copy = RouteCopy(store, "a")
    with capture_logs() as logs:
        copy.start()
        for time in (1, 2):
            store.failing = True
            copy.note("app", f"user:{time}", online=True)
            failures = copy.failures
            await until(lambda: copy.failures >= failures + 3)  # noqa: B023
            store.failing = False
            await until(lambda: not copy._changes)
        await copy.stop()
    assert [entry["log_level"] for entry in logs] == ["warning", "info"] * 2


@on_loop
async def test_a_starting_node_learns_who_was_here_and_who_is_said_to_be_elsewhere() -> None:
    store = MemoryStore()
    for node, address in (("a", "user:x"), ("b", "user:y"), ("c", "user:y"), ("ab", "user:z/1")):
        await store.change(TABLE, {f"{node}/shop/{address}": b""})
    copy = RouteCopy(store, "a")
    mine, others = await copy.load()
    assert mine == [("shop", "user:x")]
    assert set(others) == {("shop", "user:y"), ("shop", "user:z/1")}
    assert set(others["shop", "user:y"]) == {"b", "c"}
    assert others["shop", "user:z/1"] == ("ab",)
    # What it wrote before is forgotten, and nobody else's.
    assert await keys(store) == {"b/shop/user:y", "c/shop/user:y", "ab/shop/user:z/1"}
    await copy.forget("b")
    assert await keys(store) == {"c/shop/user:y", "ab/shop/user:z/1"}


@on_loop
async def test_a_goodbye_takes_a_nodes_own_routes_along() -> None:
    store = MemoryStore()
    await store.change(TABLE, {"b/shop/user:y": b""})
    copy = RouteCopy(store, "a")
    copy.start()
    copy.note("shop", "user:x", online=True)
    await written(store, {"a/shop/user:x", "b/shop/user:y"})
    copy.note("shop", "user:late", online=True)
    await copy.stop()
    assert await keys(store) == {"b/shop/user:y"}
    await copy.stop()
