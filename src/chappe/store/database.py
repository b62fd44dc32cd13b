"""A SQLite file and the thread that has it: what others want done is brought to it as jobs.

One thread, owned by the database, has the connection; the event loop never waits for the disk. What
waits when the thread comes round is carried out in one transaction, so many small changes share one
flush. Each job has a savepoint of its own: one that fails does not take the others with it.

The file is in WAL mode with `synchronous=FULL`: the log is flushed before a change is acknowledged,
so an acknowledged change is there after `kill -9` and after a power cut, as far as the disk tells
the truth when it says that it has written. With NORMAL a power cut would lose the last changes, a
token's revocation among them; since a flush is shared by all who wait, FULL costs little.

One in memory has no thread: its jobs are done where they are asked for. It is for tests and the
simulation, where threads would make what happens depend on the machine.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from chappe.errors import ConfigError, StorageError

# How many jobs may wait for the thread, and how many bytes they may hold: what a slow disk can make
# pile up. Far above what a healthy one ever lets wait.
JOBS_MAX = 10_000
JOBS_BYTES_MAX = 64 * 1024 * 1024
# How long another process that writes to the same file is waited for.
BUSY_TIMEOUT_S = 5.0
# A log that grew in a burst is cut back to this.
LOG_BYTES_KEPT = 16 * 1024 * 1024
# Text that is none, and numbers that are too large, are told to who brought them.
_FAILURES = (sqlite3.Error, UnicodeError, OverflowError)

T = TypeVar("T")
Run = Callable[[sqlite3.Connection], T]


class Schema(NamedTuple):
    """What is in a file: whose it is, by the option that names it and a number, and its tables.

    The version grows with each change of them. Tables and indexes that are new are made in a file
    of an earlier version; one whose tables were otherwise is refused.
    """

    option: str
    application_id: int
    version: int
    statements: Sequence[str]


class Database(Protocol):
    """Where jobs are carried out, each whole or not at all."""

    async def do(self, run: Run[T], writes: bool, size: int = 0) -> T:
        """Carry out a job; raises StorageError. Cancelling waits no longer; it happens all the
        same. What it writes is on the disk when this returns."""
        ...

    async def close(self) -> None:
        """Carry out what was accepted, and close. Raises nothing when closed already."""
        ...


class _Job(NamedTuple):
    run: Callable[[sqlite3.Connection], Any]
    writes: bool
    size: int
    future: asyncio.Future[Any]


class FileDatabase:
    """A file; used from one event loop at a time. Other processes may have it open as well.

    Raises ConfigError when the file cannot be opened: it is locked, corrupt, of something else, of
    a later version, or of an earlier one with other tables.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema,
        *,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        jobs_max: int = JOBS_MAX,
        jobs_bytes_max: int = JOBS_BYTES_MAX,
    ) -> None:
        self.path = path
        self._jobs_max = jobs_max
        self._jobs_bytes_max = jobs_bytes_max
        self._connection = _open(path, schema, busy_timeout_s)
        # All below is guarded by the condition.
        self._waits = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._jobs_bytes = 0
        self._closing: asyncio.Future[None] | None = None
        # A daemon: a program that forgets to close loses nothing that was acknowledged.
        self._thread = threading.Thread(
            target=self._serve, name=f"chappe-{schema.option}", daemon=True
        )
        self._thread.start()

    async def close(self) -> None:
        """Carry out what was accepted, and close the file. Raises nothing when closed already."""
        with self._waits:
            if self._closing is None:
                self._closing = asyncio.get_running_loop().create_future()
            self._waits.notify()
        await asyncio.shield(self._closing)
        self._thread.join()

    async def do(self, run: Run[T], writes: bool, size: int = 0) -> T:
        """Bring a job to the thread; raises StorageError also when too much waits already."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._waits:
            if self._closing is not None:
                raise StorageError(f"{self.path}: closed")
            full = self._jobs_bytes + size > self._jobs_bytes_max and self._jobs
            if full or len(self._jobs) >= self._jobs_max:
                raise StorageError(f"{self.path}: too much waits to be written already")
            self._jobs.append(_Job(run, writes, size, future))
            self._jobs_bytes += size
            self._waits.notify()
        return await future

    def _serve(self) -> None:
        """The thread: carry out what waits until the file is closed."""
        while jobs := self._take():
            _tell(jobs, _carry_out(self._connection, str(self.path), jobs))
        self._connection.close()
        assert self._closing is not None
        # The loop may be gone by now, and nobody waiting.
        with suppress(RuntimeError):
            self._closing.get_loop().call_soon_threadsafe(_end, self._closing)

    def _take(self) -> list[_Job]:
        """All jobs that wait; none when the file is being closed."""
        with self._waits:
            while not self._jobs and self._closing is None:
                self._waits.wait()
            jobs = list(self._jobs)
            self._jobs.clear()
            self._jobs_bytes = 0
            return jobs


class MemoryDatabase:
    """One in memory, without a thread."""

    def __init__(self, schema: Schema) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        for statement in schema.statements:
            self._connection.execute(statement)
        self._closed = False

    async def do(self, run: Run[T], writes: bool, size: int = 0) -> T:
        """Carry out a job now; raises StorageError."""
        if self._closed:
            raise StorageError("memory: closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        job = _Job(run, writes, size, future)
        _resolve([(job, _carry_out(self._connection, "memory", [job])[0])])
        return await future

    async def close(self) -> None:
        """Forget everything."""
        self._closed = True
        self._connection.close()


def _carry_out(connection: sqlite3.Connection, shown: str, jobs: list[_Job]) -> list[Any]:
    """Do all jobs in one transaction; an outcome is a result or a StorageError."""
    writes = any(job.writes for job in jobs)
    try:
        # Reads alone need one too: another process must not write between two of their rows.
        connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        outcomes = [_outcome(connection, shown, job) for job in jobs]
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return [_failure(shown, error) for _ in jobs]
    return outcomes


def _outcome(connection: sqlite3.Connection, shown: str, job: _Job) -> Any:
    """Do one job; what it did is undone when it fails. Raises when all have to be undone."""
    if not job.writes:
        try:
            return job.run(connection)
        except _FAILURES as error:
            return _failure(shown, error)
    connection.execute("SAVEPOINT job")
    try:
        result = job.run(connection)
    except _FAILURES as error:
        # A full disk and the like have ended the transaction: then this raises for everybody.
        connection.execute("ROLLBACK TO job")
        result = _failure(shown, error)
    connection.execute("RELEASE job")
    return result


def _failure(shown: str, error: Exception) -> StorageError:
    return StorageError(f"{shown}: {error}")


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


def _open(path: Path, schema: Schema, busy_timeout_s: float) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise ConfigError(f"{schema.option}: {path}: {error}") from None
    try:
        _prepare(connection, path, schema)
    except sqlite3.Error as error:
        connection.close()
        raise ConfigError(f"{schema.option}: {path}: {error}") from None
    except ConfigError:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    """Make the tables in a new file, or see that an old one is ours."""

    def pragma(text: str) -> Any:
        return connection.execute(f"PRAGMA {text}").fetchone()[0]

    connection.execute("BEGIN IMMEDIATE")
    version, application = pragma("user_version"), pragma("application_id")
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != schema.application_id and (application or tables):
        raise ConfigError(f"{schema.option}: {path}: a database of another program")
    if version > schema.version:
        raise ConfigError(
            f"{schema.option}: {path}: written by a later version "
            f"(schema {version}, this one knows {schema.version})"
        )
    if not tables or version < schema.version:
        _add(connection, path, schema, version)
        connection.execute(f"PRAGMA application_id = {schema.application_id}")
        connection.execute(f"PRAGMA user_version = {schema.version}")
    connection.execute("COMMIT")
    if pragma("journal_mode = WAL") != "wal":
        raise ConfigError(
            f"{schema.option}: {path}: this file system does not allow a write-ahead log"
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_KEPT}").fetchone()


def _add(connection: sqlite3.Connection, path: Path, schema: Schema, version: int) -> None:
    """Make what is missing in a file; raises ConfigError when what is there is otherwise."""
    there = _definitions(connection)
    with closing(sqlite3.connect(":memory:")) as fresh:
        for statement in schema.statements:
            fresh.execute(statement)
        wanted = _definitions(fresh)
    for (kind, name), definition in wanted.items():
        if (kind, name) not in there:
            connection.execute(definition)
        elif there[kind, name].split() != definition.split():
            raise ConfigError(
                f"{schema.option}: {path}: written by an earlier version, whose {kind} {name} was "
                f"another (schema {version}, this one knows {schema.version})"
            )


def _definitions(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """What made each table and index, in the order in which they were made."""
    rows = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
    )
    # sqlite_sequence and the like come by themselves.
    return {(kind, name): sql for kind, name, sql in rows if not name.startswith("sqlite_")}
