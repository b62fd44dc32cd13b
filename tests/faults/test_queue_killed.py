"""A node is killed while its queues are at work, and comes back with them (Q2, Q5, Q6, Q9, Q11)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from chappe.client import Client, DelayedProducer, connect
from chappe.errors import ConnectionClosed, RequestError

from .figures import FULL, tell
from .trio import OPTIONS, ClusterNode, story
from .work import ATTEMPTS_MAX, QUEUE, Sent, Work, dead_letters

pytestmark = pytest.mark.timeout(3_600 if FULL else 200)

KILLS = 50 if FULL else 2
# Small segments, so that nodes die while one is sealed, begun or removed as well.
CONFIG = """
[journal]
segment_bytes = 65536
batch_bytes_max = 1048576
allocate_bytes = 16384
"""
# What clocks of two processes, in whole milliseconds, may differ by.
ROUNDING_S = 0.005


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ClusterNode]:
    node = ClusterNode(tmp_path, CONFIG)
    yield node
    node.stop()


class Late:
    """Messages that are to come later, some of which are taken back."""

    def __init__(self, client: Client, work: Work) -> None:
        self._client = client
        self._work = work
        self._rng = Random(6)
        self.due: dict[str, float] = {}
        # Whether it was taken back; None: nobody knows.
        self.cancelled: dict[str, bool | None] = {}
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Send no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        producer = await self._client.delayed_producer(QUEUE, name="late", seq=1).open()
        for n in count():
            await self._one(producer, f"late-{n}", self._rng.choice([0.2, 1.0, 4.0]))
            await asyncio.sleep(0.02)

    async def _one(self, producer: DelayedProducer, number: str, delay_s: float) -> None:
        sent = self._work.sent[number] = Sent(None, time.monotonic(), poison=False)
        self.due[number] = sent.begun + delay_s
        try:
            receipt = await producer.send(number, delay_ms=round(delay_s * 1000))
        except (RequestError, ConnectionClosed):
            return
        sent.outcome, sent.answered, sent.id = "ok", time.monotonic(), receipt.message
        if delay_s > 0.2 and self._rng.random() < 0.5:
            self.cancelled[number], sent.outcome = None, "cancelled"
            try:
                self.cancelled[number] = await producer.cancel(receipt)
            except (RequestError, ConnectionClosed):
                return
            if not self.cancelled[number]:
                sent.outcome = "ok"

    def holds(self) -> None:
        """Nothing came before it was due, or after it was taken back."""
        for heard in self._work.heard:
            if heard.number in self.due:
                assert heard.at >= self.due[heard.number] - ROUNDING_S, f"{heard} came too early"
                assert not self.cancelled.get(heard.number), f"{heard} was taken back"


def test_queues_come_back_as_they_were_after_kill_9(node: ClusterNode) -> None:
    async def run() -> None:
        rng = Random(5)
        times_s: list[float] = []
        async with AsyncExitStack() as stack:
            admin, *others = [
                await stack.enter_async_context(
                    connect(node.url, as_=f"user:{name}", options=OPTIONS)
                )
                for name in ("admin", *"abcdef")
            ]
            await admin.create(QUEUE, lanes=2, retry_s=0.01, retry_max_s=0.02)
            work = Work(others[:3], others[3:5], poison=True)
            stack.push_async_callback(work.close)
            await work.start()
            late = Late(others[5], work)
            stack.push_async_callback(late.stop)
            died: dict[str, str] = {}
            for kill in range(KILLS):
                await work.goes_on(60)
                work.taking.clear()
                await work.goes_on(20)
                if kill % 2:
                    work.taking.set()
                await asyncio.sleep(rng.uniform(0, 0.2))
                died |= {number: one.message for number, one in (await dead(admin)).items()}
                fault = time.monotonic()
                node.kill()
                await asyncio.to_thread(node.start)
                work.taking.set()
                await work.goes_on(1)
                times_s.append(work.recovery_s(fault) or 0.0)
                # Dead letters are there as they were.
                found = {number: one.message for number, one in (await dead(admin)).items()}
                assert died.items() <= found.items()
            await late.stop()
            await work.drained(admin)
            await work.holds(admin)
            late.holds()
            letters = await dead(admin)
            poison = {n for n in work.ok if work.sent[n].poison}
            assert poison <= set(letters)
            assert all(work.nacked[number] <= ATTEMPTS_MAX for number in poison)
            tell(
                "kill -9 of a node alone",
                kills=KILLS,
                lost=0,
                dead=len(letters),
                delayed=len(late.due),
                cancelled=sum(bool(one) for one in late.cancelled.values()),
                recovery_max_s=round(max(times_s), 2),
                **work.figures(),
            )

    story(run, limit_s=3_500 if FULL else 100)


async def dead(admin: Client) -> dict[str, Any]:
    return await dead_letters(admin, QUEUE)
