"""What is kept for other brokers while the bus is away: for a while, and no more than so much."""

from __future__ import annotations

from collections import deque

from chappe.clock import Clock
from chappe.errors import Overload
from chappe.message import Message

# What a message takes besides its own bytes.
_OVERHEAD_BYTES = 200


class Keeping:
    """Messages in order, oldest first, that are sent when the bus is back."""

    def __init__(self, clock: Clock, keep_s: float, bytes_max: int) -> None:
        self._clock = clock
        self._keep_s = keep_s
        self._bytes_max = bytes_max
        self._kept: deque[tuple[float, Message]] = deque()
        self._bytes = 0
        self.expired = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, message: Message) -> None:
        """Keep one; raises Overload when there is no room."""
        self._expire()
        size = _size(message)
        if self._bytes + size > self._bytes_max:
            raise Overload(f"bus: it is away, and {self._bytes} bytes are kept for it already")
        self._bytes += size
        self._kept.append((self._clock.monotonic() + self._keep_s, message))

    def oldest(self) -> Message | None:
        """The oldest that is not too old; it stays until it is let go."""
        self._expire()
        return self._kept[0][1] if self._kept else None

    def let_go(self, message: Message) -> None:
        """It is with others now."""
        if self._kept and self._kept[0][1] is message:
            self._pop()

    def _expire(self) -> None:
        now = self._clock.monotonic()
        while self._kept and self._kept[0][0] <= now:
            self._pop()
            self.expired += 1

    def _pop(self) -> None:
        _, message = self._kept.popleft()
        self._bytes -= _size(message)


def _size(message: Message) -> int:
    return len(message.payload) + len(message.to) + _OVERHEAD_BYTES
