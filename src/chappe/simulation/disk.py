"""Where blocking jobs run in a simulation: each takes a while, and a crash may come at any time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Protocol, TypeVar

from chappe.errors import Overload, StorageError
from chappe.simulation.files import PowerCut, SimFs

T = TypeVar("T")

JOBS_MAX = 1_024


class Timer(Protocol):
    """What a disk needs of a loop."""

    def time(self) -> float:
        """Virtual seconds."""
        ...

    def call_at(self, when: float, callback: Any, *args: Any) -> Any:
        """Call back at that time."""
        ...


class SimDisk:
    """Carries out jobs one after another, each after a while; implements `log.disk.Disk`.

    What a job does happens at one moment, and is told at a later one: a crash comes before, within
    or after. `cut` is called when the power is cut while a job runs.
    """

    def __init__(
        self,
        timer: Timer,
        random: Random,
        fs: SimFs,
        cut: Callable[[], None],
        *,
        delay_s: tuple[float, float] = (0.0001, 0.005),
    ) -> None:
        self._timer = timer
        self._random = random
        self._fs = fs
        self._cut = cut
        self.delay_s = delay_s
        self._jobs: deque[tuple[Callable[[], Any], Callable[[Any, OSError | None], None]]] = deque()
        self._ran = False
        self._handle: Any = None
        self._closed = self._crashed = False

    def run(self, job: Callable[[], T], done: Callable[[T | None, OSError | None], None]) -> None:
        """Carry out a job, and tell its result or its OSError; raises Overload."""
        if self._crashed:
            # Whoever asks is no more: at the end of a run ghosts have to come to their end, too.
            return
        if self._closed:
            raise StorageError("the simulated disk is closed")
        if len(self._jobs) >= JOBS_MAX:
            raise Overload(f"the simulated disk has {JOBS_MAX} jobs already")
        self._jobs.append((job, done))
        if self._handle is None:
            self._later(self._work)

    def close(self) -> None:
        """Carry out all that was given, now, and tell it; take no more."""
        self._closed = True
        while self._jobs:
            if not self._ran:
                self._work()
            if self._handle is not None:
                self._handle.cancel()
                self._finish(*self._outcome)

    def crash(self) -> None:
        """Lose all jobs; the first may be carried out in part, or whole, and nobody told."""
        self._crashed = True
        if self._handle is not None:
            self._handle.cancel()
        if self._jobs and not self._ran and self._random.random() < 0.7:
            self._fs.cut(self._random.randint(1, 8))
            with suppress(OSError, PowerCut):
                self._jobs[0][0]()
        self._jobs.clear()

    def _later(self, callback: Callable[..., None], *args: Any) -> None:
        when = self._timer.time() + self._random.uniform(*self.delay_s)
        self._handle = self._timer.call_at(when, callback, *args)

    def _work(self) -> None:
        result: Any = None
        error: OSError | None = None
        try:
            result = self._jobs[0][0]()
        except OSError as raised:
            error = raised
        except PowerCut:
            self._crashed = True
            self._jobs.clear()
            self._cut()
            return
        self._ran = True
        self._outcome = (result, error)
        self._later(self._finish, result, error)

    def _finish(self, result: Any, error: OSError | None) -> None:
        _, done = self._jobs.popleft()
        self._ran = False
        self._handle = None
        if self._jobs and not self._closed:
            self._later(self._work)
        done(result, error)
