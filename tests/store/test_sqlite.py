"""The SQLite store: groups, crashes, and files that are not what they should be."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chappe.errors import ConfigError, StorageError
from chappe.store.sqlite import APPLICATION_ID, SCHEMA_VERSION, SqliteStore
from tests.loop import on_loop
from tests.processes import kill, read_line
from tests.store import writer

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "chappe.db"


def traced(store: SqliteStore) -> list[str]:
    """Every statement that the store carries out from now on."""
    statements: list[str] = []
    store._database._connection.set_trace_callback(statements.append)
    return statements


async def count_of(store: SqliteStore) -> int:
    return sum([len(page) async for page in store.scan("t")])


def test_what_a_killed_process_was_told_is_written_is_there(file: Path):
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.store.writer", str(file)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert process.stdout is not None
    try:
        acknowledged = [read_line(process.stdout).strip() for _ in range(200)]
        process.kill()
        acknowledged += process.stdout.read().splitlines()
    finally:
        assert kill(process) == -9

    @on_loop
    async def read() -> None:
        store = SqliteStore(file)
        keys = [key async for page in store.scan("t") for key, _ in page]
        await store.close()
        # A change is there wholly or not at all, also one that nobody was told of.
        changes = Counter(key.partition("/")[0] for key in keys)
        assert set(changes.values()) == {writer.KEYS_PER_CHANGE}
        assert [name for name in acknowledged if name not in changes] == []

    read()


@on_loop
async def test_an_acknowledged_change_has_been_flushed(file: Path):
    store = SqliteStore(file)
    ((level,),) = store._database._connection.execute("PRAGMA synchronous")
    ((mode,),) = store._database._connection.execute("PRAGMA journal_mode")
    await store.close()
    assert (level, mode) == (2, "wal")  # FULL: the log is flushed at every commit


@on_loop
async def test_changes_that_wait_together_share_a_transaction(file: Path):
    store = SqliteStore(file)
    statements = traced(store)
    await asyncio.gather(*(store.change("t", {f"k{i}": b"v"}) for i in range(1000)))
    assert await count_of(store) == 1000
    await store.close()
    commits = statements.count("COMMIT")
    # The thread may take the first few before the rest are there.
    assert 1 <= commits <= 20


@on_loop
async def test_a_change_that_cannot_be_made_does_not_take_others_with_it(file: Path):
    store = SqliteStore(file)
    nonsense: Any = [b"no bytes"]
    outcomes = await asyncio.gather(
        store.change("t", {"a": b"1"}),
        store.change("t", {"b": b"2", "c": nonsense}),
        store.change("t", {"d": b"3"}),
        return_exceptions=True,
    )
    assert outcomes[0] is outcomes[2] is None
    assert isinstance(outcomes[1], StorageError)
    assert await store.get("t", ["a", "b", "c", "d"]) == {"a": b"1", "d": b"3"}
    await store.close()


@on_loop
async def test_a_full_disk_is_told_and_survived(file: Path):
    store = SqliteStore(file)
    await store.change("t", {"before": b"v"})
    ((pages,),) = store._database._connection.execute("PRAGMA page_count")
    store._database._connection.execute(f"PRAGMA max_page_count = {pages + 4}").fetchall()
    outcomes = await asyncio.gather(
        store.change("t", {"small": b"v"}),
        store.change("t", {"large": b"v" * 100_000}),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], StorageError)
    assert str(file) in str(outcomes[1])
    held = await store.get("t", ["before", "small", "large"])
    # What was told to have failed may not be there by half.
    assert "large" not in held
    assert ("small" in held) or isinstance(outcomes[0], StorageError)
    assert held["before"] == b"v"
    await store.change("t", {}, ["before"])
    assert await store.get("t", ["before"]) == {}
    await store.close()


@on_loop
async def test_what_piles_up_is_bounded(file: Path):
    store = SqliteStore(file, busy_timeout_s=30, jobs_max=10, jobs_bytes_max=1000)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(store.change("t", {"first": b"v"}))
        await asyncio.sleep(0)
        while store._database._jobs:  # until the thread has taken it, and waits for the lock
            await asyncio.sleep(0)
        waiting = [asyncio.create_task(store.change("t", {f"k{i}": b"v"})) for i in range(10)]
        await asyncio.sleep(0)
        with pytest.raises(StorageError, match="too much waits"):
            await store.change("t", {"one too many": b"v"})
        other.execute("ROLLBACK")
        await asyncio.gather(first, *waiting)
        # One alone may be as large as it likes; nothing waits behind it.
        large = asyncio.create_task(store.change("t", {"large": b"v" * 2000}))
        await large
    assert await count_of(store) == 12
    await store.close()


@on_loop
async def test_bytes_that_pile_up_are_bounded(file: Path):
    store = SqliteStore(file, busy_timeout_s=30, jobs_bytes_max=1000)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asked = [asyncio.create_task(store.change("t", {"k": b"v" * 600})) for _ in range(3)]
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_EXCEPTION)
        assert [type(task.exception()) for task in done] == [StorageError] * len(done)
        other.execute("ROLLBACK")
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert None in outcomes
    await store.close()


@on_loop
async def test_a_file_that_another_holds_is_told_and_works_later(file: Path):
    store = SqliteStore(file, busy_timeout_s=0.01)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="locked") as refused:
            await store.change("t", {"a": b"1"})
        assert str(file) in str(refused.value)
        with pytest.raises(ConfigError, match="locked") as unopened:
            SqliteStore(file, busy_timeout_s=0.01)
        assert str(file) in str(unopened.value)
        other.execute("ROLLBACK")
    await store.change("t", {"a": b"1"})
    assert await store.get("t", ["a"]) == {"a": b"1"}
    await store.close()


def _scrambled(file: Path) -> None:
    file.write_bytes(b"this was never a database, or not for long " * 200)


def _another(file: Path) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE mine (x)")
        other.commit()


def _marked(file: Path) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute("PRAGMA application_id = 77")


def _later(file: Path) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        other.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")


def _folder(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_scrambled, "not a database"),
        (_another, "another program"),
        (_marked, "another program"),
        (_later, "later version"),
        (_folder, "unable to open"),
    ],
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(file: Path, make: Any, said: str):
    make(file)
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(ConfigError, match=said) as refused:
        SqliteStore(file)
    assert str(file) in str(refused.value)
    assert (file.read_bytes() if file.is_file() else None) == before


@on_loop
async def test_a_page_that_was_damaged_is_told(file: Path):
    store = SqliteStore(file)
    await store.change("t", {f"k{i:05}": b"v" * 100 for i in range(5000)})
    await store.close()
    content = bytearray(file.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xa5" * 64
    file.write_bytes(content)
    store = SqliteStore(file)
    with pytest.raises(StorageError, match="malformed") as told:
        await count_of(store)
    assert str(file) in str(told.value)
    await store.close()


@on_loop
async def test_close_carries_out_what_was_accepted(file: Path):
    store = SqliteStore(file)
    writing = [asyncio.create_task(store.change("t", {f"k{i}": b"v"})) for i in range(500)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*writing) == [None] * 500
    again = SqliteStore(file)
    assert await count_of(again) == 500
    await again.close()
    # The log was folded back into the file.
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@on_loop
async def test_the_loop_does_not_wait_for_the_disk(file: Path):
    store = SqliteStore(file, busy_timeout_s=30)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        stuck = asyncio.create_task(store.change("t", {"k": b"v"}))
        for _ in range(100):  # the loop goes round while the change waits for the lock
            await asyncio.sleep(0)
        assert not stuck.done()
        other.execute("ROLLBACK")
    await stuck
    await store.close()


def test_a_loop_that_is_gone_leaves_the_thread_in_order(file: Path):
    store = SqliteStore(file)

    async def ask() -> None:
        asked = asyncio.create_task(store.change("t", {"k": b"v"}))
        await asyncio.sleep(0)
        asked.cancel()

    asyncio.run(ask())

    @on_loop
    async def again() -> None:
        assert await store.get("t", ["k"]) == {"k": b"v"}
        await store.close()

    again()
