"""Repeats: what waits to be done again, after one of a few fixed times.

What waits equally long is due in the order in which it began to wait: so each time has a queue, and
nothing is ever sorted or searched.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Repeats(Generic[Key]):
    """Keys, each of which waits once at most."""

    __slots__ = ("_delays", "_queues", "_steps")

    def __init__(self, delays: Sequence[float]) -> None:
        self._delays = delays
        self._queues: list[OrderedDict[Key, float]] = [OrderedDict() for _ in delays]
        self._steps: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def __contains__(self, key: Key) -> bool:
        return key in self._steps

    @property
    def due(self) -> float:
        """When the first is due."""
        return min(
            (next(iter(queue.values())) for queue in self._queues if queue), default=math.inf
        )

    def put(self, key: Key, step: int, now: float) -> None:
        """Have something wait as long as a step takes; the last one is for all that follow."""
        self.remove(key)
        step = min(step, len(self._delays) - 1)
        self._steps[key] = step
        self._queues[step][key] = now + self._delays[step]

    def remove(self, key: Key) -> None:
        """Have something wait no longer."""
        step = self._steps.pop(key, None)
        if step is not None:
            del self._queues[step][key]

    def step(self, key: Key) -> int:
        """Which step something waits in; -1: in none."""
        return self._steps.get(key, -1)

    def take(self, now: float, most: int) -> list[tuple[Key, int]]:
        """What is due, with the step it waited in, so many at most."""
        found: list[tuple[Key, int]] = []
        for step, queue in enumerate(self._queues):
            while queue and len(found) < most and next(iter(queue.values())) <= now:
                key, _ = queue.popitem(last=False)
                del self._steps[key]
                found.append((key, step))
        return found
