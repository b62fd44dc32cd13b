"""Runs: many inputs through one target, and what went wrong."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass

from fuzzing.mutation import mutate
from fuzzing.target import Target

# No input of a few kilobytes is worth a second of a node's only thread.
INPUT_SECONDS_MAX = 1.0
FAILURES_MAX = 10


@dataclass(frozen=True)
class Failure:
    """An input that a target did not take as it should, and how to find it again."""

    target: str
    seed: int
    index: int
    data: bytes
    fault: str

    def __str__(self) -> str:
        return (
            f"{self.target}: {self.fault}\n"
            f"  seed {self.seed}, input {self.index}, {len(self.data)} bytes:\n"
            f"  {self.data.hex()}"
        )


def inputs(target: Target, seed: int) -> Iterator[bytes]:
    """The endless inputs of a seed: the examples as they are, then mutations of them."""
    yield from target.seeds
    rng = random.Random(f"{target.name}/{seed}")
    while True:
        yield mutate(rng, target.seeds)


def run(
    target: Target, seed: int, *, count: int | None = None, seconds: float | None = None
) -> tuple[int, list[Failure]]:
    """Feed a target until a bound is reached; return the number of inputs, and the failures."""
    failures: list[Failure] = []
    deadline = None if seconds is None else time.monotonic() + seconds
    index = 0
    tracemalloc.start()
    try:
        for index, data in enumerate(inputs(target, seed)):
            if index == count or (deadline and time.monotonic() >= deadline):
                break
            fault = maybe_fault(target, data)
            if fault:
                failures.append(Failure(target.name, seed, index, data, fault))
            if len(failures) >= FAILURES_MAX:
                break
    finally:
        tracemalloc.stop()
    return index, failures


def maybe_fault(target: Target, data: bytes) -> str | None:
    """Give one input to a target; say what it did wrong, or None.

    Only the errors that the target declares may come out of it, in bounded time and memory.
    """
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    started = time.process_time()
    try:
        target.read(data)
    except target.errors:
        pass
    except Exception as error:  # finding these is what this is for
        return f"{type(error).__name__}: {str(error)[:200]}"
    if time.process_time() - started > INPUT_SECONDS_MAX:
        return f"took more than {INPUT_SECONDS_MAX} s"
    _, peak = tracemalloc.get_traced_memory()
    if peak - before > target.memory_bytes_max:
        return f"took {peak - before} bytes of memory, {target.memory_bytes_max} are allowed"
    return None
