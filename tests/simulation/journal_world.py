"""A journal on a simulated disk: numbers are appended, the disk crashes, and the log is read."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from structlog.testing import capture_logs

from chappe.errors import Overload, RequestError
from chappe.log.batch import Batch
from chappe.log.journal import Journal
from chappe.log.options import JournalOptions
from chappe.simulation import PowerCut, Process, SimDisk, SimFs, Simulation

FOLDER = "/data/journal"
CAPACITY = 1 << 24
BOOTS = 8
_encode = msgspec.msgpack.encode


class JournalWorld:
    """One journal, opened again after every crash.

    Its records are numbers in ascending order; its state, and so a snapshot, is the list of them.
    """

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.random = self.simulation.stream("world")
        self.trace = self.simulation.trace
        self.loop = self.simulation.loop
        self.fs = SimFs(self.simulation.stream("fs"), self.trace, capacity=CAPACITY)
        self.options = JournalOptions(
            flush=self.random.choice(["always", "always", "interval", "never"]),
            segment_bytes=self.random.choice([1_024, 4_096, 50_000]),
            batch_bytes_max=65_536,
            allocate_bytes=self.random.choice([0, 4_096]),
            cache_bytes=self.random.choice([0, 2_000, 1 << 20]),
        )
        self.next = 1
        self.numbers: list[int] = []
        # The last number that was acknowledged; those that were surely refused.
        self.acknowledged = 0
        self.refused: set[int] = set()
        self.lsns: dict[int, int] = {}
        self.reads = 0
        self.damaged = 0
        self.cut: asyncio.Event
        self.journal: Journal

    @property
    def durable(self) -> bool:
        return self.options.flush == "always"

    def run(self) -> JournalWorld:
        with capture_logs():
            self.simulation.run(self._live())
        return self

    async def _live(self) -> None:
        for boot in range(BOOTS):
            self.trace.record("boot", boot=boot)
            process = Process(f"journal/{boot}")
            task = self.simulation.network.on_host("disk", self._boot(), process=process)
            self.cut = asyncio.Event()
            if not await task:
                self.fs.crash()
                continue
            acting = self.simulation.network.on_host("disk", self._act(), process=process)
            try:
                async with asyncio.timeout(self.random.uniform(0.01, 3)):
                    await self.cut.wait()
            except TimeoutError:
                pass
            self._crash(process)
            del acting
        self.fs.cut(None)
        self.fs.capacity = CAPACITY
        assert await self._boot()
        await self.journal.close()

    def _crash(self, process: Process) -> None:
        self.loop.stop_process(process)
        self.disk.crash()
        self.reading.crash()
        if self.durable and self.random.random() < 0.7:
            self.fs.crash()
        else:
            self.fs.kill()
        if self.random.random() < 0.3 and self.durable:
            self.fs.cut(self.random.randint(1, 30))
        self.fs.capacity = CAPACITY

    def _power_cut(self) -> None:
        self.cut.set()

    async def _boot(self) -> bool:
        """Open the journal; False when the power was cut meanwhile."""
        disk = partial(SimDisk, self.loop, self.simulation.stream("disk"), self.fs)
        delay_s = (0.0001, self.random.choice([0.001, 0.05]))
        self.disk = disk(self._power_cut, delay_s=delay_s)
        self.reading = disk(self._power_cut, delay_s=delay_s)
        self.journal = Journal(
            self.fs,
            self.disk,
            self.reading,
            FOLDER,
            self.options,
            self.simulation.clock.wall_ms,
            self.loop,
            lambda: [_encode(["all", self.numbers])],
        )
        try:
            found = self._fold()
        except PowerCut:
            return False
        self._check_recovered(found)
        self.numbers = found
        self.next = max([self.next, *found]) + 1
        return True

    def _fold(self) -> list[int]:
        found: list[int] = []
        self.lsns = {}
        for batch in self.journal.recover():
            for record in msgspec.msgpack.decode(batch.array):
                if isinstance(record, list):
                    found = record[1]
                else:
                    found.append(record)
                    self.lsns[record] = batch.lsn
        self.trace.record("recovered", count=len(found), last=found[-1] if found else 0)
        return found

    def _check_recovered(self, found: list[int]) -> None:
        """Everything in order, nothing twice, all that was acknowledged, nothing made up."""
        assert found == sorted(set(found)), "out of order"
        assert not self.refused & set(found), "what was refused is there"
        known = [number for number in self.numbers if number <= (found[-1] if found else 0)]
        assert found == known, "something is missing in between"
        assert not found or found[-1] >= self.acknowledged, "what was acknowledged is lost"
        assert found or not self.acknowledged, "everything is lost"
        torn = [damage for damage in self.journal.damages if not damage.tail]
        assert not torn, f"damage where there was none: {torn}"

    async def _act(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(200))
            kind = self.random.choices(
                ["append", "read", "trim", "full", "room", "eio", "cut"],
                [60, 20, 5, 1, 4, 0.3, 0.3],
            )[0]
            self._do(kind)

    def _do(self, kind: str) -> None:
        random, journal = self.random, self.journal
        match kind:
            case "append":
                for _ in range(random.choice([1, 1, 5])):
                    self._append()
            case "read" if self.lsns:
                number = random.choice(list(self.lsns))
                if self.lsns[number] < journal.flushed:
                    self._read(number)
            case "trim":
                journal.trim(random.randint(journal.start, journal.flushed))
            case "full":
                self.fs.capacity = CAPACITY - self.fs.room() + random.randint(0, 2_000)
            case "room":
                self.fs.capacity = CAPACITY
            case "eio" if self.durable:
                self.fs.fail_sync(random.randint(1, 3))
            case "cut" if self.durable:
                self.fs.cut(random.randint(1, 10), syncs=random.random() < 0.5)

    def _append(self) -> None:
        number, self.next = self.next, self.next + 1
        try:
            lsn = self.journal.append([_encode(number)], partial(self._done, number))
        except Overload:
            self.refused.add(number)
            return
        self.numbers.append(number)
        self.lsns[number] = lsn

    def _done(self, number: int, error: RequestError | None) -> None:
        if error is None:
            assert number > self.acknowledged
            self.acknowledged = number
        else:
            assert isinstance(error, Overload)
            assert error.outcome_unknown, error

    def _read(self, number: int) -> None:
        lsn, journal = self.lsns[number], self.journal

        def got(found: object) -> None:
            self.reads += 1
            if isinstance(found, Batch):
                records = msgspec.msgpack.decode(found.array)
                assert number in records, f"{number} is not in its batch"
            else:
                assert lsn < journal.start, f"{number} cannot be read: {found}"

        journal.read(lsn, got)
