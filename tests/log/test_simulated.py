"""Q11: power cuts at any moment, from seeds: what was acknowledged is there, in order."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from chappe.errors import Overload
from chappe.log.segment import Damage
from chappe.simulation.files import PowerCut, SimFs
from chappe.simulation.trace import Trace
from tests.log.rig import Rig, values

SEEDS = 150


class Life:
    """One journal on one disk through many power cuts."""

    def __init__(self, seed: int, flush: str = "always") -> None:
        self.random = Random(seed)
        self.fs = SimFs(self.random, Trace(lambda: 0.0), capacity=1 << 20)
        self.flush = flush
        self.allocate = self.random.choice((0, 0, 700, 4000))
        self.sent: list[int] = []
        # All up to here were acknowledged; and what is known to be on the disk.
        self.number = 0
        self.acknowledged = 0
        self.cuts = 0

    def run(self) -> None:
        rig = self.open()
        for _ in range(60):
            if self.random.random() < 0.15:
                self.fs.cut(self.random.randint(1, 25))
            try:
                self.step(rig)
            except PowerCut:
                self.note(rig)
                self.fs.crash()
                self.cuts += 1
                rig = self.open()
        self.fs.crash()
        self.open()

    def step(self, rig: Rig) -> None:
        for _ in range(self.random.randint(1, 5)):
            number = self.number = self.number + 1
            self.sent.append(number)
            rig.append(number)
            rig.turn() if self.random.random() < 0.5 else rig.timer.step()
        rig.turn()
        self.note(rig)
        if self.random.random() < 0.2:
            rig.journal.trim(self.random.randint(rig.journal.start, rig.journal.end))
            rig.turn()
        self.read_some(rig)

    def note(self, rig: Rig) -> None:
        """Remember the last one that was acknowledged."""
        assert set(rig.outcomes.values()) <= {None}
        if self.flush == "always":
            self.acknowledged = max([self.acknowledged, *rig.outcomes])

    def read_some(self, rig: Rig) -> None:
        for base in rig.journal.bases:
            assert not isinstance(rig.read(base), Damage)

    def open(self) -> Rig:
        """Open it again, however often the power is cut meanwhile; check what is there."""
        for _ in range(20):
            rig = Rig(
                Path("/log"),
                fs=self.fs,
                flush=self.flush,
                segment_bytes=1024,
                batch_bytes_max=16_384,
                allocate_bytes=self.allocate,
            )
            rig.journal.index = lambda base: b"index of %d" % base
            if self.random.random() < 0.3:
                self.fs.cut(self.random.randint(1, 12))
            try:
                rig.open()
            except PowerCut:
                self.fs.crash()
                continue
            self.fs.cut(None)
            self.check(rig)
            return rig
        raise AssertionError("does not come up")

    def check(self, rig: Rig) -> None:
        kept = len(rig.state)
        assert rig.state == self.sent[:kept], "order, and nothing that was never sent"
        assert kept == 0 or rig.state[-1] >= self.acknowledged
        assert kept or not self.acknowledged
        # What was not kept is gone for good.
        del self.sent[kept:]
        assert all(damage.tail for damage in rig.journal.damages)
        for base in rig.journal.bases[:-1]:
            assert rig.journal.read_index(base) in (None, b"index of %d" % base)
        for batch in (b for base in rig.journal.bases for b in rig.journal.scan(base)):
            assert values(batch) or batch.first


@pytest.mark.parametrize("chunk", range(10))
def test_what_was_acknowledged_survives_power_cuts(chunk):
    cuts = 0
    for seed in range(chunk, SEEDS, 10):
        life = Life(seed)
        try:
            life.run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        cuts += life.cuts
    assert cuts > 3 * SEEDS / 10


@pytest.mark.parametrize("flush", ["interval", "never"])
def test_lazy_policies_lose_an_end_and_nothing_else(flush):
    for seed in range(40):
        life = Life(seed, flush)
        try:
            life.run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_disk_that_fills_up_loses_nothing_that_was_accepted():
    for seed in range(30):
        random = Random(seed)
        fs = SimFs(random, Trace(lambda: 0.0), capacity=60_000)
        rig = Rig(Path("/log"), fs=fs, allocate_bytes=random.choice((0, 3000))).open()
        rig.snapshots = False
        accepted: list[int] = []
        for number in range(3000):
            try:
                rig.append(number)
            except Overload:
                rig.turn()
                break
            accepted.append(number)
            rig.timer.step() if random.random() < 0.5 else rig.turn()
        else:
            raise AssertionError("never full")
        assert rig.journal.failed is None
        assert rig.outcomes == dict.fromkeys(accepted)
        fs.crash()
        after = Rig(Path("/log"), fs=fs)
        read = [v for batch in after.journal.recover() for v in values(batch)]
        assert read == accepted[-len(read) :], seed
