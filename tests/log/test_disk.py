"""Disks and files of this machine, and a journal on them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from chappe.errors import Overload, RequestError, StorageError
from chappe.log.disk import ThreadDisk
from chappe.log.fs import OsFs
from chappe.log.journal import Journal
from chappe.log.options import JournalOptions
from tests.loop import on_loop


@on_loop
async def test_jobs_run_in_order_off_the_loop_and_are_told_on_it():
    loop = asyncio.get_running_loop()
    disk = ThreadDisk(loop, "test")
    here = threading.get_ident()
    told: list[object] = []
    over = loop.create_future()

    def job(number: int) -> tuple[int, bool]:
        if number == 3:
            raise OSError(5, "Input/output error")
        return number, threading.get_ident() == here

    def done(result: object, error: OSError | None) -> None:
        assert threading.get_ident() == here
        told.append(error.errno if error else result)
        if len(told) == 6:
            over.set_result(None)

    for number in range(6):
        disk.run(lambda number=number: job(number), done)  # type: ignore[misc]
    await over
    assert told == [(0, False), (1, False), (2, False), 5, (4, False), (5, False)]
    disk.close()
    with pytest.raises(StorageError, match="closed"):
        disk.run(lambda: None, done)


@on_loop
async def test_a_disk_has_a_bound_and_closing_waits_for_what_it_took():
    disk = ThreadDisk(asyncio.get_running_loop(), "test", jobs_max=3)
    gate = threading.Event()
    ran: list[int] = []
    began = threading.Event()

    def block() -> None:
        began.set()
        gate.wait()

    disk.run(block, lambda *_: None)
    began.wait()
    for number in range(3):
        disk.run(lambda number=number: ran.append(number), lambda *_: None)  # type: ignore[misc]
    with pytest.raises(Overload, match="3 jobs wait"):
        disk.run(lambda: None, lambda *_: None)
    gate.set()
    disk.close()
    assert ran == [0, 1, 2]


def test_files_grow_where_they_ended_whatever_was_allocated(tmp_path):
    fs = OsFs()
    path = str(tmp_path / "file")
    file = fs.open_append(path)
    file.append(b"abc")
    file.allocate(1000)
    file.append(b"def")
    file.sync()
    file.close()
    assert file.size == 6
    assert fs.size(path) == 1000
    assert fs.read(path, 0, 10_000) == b"abcdef" + bytes(994)
    assert fs.read(path, 4, 2) == b"ef"
    assert fs.read(path, 2000, 10) == b""
    fs.truncate(path, 6)
    assert fs.open_append(path).size == 6
    fs.write(path, b"whole")
    assert fs.read(path, 0, 100) == b"whole"
    fs.rename(path, path + "2")
    assert fs.list(str(tmp_path)) == ["file2"]
    fs.remove(path + "2")
    assert not fs.exists(path + "2")
    with pytest.raises(FileNotFoundError):
        fs.read(path, 0, 1)


class Owner:
    """A journal with threads of its own, and the count of what is in it."""

    def __init__(self, folder: Path, **options: object) -> None:
        loop = asyncio.get_running_loop()
        self.disk, self.reading = ThreadDisk(loop, "disk"), ThreadDisk(loop, "reading")
        self.journal = Journal(
            OsFs(),
            self.disk,
            self.reading,
            str(folder),
            JournalOptions(segment_bytes=20_000, batch_bytes_max=100_000, **options),  # type: ignore[arg-type]
            lambda: 1,
            loop,
            lambda: [msgspec.msgpack.encode({"count": self.count})],
        )
        self.count = 0
        for batch in self.journal.recover():
            for value in msgspec.msgpack.decode(batch.array):
                self.count = value["count"] if isinstance(value, dict) else self.count + 1

    def append(self, done=None) -> int:
        lsn = self.journal.append([msgspec.msgpack.encode("x" * 100)], done)
        self.count += 1
        return lsn

    async def close(self) -> None:
        await self.journal.close()
        self.disk.close()
        self.reading.close()


@pytest.mark.parametrize("flush", ["always", "interval", "never"])
@on_loop
async def test_a_journal_on_threads(tmp_path, flush):
    owner = Owner(tmp_path, flush=flush)
    outcomes: list[RequestError | None] = []
    total = 2000
    over = asyncio.get_running_loop().create_future()

    def done(error: RequestError | None) -> None:
        outcomes.append(error)
        if owner.count < total:
            owner.append(done)
        elif len(outcomes) == total:
            over.set_result(None)

    first = owner.append(done)
    for _ in range(49):
        owner.append(done)
    await over
    assert outcomes == [None] * total
    # Many share a flush.
    assert owner.journal.flushes <= total // 10
    got = asyncio.get_running_loop().create_future()
    owner.journal.trim(0)
    owner.journal._reading.clear()
    owner.journal.read(first, got.set_result)
    batch = await got
    assert batch.lsn == first == 0
    await owner.close()
    again = Owner(tmp_path)
    assert again.count == total
    assert len(again.journal.bases) > 5
    assert again.journal.damages == []
    await again.close()


@on_loop
async def test_closing_writes_what_was_accepted(tmp_path):
    owner = Owner(tmp_path)
    outcomes: list[RequestError | None] = []
    for _ in range(10):
        owner.append(outcomes.append)
    await owner.close()
    assert outcomes == [None] * 10
    with pytest.raises(Overload, match="closed"):
        owner.append()
    # Nothing is left allocated, and somebody else may have it.
    size = sum(path.stat().st_size for path in tmp_path.glob("*.log"))
    assert size == owner.journal.end
    again = Owner(tmp_path)
    assert again.count == 10
    await again.close()


@on_loop
async def test_closing_fails_what_nobody_confirmed(tmp_path):
    class Silent:
        def may_flush(self) -> bool:
            return True

        def flushed(self, lsn: int) -> None:
            pass

    owner = Owner(tmp_path, flush="interval")
    owner.journal.acknowledger = Silent()
    outcomes: list[RequestError | None] = []
    owner.append(outcomes.append)
    await owner.close()
    [error] = outcomes
    assert isinstance(error, Overload)
    assert error.outcome_unknown
