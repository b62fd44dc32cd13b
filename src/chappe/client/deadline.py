"""The deadline of requests: one timer for all of them."""

from __future__ import annotations

import asyncio

from chappe.client.outgoing import Outgoing


class Deadline:
    """Fails requests when they are due."""

    def __init__(self, loop: asyncio.AbstractEventLoop, outgoing: Outgoing) -> None:
        self._loop = loop
        self._outgoing = outgoing
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, due: float) -> None:
        """See to it that requests fail when they are due: the next one is not before `due`."""
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._expire)

    def cancel(self) -> None:
        """No request is left."""
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self._timer = None
        due = self._outgoing.expire(self._loop.time())
        if due is not None:
            self._timer = self._loop.call_at(due, self._expire)
