"""Logs that real nodes wrote are cut and damaged, and read again by brokers and by nodes (Q11).

Whatever is whole is served; what is not is reported by segment and offset, and never served.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import uvloop

import chappe.blocking
from chappe.clock import SystemClock
from chappe.hub.deadline import Alarm
from chappe.log.batch import HEADER_BYTES, Batch
from chappe.log.disk import ThreadDisk
from chappe.log.fs import OsFs
from chappe.log.journal import Journal
from chappe.log.options import JournalOptions
from chappe.log.segment import Damage, base_of, scan
from chappe.queues.broker import Broker
from chappe.queues.consumer import Loans
from chappe.queues.local import LocalStorage
from chappe.queues.options import QueueLimits
from chappe.queues.record import Stored, decode_records
from tests.queues.rig import KeptOutlet

from .figures import FULL
from .process import Api, NodeProcess

QUEUE = "queue:work"
KEY = ("default", QUEUE)
COUNT = 40
# Several segments for so many messages, and no room that was taken ahead.
CONFIG = """
[journal]
segment_bytes = 2048
batch_bytes_max = 1048576
allocate_bytes = 0
"""
OPTIONS = JournalOptions(segment_bytes=2048, batch_bytes_max=1024 * 1024, allocate_bytes=0)
# Where the fields of a batch begin, by the diagram in log/batch.py.
REGIONS = {
    "magic": 0,
    "version": 4,
    "flags": 5,
    "zero": 6,
    "epoch": 15,
    "position": 23,
    "time": 31,
    "length": 35,
    "checksum": 38,
    "array": 40,
    "count": 44,
    "body": HEADER_BYTES + 20,
}


class Part(NamedTuple):
    """A batch in a log: its file, where it lies there, and the messages in it."""

    file: str
    offset: int
    end: int
    numbers: list[int]


class Log:
    """The journal of a node that was killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = sorted(path.name for path in folder.glob("*.log"))
        self.parts = [part for name in self.files for part in self._parts(folder / name)]

    def _parts(self, path: Path) -> Iterator[Part]:
        base = base_of(path.name)
        assert base is not None
        for batch in scan(OsFs(), str(path), base, path.stat().st_size):
            assert isinstance(batch, Batch), batch
            records = decode_records(batch.body, batch.count)
            numbers = [number_of(one) for one in records if isinstance(one, Stored)]
            yield Part(path.name, batch.lsn - base, batch.end - base, numbers)

    def numbers(self, *without: Part) -> list[int]:
        """The messages in it, but for some batches."""
        return [number for part in self.parts if part not in without for number in part.numbers]

    def copied(self, to: Path) -> Path:
        """A copy to damage."""
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.folder, to)
        return to


def data_of(number: int) -> str:
    """Short ones at the end, of which every byte is tried."""
    return str(number).zfill(400 if number < COUNT - 2 else 1)


def number_of(message: Stored) -> int:
    return int(msgspec.json.decode(message.payload))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> NodeProcess:
    node = NodeProcess(tmp_path_factory.mktemp("node"), CONFIG)
    try:
        with chappe.blocking.connect(node.addresses["websocket"], as_="user:a") as client:
            client.create(QUEUE)
            for n in range(COUNT):
                client.send(QUEUE, data_of(n))
    finally:
        node.kill()
    return node


