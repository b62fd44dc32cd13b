"""Batches: what comes while the store is asked waits, and is asked for together.

One batch is under way at a time, so what was put first is done first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog

log = structlog.get_logger()
T = TypeVar("T")


class Batch(Generic[T]):
    """Hands what was put to `work`, some at a time. A task exists only while there is any."""

    __slots__ = ("_at_once", "_most", "_name", "_task", "_waiting", "_work")

    def __init__(
        self, name: str, work: Callable[[list[T]], Awaitable[None]], *, at_once: int, most: int
    ) -> None:
        self._name = name
        self._work = work
        self._at_once = at_once
        self._most = most
        self._waiting: deque[T] = deque()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: T) -> bool:
        """Have something done; False if too much waits."""
        if len(self._waiting) >= self._most:
            return False
        self._waiting.append(item)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"push-{self._name}")
            self._task.add_done_callback(self._check)
        return True

    async def idle(self) -> None:
        """Wait until all is done that was put."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def cancel(self) -> None:
        """Do no more."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        # What the same read brings comes along.
        await asyncio.sleep(0)
        while self._waiting:
            count = min(len(self._waiting), self._at_once)
            await self._work([self._waiting.popleft() for _ in range(count)])

    def _check(self, task: asyncio.Task[None]) -> None:
        """Whatever is wrong with one batch must not stop those after it, nor stay unheard."""
        self._task = None
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            log.error("push.batch.failed", batch=self._name, reason=repr(error))
            task.get_loop().call_exception_handler(
                {"message": f"push: {self._name} has failed", "exception": error, "task": task}
            )
        if self._waiting:
            self._task = asyncio.create_task(self._run(), name=f"push-{self._name}")
            self._task.add_done_callback(self._check)
