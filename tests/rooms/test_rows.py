from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

from chappe.errors import StorageError
from chappe.rooms import rows
from chappe.rooms.row import ROWS
from chappe.rooms.rows import RowWriter, load_rows
from chappe.simulation import Simulation
from chappe.store.memory import MemoryStore


class FailingStore(MemoryStore):
    """One that is away while `away`, and notes how large changes are."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.changes: list[int] = []

    async def change(
        self, table: str, puts: Mapping[str, bytes], deletes: Iterable[str] = ()
    ) -> None:
        gone = list(deletes)
        self.changes.append(len(puts) + len(gone))
        if self.away:
            await asyncio.sleep(0.01)
            raise StorageError("away")
        await super().change(table, puts, gone)

    async def scan(self, table: str, prefix: str = "") -> AsyncIterator[list[tuple[str, bytes]]]:
        async for page in super().scan(table, prefix):
            if self.away:
                raise StorageError("away")
            yield page

    async def all(self) -> dict[str, bytes]:
        return {key: value async for page in MemoryStore.scan(self, ROWS) for key, value in page}


class Taker:
    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        self.rows.update(rows)


def play(story: Callable[[FailingStore, RowWriter], Awaitable[None]]) -> None:
    async def whole() -> None:
        store = FailingStore()
        writer = RowWriter(store)
        writer.start()
        await story(store, writer)
        store.away = False
        await writer.stop(10)

    Simulation(1).run(whole())


def test_what_is_news_is_written_and_removed():
    async def story(store: FailingStore, writer: RowWriter) -> None:
        writer.add({"a": b"1", "b": b"2"}, [])
        assert await writer.drained(1)
        writer.add({"c": b"3"}, ["a", "nobody"])
        assert await writer.drained(1)
        assert await store.all() == {"b": b"2", "c": b"3"}
        assert writer.waiting == 0

    play(story)


def test_batches_are_bounded():
    async def story(store: FailingStore, writer: RowWriter) -> None:
        everything = {str(number): b"" for number in range(2 * rows.BATCH_ROWS + 1)}
        writer.add(everything, [])
        assert await writer.drained(1)
        assert store.changes == [rows.BATCH_ROWS, rows.BATCH_ROWS, 1]
        assert await store.all() == everything

    play(story)


# R10: the store is written asynchronously.
def test_a_store_that_is_away_gets_the_last_of_each_row_when_it_is_back():
    async def story(store: FailingStore, writer: RowWriter) -> None:
        store.away = True
        writer.add({"a": b"1", "b": b"1"}, [])
        await asyncio.sleep(0.005)
        # While the first attempt is under way.
        writer.add({"a": b"2"}, ["b"])
        await asyncio.sleep(30)
        assert not await writer.drained(0.1)
        assert writer.failures < 30
        store.away = False
        assert await writer.drained(10)
        assert await store.all() == {"a": b"2"}

    play(story)


def test_what_waits_is_bounded_and_the_rest_is_counted(monkeypatch):
    monkeypatch.setattr(rows, "WAITING_MAX", 3)

    async def story(store: FailingStore, writer: RowWriter) -> None:
        store.away = True
        writer.add({str(number): b"1" for number in range(5)}, [])
        # Of what waits already the last still counts.
        writer.add({"0": b"2"}, [])
        assert (writer.waiting, writer.dropped) == (3, 2)
        store.away = False
        assert await writer.drained(10)
        assert await store.all() == {"0": b"2", "1": b"1", "2": b"1"}

    play(story)


def test_what_waits_is_written_before_the_end():
    async def story() -> None:
        store = FailingStore()
        writer = RowWriter(store)
        writer.start()
        writer.add({"a": b"1"}, [])
        await writer.stop(1)
        assert await store.all() == {"a": b"1"}

    Simulation(1).run(story())


def test_rows_are_loaded_again_from_the_start_when_the_store_fails():
    async def story() -> None:
        store = FailingStore()
        everything = {str(number): b"x" for number in range(2000)}
        await store.change(ROWS, everything)
        taker = Taker()
        store.away = True
        asyncio.get_running_loop().call_later(3, setattr, store, "away", False)
        assert await load_rows(store, taker, 60)
        assert taker.rows == everything

    Simulation(1).run(story())


def test_loading_is_given_up_after_a_time():
    async def story() -> None:
        store = FailingStore()
        await store.change(ROWS, {"a": b"x"})
        store.away = True
        began = asyncio.get_running_loop().time()
        assert not await load_rows(store, Taker(), 60)
        assert 60 <= asyncio.get_running_loop().time() - began < 61

    Simulation(1).run(story())
