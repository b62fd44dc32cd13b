"""Heartbeats: who has not been heard of, and whose time is over (H4).

Sessions are looked at in slices spread over the interval: a sweep of a hundred thousand at once
would stall everybody's messages.
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
        sessions: dict[str, Session],
        interval_s: float,
        beat: Callable[[Session], None],
    ) -> None:
        self._loop = loop
        self._sessions = sessions
        self._step_s = interval_s / _SLICES
        self._beat = beat
        self._due: list[Session] = []
        self._slice = 0
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

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
        if self._slice == 0:
            self._due = list(self._sessions.values())
            self._size = -(-len(self._due) // _SLICES)
        for session in self._due[self._slice * self._size : (self._slice + 1) * self._size]:
            if not session.closed:
                self._beat(session)
        self._slice = (self._slice + 1) % _SLICES
