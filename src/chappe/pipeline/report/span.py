"""The time that the tables are about, in steps that can be seen."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

MINUTE_US: Final = 60_000_000
_DAY_MIN: Final = 1440
# Steps that people count in; more of them than this are not seen on a screen.
_STEPS_MIN: Final = (1, 5, 15, 60, 360, _DAY_MIN, 10_080)
_STEPS_MAX: Final = 360


class Span:
    """From the first minute that a table tells of to the last, in steps of some minutes."""

    def __init__(self, windows: Iterable[int]) -> None:
        self.first, self.last = 0, 0
        for window in windows:
            self.first = min(window, self.first or window)
            self.last = max(window, self.last)
        self._minutes = (self.last - self.first) // MINUTE_US + 1
        self.step_min = next(
            (step for step in _STEPS_MIN if self._minutes <= step * _STEPS_MAX), _STEPS_MIN[-1]
        )
        self._step_us = self.step_min * MINUTE_US
        first = self.first // self._step_us * self._step_us
        # The begin of every step, also of those in which nothing was.
        self.steps = list(range(first, self.last + 1, self._step_us))
        # The steps, as plots take them.
        self.times = [clock(step) for step in self.steps]

    @property
    def before(self) -> int:
        """A step for all that was before."""
        return self.steps[0] - 1

    @property
    def within_a_day(self) -> bool:
        return self._minutes <= _DAY_MIN

    @property
    def seconds(self) -> int:
        """How long a step is."""
        return self.step_min * 60

    @property
    def step_told(self) -> str:
        """How long a step is, for people."""
        words = {1: "minute", 60: "hour", _DAY_MIN: "day", 10_080: "week", 360: "6 hours"}
        return words.get(self.step_min, f"{self.step_min} minutes")

    @property
    def bounds(self) -> list[str]:
        """Where plots over time begin and end."""
        return [self.times[0], clock(self.steps[-1] + self._step_us)]

    def stepped(self, table: pa.Table) -> pa.Table:
        """The table with the `step` that each `window` is in."""
        whole = pc.multiply(pc.divide(table["window"], self._step_us), self._step_us)
        return table.append_column("step", whole)

    @property
    def told(self) -> str:
        """From when to when, for people."""
        if not self.last:
            return "no time at all"
        return f"{clock(self.first)[:16]} to {clock(self.last + MINUTE_US)[:16]} UTC"


def clock(us: int) -> str:
    """A time of UTC."""
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
