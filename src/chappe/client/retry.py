"""Wishes that a hub could not fulfil at once, said again after a while."""

from __future__ import annotations

import asyncio

from chappe.backoff import Backoff
from chappe.client.conversation import Conversation
from chappe.client.event import Phase
from chappe.client.standing import Standing
from chappe.client.writer import Writer


class Retry:
    """A timer for each of them, on one connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        conversation: Conversation,
        writer: Writer,
        backoff: Backoff,
    ) -> None:
        self._loop = loop
        self._conversation = conversation
        self._writer = writer
        self._backoff = backoff
        self._timers: dict[Standing, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._timers)

    def later(self, wish: Standing) -> None:
        """Say a wish again after a while."""
        self._timers[wish] = self._loop.call_later(self._backoff.next_s(), self._again, wish)

    def cancel(self) -> None:
        """The connection is gone: all is said anew on the next one."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _again(self, wish: Standing) -> None:
        del self._timers[wish]
        # Also while others are still being answered: nobody would say it again after that.
        if wish.wanted and self._conversation.phase in (Phase.RESTORING, Phase.READY):
            self._conversation.wish(wish)
            self._writer.flush_soon()
