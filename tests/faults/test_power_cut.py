"""The power goes while producers and consumers are at work (Q11).

`kill -9` leaves what was written to the machine, which writes it later. So here the node's folder
is a disk of its own: the node is killed, and goes on with what the disk had at that moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from random import Random

import pytest

from chappe.client import Client, connect

from .figures import FULL, tell
from .mounts import Disk
from .trio import OPTIONS, ClusterNode, story, until
from .work import QUEUE, Work, dead_letters

pytestmark = pytest.mark.timeout(3_600 if FULL else 200)

CUTS = 40 if FULL else 2
LAZY_CUTS = 10 if FULL else 1
INTERVAL_S = 0.3
# Small segments, so that power goes while one is sealed, begun or removed as well.
CONFIG = """
[journal]
flush = "{flush}"
flush_interval_s = {interval_s}
segment_bytes = 65536
batch_bytes_max = 1048576
allocate_bytes = 16384
"""


class Powered:
    """A node on a disk of its own."""

    def __init__(self, folder: Path, flush: str) -> None:
        self.disk = Disk(folder / "data", 48)
        self.cut_at = self.back_at = 0.0
        with ExitStack() as failed:
            failed.callback(self.disk.unmount)
            self.node = ClusterNode(folder, CONFIG.format(flush=flush, interval_s=INTERVAL_S))
            failed.pop_all()

    def cut(self) -> None:
        """Take the power away, and give it back."""
        self.node.kill()
        self.cut_at = time.monotonic()
        self.disk.cut()
        self.back_at = time.monotonic()
        self.node.start()

    def close(self) -> None:
        with ExitStack() as after:
            after.callback(self.disk.unmount)
            after.callback(self.node.kill)
            self.node.stop()


@pytest.fixture
def powered(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Powered]:
    powered = Powered(tmp_path, request.param)
    yield powered
    powered.close()


async def people(node: ClusterNode, stack: AsyncExitStack, *names: str) -> list[Client]:
    """Clients that come back by themselves."""
    return [
        await stack.enter_async_context(connect(node.url, as_=f"user:{name}", options=OPTIONS))
        for name in names
    ]


@pytest.mark.parametrize("powered", ["always"], indirect=True)
def test_nothing_acknowledged_is_lost_when_the_power_goes(powered: Powered) -> None:  # Q5, Q6, Q11
    async def run() -> None:
        rng = Random(4)
        async with AsyncExitStack() as stack:
            admin, *others = await people(powered.node, stack, "admin", *"abcde")
            await admin.create(QUEUE, lanes=2, retry_s=0.05)
            work = Work(others[:3], others[3:])
            stack.push_async_callback(work.close)
            await work.start()
            for _ in range(CUTS):
                await work.goes_on(40)
                # What waits was never seen by anybody but the disk.
                work.taking.clear()
                await work.goes_on(40)
                if rng.random() < 0.5:
                    work.taking.set()
                await asyncio.sleep(rng.uniform(0, 0.3))
                await asyncio.to_thread(powered.cut)
                work.taking.set()
            await work.goes_on()
            await work.drained(admin)
            await work.holds(admin)
            tell("power cut, flush always", cuts=CUTS, lost=0, **work.figures())

    story(run, limit_s=3_500 if FULL else 100)


@pytest.mark.parametrize("powered", ["interval", "never"], indirect=True)
def test_lazy_flushes_lose_the_end_and_nothing_else(
    powered: Powered, request: pytest.FixtureRequest
) -> None:  # Q11
    flush = request.node.callspec.params["powered"]

    async def run() -> None:
        async with AsyncExitStack() as stack:
            admin, *others = await people(powered.node, stack, "admin", *"abcde")
            await admin.create(QUEUE, retry_s=0.05)
            lost, again, windows_s = 0, 0, [0.0]
            for cut in range(LAZY_CUTS):
                # Others each time: those before may have been forgotten.
                work = Work(others[:3], others[3:], name=f"{cut}")
                await work.start()
                await work.goes_on(20)
                work.taking.clear()
                await work.goes_on(40)
                safe = await settled(powered, work, flush)
                await work.goes_on(40)
                await asyncio.to_thread(powered.cut)
                work.taking.set()
                await work.goes_on(20)
                await work.drained(admin)
                gone = work.lost(await dead_letters(admin, QUEUE))
                assert not gone & safe, f"synced, and lost: {sorted(gone & safe)[:20]}"
                answered = [work.sent[number].answered for number in gone]
                # Answers that were on their way are read a moment later.
                assert all(at < powered.back_at + 0.5 for at in answered)
                work.nothing_is_made_up({})
                windows_s += [powered.cut_at - at for at in answered]
                lost, again = lost + len(gone), again + len(work.again())
                await work.close()
            tell(
                f"power cut, flush {flush}",
                cuts=LAZY_CUTS,
                lost=lost,
                again=again,
                window_ms=round(max(windows_s) * 1000),
            )

    story(run, limit_s=3_500 if FULL else 100)


async def settled(powered: Powered, work: Work, flush: str) -> set[str]:
    """Wait until what is acknowledged now is on the disk; which messages these are."""
    safe = work.ok
    if flush == "never":
        await asyncio.to_thread(powered.disk.sync)
    else:
        began = time.monotonic()
        # Several intervals: the machine may be busy.
        await until(lambda: time.monotonic() > began + 5 * INTERVAL_S, "time goes by")
    return safe
