"""Retries: messages that come again, from when they are handed back until the next has them.

handed back --> resting, for a while --> the attempt is written down --> returned
    |                                             ^
    +--> dead letter, after so many attempts      +-- noting: open since before a start
"""

from __future__ import annotations

from functools import partial
from heapq import heappush
from typing import TYPE_CHECKING

from chappe.queues.record import Tried

if TYPE_CHECKING:
    from chappe.queues.consumer import Item
    from chappe.queues.group import Group


class Retries:
    """What a group hands out once more."""

    __slots__ = ("_group", "noting", "resting", "returned")

    def __init__(self, group: Group) -> None:
        self._group = group
        # What may be handed out at once, the oldest first.
        self.returned: list[Item] = []
        # Those of before a start for which an attempt is being written down.
        self.noting: dict[Item, None] = {}
        # What waits for the time of its next try.
        self.resting: dict[Item, None] = {}

    def add(
        self, item: Item, now: float, reason: str, delay_s: float = 0.0, *, at_once: bool = True
    ) -> None:
        """A message was handed back: it is tried again after a while, or dead."""
        group, options = self._group, self._group.queue.state.options
        if item.attempts >= options.attempts_max:
            group.bury(item, reason)
            return
        queue, name = group.queue, group.state.name
        queue.recorder.returned(queue.state.app, queue.address, name, item, reason)
        grown = min(options.retry_max_s, options.retry_s * 2 ** min(item.attempts - 1, 30))
        delay_s = max(delay_s, grown)
        if delay_s > 0 or not at_once:
            self.resting[item] = None
            item.deadline = group.queue.loans.deadlines.add(now + delay_s, item)
        else:
            self.try_again(item)

    def try_again(self, item: Item) -> None:
        """Hand a message out once more, as soon as that is written down."""
        group, record = self._group, item.record
        self.resting.pop(item, None)
        if group.closed:
            return
        if item.attempts >= group.queue.state.options.attempts_max:
            self.noting.pop(item, None)
            group.bury(item, "attempts")
            return
        attempt = item.attempts + 1
        group.queue.add(Tried(record.queue, record.lane, group.state.name, record.seq, attempt))
        group.queue.after(partial(self._ready, item))

    def _ready(self, item: Item) -> None:
        self.noting.pop(item, None)
        if not self._group.closed:
            heappush(self.returned, item)
            self._group.hand_out_soon()

    def close(self) -> None:
        """Let nothing come again."""
        for item in self.resting:
            if item.deadline is not None:
                self._group.queue.loans.deadlines.cancel(item.deadline)
        self.resting.clear()
        self.returned.clear()
