"""Disks: where blocking jobs run, one after another, off the event loop."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from chappe.errors import Overload, StorageError

T = TypeVar("T")
# What a result is told with: the job's result, or the error that it raised.
Done = Callable[[T | None, OSError | None], None]
# Far more than a journal ever has under way; a reader that asks for more is told to wait.
JOBS_MAX = 1024


class Disk(Protocol):
    """Runs jobs one after another, in the order they were given."""

    def run(self, job: Callable[[], T], done: Done[T]) -> None:
        """Run a job off the loop; `done` is called on the loop with its result or its OSError.

        Raises Overload when too many wait already.
        """
        ...


class Calls(Protocol):
    """What a disk needs of an event loop."""

    def call_soon_threadsafe(self, callback: Any, *args: Any) -> Any:
        """Call back on the loop; raises RuntimeError when it is closed."""
        ...


class ThreadDisk:
    """A thread that waits for the disk."""

    def __init__(self, loop: Calls, name: str, jobs_max: int = JOBS_MAX) -> None:
        self._loop = loop
        self._name = name
        self._jobs_max = jobs_max
        # All below is guarded by the condition.
        self._waits = threading.Condition()
        self._jobs: deque[tuple[Callable[[], Any], Done[Any]]] = deque()
        self._closed = False
        # A daemon: a program that forgets to close loses nothing that was acknowledged.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], T], done: Done[T]) -> None:
        with self._waits:
            if self._closed or not self._thread.is_alive():
                raise StorageError(f"disk {self._name}: closed")
            if len(self._jobs) >= self._jobs_max:
                raise Overload(f"disk {self._name}: {self._jobs_max} jobs wait already")
            self._jobs.append((job, done))
            self._waits.notify()

    def close(self) -> None:
        """Carry out what was given and end the thread; waits for it."""
        with self._waits:
            self._closed = True
            self._waits.notify()
        self._thread.join()

    def _serve(self) -> None:
        while taken := self._take():
            job, done = taken
            result: Any = None
            error: OSError | None = None
            try:
                result = job()
            except OSError as raised:
                error = raised
            # The loop may be gone by now, and nobody waiting.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(done, result, error)

    def _take(self) -> tuple[Callable[[], Any], Done[Any]] | None:
        with self._waits:
            while not self._jobs and not self._closed:
                self._waits.wait()
            return self._jobs.popleft() if self._jobs else None
