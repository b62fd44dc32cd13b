"""A simulation: everything a run needs, from one seed."""

from __future__ import annotations

import gc
import os
import shlex
import sys
from asyncio import Task, all_tasks, wait
from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from chappe.simulation.clock import SimulatedClock
from chappe.simulation.link import Faults
from chappe.simulation.loop import STEPS_MAX, SimulatedLoop, SimulationError
from chappe.simulation.network import Network
from chappe.simulation.trace import Trace

T = TypeVar("T")

SEED_VARIABLE = "CHAPPE_SEED"


class Simulation:
    """Joins a loop, a clock, a network and randomness that all follow from `seed`.

    `replay` is the command that runs this seed again, shown when the run fails; without it, it is
    this process's own command with `CHAPPE_SEED` set.
    """

    def __init__(
        self,
        seed: int,
        *,
        faults: Faults | None = None,
        steps_max: int = STEPS_MAX,
        replay: str | None = None,
    ) -> None:
        self.seed = seed
        self.replay = replay or f"{SEED_VARIABLE}={seed} {shlex.join(sys.orig_argv)}"
        self.random = self.stream("workload")
        self.loop = SimulatedLoop(self.stream("loop"), steps_max=steps_max)
        self.trace = Trace(self.loop.time)
        self.clock = SimulatedClock(self.loop)
        self.network = Network(self.loop, self.stream("network"), self.trace, faults)
        self._entropy = self.stream("entropy")

    def stream(self, purpose: str) -> Random:
        """Randomness for one purpose: drawing more of it does not disturb any other."""
        return Random(f"{self.seed}/{purpose}")  # noqa: S311

    def entropy(self, size: int) -> bytes:
        """Stand in for `os.urandom`."""
        return self._entropy.randbytes(size)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end, then cancel what is left over; once per simulation.

        Raises what the coroutine raises, CallbackFailed, Deadlock or Livelock, with a note on how
        to replay it. The garbage collector rests meanwhile: when it finds a cycle depends on what
        the process did before, and finalizers may do things.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            result = self.loop.run_until_complete(coroutine)
            self._cancel_rest()
            self.loop.fail_if_failed()
        except BaseException as error:
            error.add_note(f"replay this run: {self.replay}")
            sys.stderr.write(f"seed {self.seed} failed; replay: {self.replay}\n")
            self._wind_up()
            raise
        finally:
            self.loop.close()
            if collecting:
                gc.enable()
        return result

    def _wind_up(self) -> None:
        """End what is left of a run that failed: whatever were collected later would find its loop
        closed, and disturb whoever comes next."""
        self.loop.wind_up()
        self.loop.resume_all()
        tasks = sorted(all_tasks(self.loop), key=hash)
        for task in tasks:
            task.cancel()
        with suppress(SimulationError):
            if tasks:
                self.loop.run_until_complete(wait(tasks))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # looked at, so that nobody is told that nobody did

    def _cancel_rest(self) -> None:
        self.loop.resume_all()
        tasks = sorted(all_tasks(self.loop), key=hash)
        for task in tasks:
            task.cancel()
        for task in tasks:
            self.loop.run_until_complete(_outcome(task))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())


async def _outcome(task: Task[Any]) -> None:
    await wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def seeds(count: int) -> list[int]:
    """The seeds to run: the first `count`, or the one that `CHAPPE_SEED` names."""
    chosen = os.environ.get(SEED_VARIABLE)
    return [int(chosen)] if chosen else list(range(count))
