"""Room: how much more a queue may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chappe.errors import BadRequest, Overload

if TYPE_CHECKING:
    from chappe.queues.queue import Queue


class Room:
    """How many messages, and bytes of them, a queue has room for at least.

    To count what it holds is dear: until what was found is used up nobody looks again.
    """

    __slots__ = ("_bytes", "_messages", "_queue")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._messages = self._bytes = 0

    def has(self, count: int, size: int) -> bool:
        """Whether so many messages fit."""
        queue = self._queue
        state, options = queue.state, queue.state.options
        if self._messages < count or self._bytes < size:
            depth, held = state.depth() + len(state.delayed), state.waiting_bytes()
            self._messages, self._bytes = options.depth_max - depth, options.bytes_max - held
            if self._messages < count or self._bytes < size:
                return False
        return not options.volatile or queue.loans.bytes_held + size <= queue.limits.bytes_max

    def use(self, count: int, size: int) -> None:
        """So many messages are stored."""
        self._messages -= count
        self._bytes -= size

    def use_one(self, size: int) -> None:
        """A message is about to be stored; raises Overload when there is no room for it, BadRequest
        if there never is."""
        if not self.has(1, size):
            address, options = self._queue.address, self._queue.state.options
            if size > options.bytes_max:
                raise BadRequest(f"data: {size} bytes, {address} holds {options.bytes_max}")
            if self._messages < 1:
                depth = options.depth_max - self._messages
                raise Overload(f"{address} holds {depth} messages already")
            if self._bytes < size:
                raise Overload(f"{address} holds {options.bytes_max - self._bytes} bytes already")
            raise Overload("the volatile queues of this node are full")
        self._messages -= 1
        self._bytes -= size

    def look_again(self) -> None:
        """The queue has other bounds."""
        self._messages = self._bytes = 0
