"""Heartbeats: who has not been heard of, and whose time is over (H4).

Sessions are looked at in slices spread over the interval: a sweep of a hundred thousand at once
would stall everybody's messages. A session keeps its slice for life, so that its beats are exactly
one interval apart however many others come and go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chappe.hub.session import Session

_SLICES = 50


class Heartbeat:
    """Calls `beat` for each session once per interval."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interval_s: float,
        beat: Callable[[Session], None],
    ) -> None:
        self._loop = loop
        self._step_s = interval_s / _SLICES
        self._beat = beat
        self._slices: list[list[Session]] = [[] for _ in range(_SLICES)]
        self._next = 0  # the slice of the next session
        self._now = 0  # the slice whose beat it is
        self._timer: asyncio.TimerHandle | None = None

    def add(self, session: Session) -> None:
        """Watch a session until it is closed."""
        self._slices[self._next].append(session)
        self._next = (self._next + 1) % _SLICES

    def start(self) -> None:
        """Begin to sweep."""
        self._timer = self._loop.call_later(self._step_s, self._step)

    def stop(self) -> None:
        """Sweep no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self) -> None:
        self._timer = self._loop.call_later(self._step_s, self._step)
        for session in self._slices[self._now]:
            if not session.closed:
                self._beat(session)
        self._slices[self._now] = [s for s in self._slices[self._now] if not s.closed]
        self._now = (self._now + 1) % _SLICES