@pytest.fixture(scope="module")
def log(node: NodeProcess) -> Log:
    log = Log(node.data / "journals" / "node")
    assert len(log.files) > 2
    assert log.numbers() == list(range(COUNT))
    return log


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """In memory if there is such a place: very many logs are written here."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder) / "journal"


@asynccontextmanager
async def broker_of(folder: Path) -> AsyncIterator[tuple[Broker, Journal]]:
    """The broker of a journal."""
    loop = asyncio.get_running_loop()
    storage = LocalStorage(QueueLimits(), loop)
    disks = (ThreadDisk(loop, "write"), ThreadDisk(loop, "read"))
    clock = SystemClock()
    journal = Journal(OsFs(), *disks, str(folder), OPTIONS, clock.wall_ms, loop, storage.snapshot)
    storage.recover(journal)
    loans = Loans()
    broker = Broker(
        storage,
        limits=QueueLimits(),
        loans=loans,
        alarm=Alarm(loop, loans.deadlines),
        loop=loop,
        clock=clock,
        outlet=lambda app: KeptOutlet(),
    )
    broker.start()
    try:
        yield broker, journal
    finally:
        await journal.close()
        for disk in disks:
            disk.close()


async def served(broker: Broker) -> list[int]:
    """All messages that the queue has for its consumers."""
    queue = broker.queues.get(KEY)
    if queue is None:
        return []
    (lane,) = queue.state.lanes
    got: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    queue.storage.read(queue.state, lane, 1, 10_000, got.set_result)
    found = await got
    assert found.error is None
    return [number_of(message) for message in found.messages]


async def read_again(folder: Path) -> tuple[list[int], list[Damage]]:
    async with broker_of(folder) as (broker, journal):
        found = await served(broker)
        return found, list(journal.damages)


def test_a_log_cut_at_every_byte_of_its_end_keeps_what_is_whole(log: Log, place: Path) -> None:
    one, other = log.parts[-2:]
    assert one.numbers
    assert other.numbers
    assert one.file == other.file

    async def run() -> None:
        for cut in range(one.offset, other.end):
            folder = log.copied(place)
            path = folder / other.file
            with path.open("r+b") as file:
                file.truncate(cut)
            whole = [part for part in log.parts[-2:] if part.end > cut]
            found, damages = await read_again(folder)
            assert found == log.numbers(*whole), f"cut at {cut}"
            ends = {part.offset for part in log.parts[-2:]}
            if cut in ends:
                assert not damages
            else:
                (damage,) = damages
                assert (damage.segment, damage.tail) == (str(path), True)
                assert damage.offset == max(end for end in ends if end < cut)

    uvloop.run(asyncio.wait_for(run(), 100))


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("which", ["middle", "last", "snapshot"])
def test_a_flipped_bit_is_reported_and_never_served(
    log: Log, place: Path, region: str, which: str
) -> None:
    last = log.files[-1]
    firsts = [part for part in log.parts if part.offset == 0]
    part = {
        "middle": next(part for part in log.parts if part.file == last and part.offset),
        "last": log.parts[-1],
        "snapshot": firsts[-1],
    }[which]
    assert part.end - part.offset > REGIONS["body"]
    folder = log.copied(place)
    flip(folder / part.file, part.offset + REGIONS[region])

    async def run() -> None:
        found, damages = await read_again(folder)
        assert found == log.numbers(part)
        (damage,) = {damage._replace(end=0) for damage in damages}
        assert (damage.segment, damage.offset) == (str(folder / part.file), part.offset)
        assert damage.tail is (which == "last")

    uvloop.run(asyncio.wait_for(run(), 100))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x04
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["index", "epochs"])
def test_what_can_be_made_again_is(log: Log, place: Path, name: str) -> None:
    folder = log.copied(place)
    path = folder / "epochs" if name == "epochs" else min(folder.glob("*.index"))
    flip(path, path.stat().st_size - 2)

    async def run() -> None:
        found, _ = await read_again(folder)
        assert found == log.numbers()

    uvloop.run(asyncio.wait_for(run(), 100))


FAULTS = ["torn", "middle", "snapshot", "index"] if FULL else ["torn", "middle"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_node_serves_what_is_whole_and_says_what_is_not(
    node: NodeProcess, log: Log, tmp_path: Path, fault: str
) -> None:
    shutil.copytree(node.data, tmp_path / "data")
    folder = tmp_path / "data" / "journals" / "node"
    last, part = folder / log.files[-1], log.parts[-1]
    if fault == "torn":
        with last.open("r+b") as file:
            file.truncate(part.end - 3)
    elif fault == "index":
        flip(min(folder.glob("*.index")), 9)
        part = None
    else:
        parts = [one for one in log.parts if one.file == last.name]
        part = parts[0] if fault == "snapshot" else parts[1]
        flip(last, part.offset + REGIONS["body"])
    damaged = NodeProcess(tmp_path, CONFIG)
    wanted = log.numbers(*([] if part is None else [part]))
    try:
        look(damaged, wanted)
        if part is not None and fault != "torn":  # what was cut off is there no more
            with closing(Api(damaged)) as api:
                assert api.metric("journal_damages", broker="node") == 1
    finally:
        damaged.terminate()
        damaged.stop()
    if part is not None:
        told = [line for line in damaged.log().splitlines() if "journal damaged" in line]
        assert f"offset={part.offset}" in told[0]
        assert f"segment={folder / part.file}" in told[0]


def look(node: NodeProcess, wanted: list[int]) -> None:
    """See that a node serves these, and goes on."""
    with chappe.blocking.connect(node.addresses["websocket"], as_="user:a") as client:
        assert [int(letter.data) for letter in client.browse(QUEUE)] == wanted
        client.send(QUEUE, data_of(COUNT))
        found = []
        while len(found) <= len(wanted):
            items = client.fetch(QUEUE, 100, wait_s=5)
            found += [int(item.data) for item in items]
            assert all(item.ack() for item in items)
        assert found == [*wanted, COUNT]
