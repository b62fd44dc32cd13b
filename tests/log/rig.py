"""A journal on a real folder, with a disk and a timer that do what they are told."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from chappe.errors import Overload, RequestError
from chappe.log.batch import Batch
from chappe.log.disk import Done
from chappe.log.fs import File, Handle, OsFs
from chappe.log.journal import Journal
from chappe.log.options import JournalOptions

SMALL = {"segment_bytes": 1024, "batch_bytes_max": 4096, "allocate_bytes": 0}


class Call:
    def __init__(self, when: float, callback: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.when = when
        self.callback = callback
        self.args = args
        self.over = False

    def cancel(self) -> None:
        self.over = True


class StepTimer:
    """A loop's timer that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[Call] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., None], *args: Any) -> Call:
        self._calls.append(Call(when, callback, args))
        return self._calls[-1]

    def call_soon(self, callback: Callable[..., None], *args: Any) -> Call:
        return self.call_at(self.now, callback, *args)

    def step(self) -> bool:
        """Make all calls that are due; whether there was one."""
        due = [call for call in self._calls if call.when <= self.now]
        self._calls = [call for call in self._calls if call.when > self.now]
        for call in due:
            if not call.over:
                call.callback(*call.args)
        return bool(due)


class StepDisk:
    """Runs jobs when it is told to."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[[], Any], Done[Any]]] = deque()

    def run(self, job: Callable[[], Any], done: Done[Any]) -> None:
        self.jobs.append((job, done))

    def step(self) -> bool:
        """Run one job; whether there was one."""
        if not self.jobs:
            return False
        job, done = self.jobs.popleft()
        try:
            result = job()
        except OSError as error:
            done(None, error)
        else:
            done(result, None)
        return True


class LoggedFile:
    def __init__(self, fs: LoggedFs, path: str, file: File) -> None:
        self._fs = fs
        self._path = path
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, data: bytes) -> None:
        self._fs.note("append", self._path)
        self._file.append(data)

    def allocate(self, size: int) -> None:
        self._fs.note("allocate", self._path)
        self._file.allocate(size)

    def sync(self) -> None:
        self._fs.note("sync", self._path)

    def close(self) -> None:
        self._file.close()


class LoggedFs(OsFs):
    """The machine's files; what is done is noted, and fails when it is told to.

    Nothing is really synced: a process that is killed leaves all it wrote in the machine's memory.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.locks: list[Handle] = []
        # What fails: the call's name, after how many more that succeed, with which errno, and
        # whether from then on all of them do.
        self.faults: dict[str, tuple[int, int, bool]] = {}

    def note(self, call: str, path: str) -> None:
        self.calls.append((call, os.path.basename(path)))
        if call not in self.faults:
            return
        left, number, lasts = self.faults[call]
        if left:
            self.faults[call] = left - 1, number, lasts
            return
        if not lasts:
            del self.faults[call]
        raise OSError(number, os.strerror(number))

    def count(self, call: str) -> int:
        return sum(1 for name, _ in self.calls if name == call)

    def open_append(self, path: str) -> LoggedFile:  # type: ignore[override]
        self.note("open", path)
        return LoggedFile(self, path, super().open_append(path))

    def read(self, path: str, offset: int, n: int) -> bytes:
        self.note("read", path)
        return super().read(path, offset, n)

    def write(self, path: str, data: bytes) -> None:
        self.note("write", path)
        Path(path).write_bytes(data)

    def truncate(self, path: str, size: int) -> None:
        self.note("truncate", path)
        os.truncate(path, size)

    def remove(self, path: str) -> None:
        self.note("remove", path)
        super().remove(path)

    def sync_dir(self, path: str) -> None:
        self.note("sync_dir", path)

    def lock(self, path: str) -> Handle:  # type: ignore[override]
        handle = super().lock(path)
        self.locks.append(handle)
        return handle


class Rig:
    """A journal whose state is the list of all values that were appended."""

    def __init__(self, folder: Path, *, fs: Any = None, **options: Any) -> None:
        self.folder = folder
        self.options = JournalOptions(**SMALL | options)
        self.fs = LoggedFs() if fs is None else fs
        self.timer = StepTimer()
        self.disk = StepDisk()
        self.reading = StepDisk()
        self.wall_ms = 1_000_000
        self.state: list[Any] = []
        self.snapshots = True
        self.outcomes: dict[Any, RequestError | None] = {}
        self.journal = self._make()

    def _make(self) -> Journal:
        return Journal(
            self.fs,
            self.disk,
            self.reading,
            str(self.folder),
            self.options,
            lambda: self.wall_ms,
            self.timer,
            self.snapshot,
        )

    def snapshot(self) -> list[bytes]:
        return [msgspec.msgpack.encode({"all": self.state})] if self.snapshots else []

    def fold(self, batches: Iterable[Batch]) -> list[Any]:
        """Read the state from batches; a snapshot replaces it."""
        for batch in batches:
            values = msgspec.msgpack.decode(batch.array)
            assert len(values) == batch.count
            for value in values:
                if isinstance(value, dict):
                    self.state = list(value["all"])
                else:
                    self.state.append(value)
        return self.state

    def open(self) -> Rig:
        self.fold(self.journal.recover())
        return self

    def again(self, **options: Any) -> Rig:
        """The process is killed; what comes after it has the same folder."""
        self.crash()
        return Rig(self.folder, **{name: getattr(self.options, name) for name in SMALL} | options)

    def crash(self) -> None:
        for lock in self.fs.locks:
            lock.close()
        self.fs.locks.clear()

    def append(self, *values: Any, **options: Any) -> int:
        """Append values; `outcomes` gets the last one's."""
        records = [msgspec.msgpack.encode(value) for value in values]

        def done(error: RequestError | None) -> None:
            self.outcomes[values[-1]] = error

        lsn = self.journal.append(records, done, **options)
        self.state.extend(values)
        return lsn

    def turn(self) -> None:
        """Let everything happen that can without time going on."""
        while self.timer.step() or self.disk.step() or self.reading.step():
            pass

    def put(self, *values: Any) -> int:
        """Append and write one batch."""
        lsn = self.append(*values)
        self.turn()
        return lsn

    def move(self, seconds: float) -> None:
        self.timer.now += seconds
        self.wall_ms += int(seconds * 1000)
        self.turn()

    def read(self, lsn: int) -> Any:
        got: list[Any] = []
        self.journal.read(lsn, got.append)
        self.turn()
        assert len(got) == 1
        return got[0]

    def raw(self, lsn: int, bytes_max: int = 10_000) -> Any:
        got: list[Any] = []
        self.journal.raw(lsn, bytes_max, got.append)
        self.turn()
        assert len(got) == 1
        return got[0]

    def files(self) -> dict[str, bytes]:
        """The segments, as they are on the disk."""
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob("*.log"))}


def until_refused(step: Callable[[int], object], match: str) -> tuple[int, Overload]:
    """Repeat until it is refused; how often it was not, and the refusal."""
    for number in range(10_000):
        try:
            step(number)
        except Overload as error:
            refused = error
            break
    else:
        raise AssertionError("was never refused")
    assert match in refused.reason
    return number, refused


def values(batch: Batch) -> list[Any]:
    """The values of a batch, without a snapshot."""
    return [v for v in msgspec.msgpack.decode(batch.array) if not isinstance(v, dict)]


EIO, ENOSPC = errno.EIO, errno.ENOSPC
