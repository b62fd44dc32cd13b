"""A store in one SQLite file: the embedded default.

One thread, owned by the store, has the connection; the event loop never waits for the disk. What
waits when the thread comes round is carried out in one transaction, so many small changes share one
flush. Each job has a savepoint of its own: one that fails does not take the others with it.

The file is in WAL mode with `synchronous=FULL`: the log is flushed before a change is acknowledged,
so an acknowledged change is there after `kill -9` and after a power cut, as far as the disk tells
the truth when it says that it has written. With NORMAL a power cut would lose the last changes, a
token's revocation among them; since a flush is shared by all who wait, FULL costs little.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from chappe.errors import ConfigError, StorageError

PAGE_KEYS = 500
SCHEMA_VERSION = 1
# "Chpp": tells our files from other databases.
APPLICATION_ID = 0x43687070
# How many jobs may wait for the thread, and how many bytes they may hold: what a slow disk can make
# pile up. Far above what a healthy one ever lets wait.
JOBS_MAX = 10_000
JOBS_BYTES_MAX = 64 * 1024 * 1024
# How long another process that writes to the same file is waited for.
BUSY_TIMEOUT_S = 5.0
# A log that grew in a burst is cut back to this.
LOG_BYTES_KEPT = 16 * 1024 * 1024

_SCHEMA = """
CREATE TABLE entries (
    tab TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tab, key)
) WITHOUT ROWID
"""
_PUT = (
    "INSERT INTO entries VALUES (?, ?, ?) "
    "ON CONFLICT (tab, key) DO UPDATE SET value = excluded.value"
)
_DELETE = "DELETE FROM entries WHERE tab = ? AND key = ?"
_GET = "SELECT value FROM entries WHERE tab = ? AND key = ?"
_PAGE = "SELECT key, value FROM entries WHERE tab = ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"
_CLEAR = "DELETE FROM entries WHERE tab = ? AND key >= ? AND key < ?"

T = TypeVar("T")


class _Job(NamedTuple):
    run: Callable[[sqlite3.Connection], Any]
    writes: bool
    size: int
    future: asyncio.Future[Any]


class SqliteStore:
    """Tables in a file; used from one event loop at a time.

    Raises ConfigError when the file cannot be opened: it is locked, corrupt, of something else or
    of a later version.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        jobs_max: int = JOBS_MAX,
        jobs_bytes_max: int = JOBS_BYTES_MAX,
    ) -> None:
        self._path = path
        self._jobs_max = jobs_max
        self._jobs_bytes_max = jobs_bytes_max
        self._connection = _open(path, busy_timeout_s)
        # All below is guarded by the condition.
        self._waits = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._jobs_bytes = 0
        self._closing: asyncio.Future[None] | None = None
        # A daemon: a program that forgets to close loses nothing that was acknowledged.
        self._thread = threading.Thread(target=self._serve, name="chappe-store", daemon=True)
        self._thread.start()

    async def get(self, table: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Read the values of those keys that are there."""
        wanted = [(key, key.encode()) for key in keys]

        def read(connection: sqlite3.Connection) -> dict[str, bytes]:
            rows = ((key, connection.execute(_GET, (table, raw)).fetchone()) for key, raw in wanted)
            return {key: row[0] for key, row in rows if row is not None}

        return await self._do(read, writes=False)

    async def change(
        self, table: str, puts: Mapping[str, bytes], deletes: Iterable[str] = ()
    ) -> None:
        """Write and remove many at once; what is in both is written.

        It is on the disk when this returns. Cancelling waits no longer; it happens all the same.
        """
        removed = [(table, key.encode()) for key in deletes]
        written = [(table, key.encode(), value) for key, value in puts.items()]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(_DELETE, removed)
            connection.executemany(_PUT, written)

        size = sum(len(key) + len(value) for _, key, value in written)
        await self._do(write, writes=True, size=size)

    async def swap(self, table: str, key: str, expected: bytes | None, value: bytes | None) -> bool:
        """Replace a value if it is still what is expected; whether it was."""
        raw = key.encode()

        def exchange(connection: sqlite3.Connection) -> bool:
            row = connection.execute(_GET, (table, raw)).fetchone()
            if (None if row is None else row[0]) != expected:
                return False
            if value is not None:
                connection.execute(_PUT, (table, raw, value))
            elif row is not None:
                connection.execute(_DELETE, (table, raw))
            return True

        return await self._do(exchange, writes=True, size=len(value or b""))

    async def scan(self, table: str, prefix: str = "") -> AsyncIterator[list[tuple[str, bytes]]]:
        """Read all keys that begin so, a page at a time, in the order of their bytes."""
        start, end = _range(prefix)
        while True:
            page = await self._do(partial(_page, table, start, end), writes=False)
            if page:
                yield [(key.decode(), value) for key, value in page]
            if len(page) < PAGE_KEYS:
                return
            start = page[-1][0] + b"\0"

    async def clear(self, table: str, prefix: str = "") -> None:
        """Remove all keys that begin so."""
        start, end = _range(prefix)
        await self._do(lambda connection: connection.execute(_CLEAR, (table, start, end)), True)

    async def close(self) -> None:
        """Carry out what was accepted, and close the file. Raises nothing when closed already."""
        with self._waits:
            if self._closing is None:
                self._closing = asyncio.get_running_loop().create_future()
            self._waits.notify()
        await asyncio.shield(self._closing)
        self._thread.join()

    async def _do(self, run: Callable[[sqlite3.Connection], T], writes: bool, size: int = 0) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._waits:
            if self._closing is not None:
                raise StorageError(f"{self._path}: closed")
            full = self._jobs_bytes + size > self._jobs_bytes_max and self._jobs
            if full or len(self._jobs) >= self._jobs_max:
                raise StorageError(f"{self._path}: too much waits to be written already")
            self._jobs.append(_Job(run, writes, size, future))
            self._jobs_bytes += size
            self._waits.notify()
        return await future

    def _serve(self) -> None:
        """The thread: carry out what waits until the store is closed."""
        while jobs := self._take():
            _tell(jobs, self._carry_out(jobs))
        self._connection.close()
        assert self._closing is not None
        # The loop may be gone by now, and nobody waiting.
        with suppress(RuntimeError):
            self._closing.get_loop().call_soon_threadsafe(_end, self._closing)

    def _take(self) -> list[_Job]:
        """All jobs that wait; none when the store is being closed."""
        with self._waits:
            while not self._jobs and self._closing is None:
                self._waits.wait()
            jobs = list(self._jobs)
            self._jobs.clear()
            self._jobs_bytes = 0
            return jobs

    def _carry_out(self, jobs: list[_Job]) -> list[Any]:
        """Do all jobs in one transaction; an outcome is a result or a StorageError."""
        writes = any(job.writes for job in jobs)
        try:
            # Reads alone need one too: another process must not write between two of their keys.
            self._connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            outcomes = [self._outcome(job) for job in jobs]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            return [self._failure(error) for _ in jobs]
        return outcomes

    def _outcome(self, job: _Job) -> Any:
        """Do one job; what it did is undone when it fails. Raises when all have to be undone."""
        if not job.writes:
            try:
                return job.run(self._connection)
            except sqlite3.Error as error:
                return self._failure(error)
        self._connection.execute("SAVEPOINT job")
        try:
            result = job.run(self._connection)
        except sqlite3.Error as error:
            # A full disk and the like have ended the transaction: then this raises for everybody.
            self._connection.execute("ROLLBACK TO job")
            result = self._failure(error)
        self._connection.execute("RELEASE job")
        return result

    def _failure(self, error: sqlite3.Error) -> StorageError:
        return StorageError(f"{self._path}: {error}")


def _tell(jobs: list[_Job], outcomes: list[Any]) -> None:
    """Hand outcomes to the loop, all in one call."""
    told = zip(jobs, outcomes, strict=True)
    for loop, group in groupby(told, lambda pair: pair[0].future.get_loop()):
        # The loop may be gone by now, and nobody waiting.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, list(group))


def _resolve(told: list[tuple[_Job, Any]]) -> None:
    for job, outcome in told:
        if job.future.done():
            continue
        if isinstance(outcome, StorageError):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)


def _end(closing: asyncio.Future[None]) -> None:
    if not closing.done():
        closing.set_result(None)


def _page(
    table: str, start: bytes, end: bytes, connection: sqlite3.Connection
) -> list[tuple[bytes, bytes]]:
    return connection.execute(_PAGE, (table, start, end, PAGE_KEYS)).fetchall()


def _range(prefix: str) -> tuple[bytes, bytes]:
    """The first key with a prefix, and the end of them: no text holds the byte ff."""
    start = prefix.encode()
    return start, start + b"\xff"


def _open(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise ConfigError(f"store: {path}: {error}") from None
    try:
        _prepare(connection, path)
    except sqlite3.Error as error:
        connection.close()
        raise ConfigError(f"store: {path}: {error}") from None
    except ConfigError:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the table in a new file, or see that an old one is ours."""

    def pragma(text: str) -> Any:
        return connection.execute(f"PRAGMA {text}").fetchone()[0]

    connection.execute("BEGIN IMMEDIATE")
    version, application = pragma("user_version"), pragma("application_id")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and (application or tables):
        raise ConfigError(f"store: {path}: a database of another program")
    if version > SCHEMA_VERSION:
        raise ConfigError(
            f"store: {path}: written by a later version (schema {version}, this one knows "
            f"{SCHEMA_VERSION})"
        )
    if not tables:
        connection.execute(_SCHEMA)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")
    if pragma("journal_mode = WAL") != "wal":
        raise ConfigError(f"store: {path}: this file system does not allow a write-ahead log")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_KEPT}").fetchone()
