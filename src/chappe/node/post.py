"""A post: a place that one child at a time fills, and how soon it is filled again."""

from __future__ import annotations

import math
import signal
import socket
from collections.abc import Sequence
from typing import NamedTuple

from chappe.node.child import Child, Life

# A child that lived this long is replaced at once; one that did not waits, longer each time.
_STEADY_S = 10.0
_PAUSE_FIRST_S = 0.1
_PAUSE_MAX_S = 5.0


class Post:
    """A place that one child at a time fills."""

    def __init__(self, name: str, life: Life, foreign: Sequence[socket.socket] = ()) -> None:
        self.name = name
        self.life = life
        # Sockets of the supervisor that its children have no use for.
        self.foreign = foreign
        self.child: Child | None = None
        # When the next child is due, while there is none.
        self.due = 0.0
        # When a child that is to leave is killed.
        self.until = math.inf
        # How many have filled it.
        self.filled = 0
        self._pause_s = 0.0

    def vacate(self, now: float) -> Child:
        """Give the child that has died, and note when the next one may come."""
        assert self.child is not None
        child, self.child = self.child, None
        if now - child.born >= _STEADY_S:
            self._pause_s = 0.0
        self.due = now + self._pause_s
        self._pause_s = min(max(2 * self._pause_s, _PAUSE_FIRST_S), _PAUSE_MAX_S)
        return child


class Death(NamedTuple):
    """A child that is no more."""

    name: str
    status: int
    reason: str | None

    @property
    def end(self) -> str:
        """How it ended, for people."""
        return f"status {self.status}" if self.status >= 0 else signal.Signals(-self.status).name
