"""Departure: how a client leaves a hub that is going away, without losing what is under way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chappe.backoff import Backoff

if TYPE_CHECKING:
    from chappe.client.connection import Connection


class Departure:
    """Waits as long as the hub says and a little more, lets requests finish, and says goodbye."""

    def __init__(self, connection: Connection, backoff: Backoff, patience_s: float) -> None:
        self._connection = connection
        self._backoff = backoff
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        # When the hub may be called again at the earliest.
        self.at = 0.0
        self.under_way = False

    def prepare(self, after_s: float) -> None:
        """The hub wants to be left after a while."""
        delay_s = self._backoff.stretch_s(after_s)
        self.at = self._loop.time() + delay_s
        self.cancel()
        self._timer = self._loop.call_later(delay_s, self._leave)

    def cancel(self) -> None:
        """The link is gone, or the hub named another time."""
        self.under_way = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Say goodbye if nothing is under way any more."""
        if self.under_way and not self._connection.busy:
            self._connection.part("moving on")

    def _leave(self) -> None:
        if self._connection.deaf:
            # It cannot read yet the answers it waits for.
            self._timer = self._loop.call_later(self._patience_s, self._leave)
            return
        self.under_way = True
        self._timer = self._loop.call_later(self._patience_s, self._connection.cut)
        self._connection.leave()
        self.look()
