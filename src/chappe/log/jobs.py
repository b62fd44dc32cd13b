"""Jobs: what a journal has given to its disk, counted, so that one can wait for the last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from chappe.log.disk import Disk, Done

T = TypeVar("T")


class Jobs:
    """Runs jobs on a disk and knows how many are under way."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waits: list[Callable[[], None]] = []
        self.count = 0

    def run(self, job: Callable[[], T], done: Done[T]) -> None:
        """Run a job; `done` is told its result or its OSError. Raises Overload."""

        def over(result: T | None, error: OSError | None) -> None:
            self.count -= 1
            try:
                done(result, error)
            finally:
                if not self.count:
                    self._wake()

        self._disk.run(job, over)
        self.count += 1

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call back when nothing is under way; at once if that is so."""
        if self.count:
            self._waits.append(callback)
        else:
            callback()

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        event = asyncio.Event()
        self.when_idle(event.set)
        await event.wait()

    def _wake(self) -> None:
        while self._waits and not self.count:
            self._waits.pop(0)()
