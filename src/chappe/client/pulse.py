"""The pulse of a link: signs of life, asked for and given (H4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Pulse:
    """Looks at one link once per interval.

    Calls `beat` when this side was silent for an interval or has heard nothing for one, with
    whether an answer is wanted; and `silence` when nothing came for as many intervals as may pass.
    """

    __slots__ = (
        "_beat",
        "_interval_s",
        "_loop",
        "_missed_max",
        "_silence",
        "_timer",
        "deaf",
        "missed",
        "spoke",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        missed_max: int,
        beat: Callable[[bool], None],
        silence: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._missed_max = missed_max
        self._beat = beat
        self._silence = silence
        self._interval_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        # Plain fields, because every frame touches them: whether this side does not read, by
        # choice; beats since the hub was heard of; whether anything was written since the last.
        self.deaf = False
        self.missed = 0
        self.spoke = False

    def start(self, interval_s: float) -> None:
        """Begin on a link whose hub has just been heard of."""
        self._interval_s = interval_s
        self.missed = 0
        self._timer = self._loop.call_later(interval_s, self._look)

    def stop(self) -> None:
        """The link is gone."""
        self.deaf = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._interval_s, self._look)
        if self.deaf:
            # Stay alive for the hub, and ask for nothing: the answer could not be read.
            self.missed = 0
            self._beat(False)
            return
        self.missed += 1
        if self.missed > self._missed_max:
            self._silence()
        elif self.missed > 1 or not self.spoke:
            self._beat(True)
        self.spoke = False
