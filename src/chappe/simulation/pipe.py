"""A pipe: one direction of a stream, as two kernels and the way between them make it.

    write -> [transport's buffer] -> [window: on its way or unread] -> data_received
                                          <--- acknowledged, by the way back ---

What a kernel has taken arrives in order and whole, however long it takes, unless the connection
breaks. On a blocked way nothing moves; if that lasts for `GIVE_UP_S` while bytes are not
acknowledged, the sender's kernel gives the connection up and tells nobody but the sender.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from chappe.simulation.link import Link

if TYPE_CHECKING:
    from chappe.simulation.stream import StreamTransport

# As the edges set TCP_USER_TIMEOUT.
GIVE_UP_S = 30.0
WINDOW_BYTES = 64 * 1024
# Between the pieces of data that was cut: long enough to be read one by one.
_GAP_S = 0.000_1


class Mark(Enum):
    """What travels besides data."""

    OPEN = "open"
    END = "end"
    RESET = "reset"


class Pipe:
    """Carries one end's bytes to the other end."""

    __slots__ = (
        "_acknowledged",
        "_give_up",
        "_loop",
        "_travelling",
        "back",
        "dead",
        "in_flight",
        "link",
        "receiver",
        "sender",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        link: Link,
        back: Link,
        sender: StreamTransport,
        receiver: StreamTransport,
    ) -> None:
        self._loop = loop
        self.link = link
        self.back = back
        self.sender = sender
        self.receiver = receiver
        # An end of this pipe has vanished: nothing arrives and nothing is acknowledged any more.
        self.dead = False
        self.in_flight = 0
        self._travelling: deque[tuple[float, bytes | Mark]] = deque()
        self._acknowledged = 0
        self._give_up: asyncio.TimerHandle | None = None
        link.pipes[self] = None
        back.pipes[self] = None

    @property
    def room(self) -> int:
        """How many bytes the sender's kernel would take now."""
        return WINDOW_BYTES - self.in_flight

    def send(self, data: bytes) -> bool:
        """Take data, for which there must be room; False when the link broke the connection."""
        self.in_flight += len(data)
        gap_s = 0.0
        for piece in self.link.pieces(data):
            if self.link.chance(self.link.faults.reset):
                self.sender.network.reset(self.sender)
                return False
            self._enqueue(piece, len(piece), gap_s)
            gap_s = _GAP_S
        self._watch()
        return True

    def mark(self, mark: Mark) -> None:
        """Let a mark follow what was sent."""
        self._enqueue(mark, 0, 0.0)

    def consumed(self, size: int) -> None:
        """The receiver has read so many bytes: open the window again, by the way back."""
        delay_s = self.back.latency_s()
        self._loop.call_later(delay_s, self._acknowledge, size, context=self.sender.context)

    def path_changed(self) -> None:
        """The way there or back was blocked or healed."""
        self._watch()
        if not self.dead and not self.link.blocked and self._travelling:
            # What was held back is sent again, and takes its time.
            self._call_arrive(self._loop.time() + self.link.latency_s())
        if not self.dead and not self.back.blocked:
            self._loop.call_soon(self._acknowledge, 0, context=self.sender.context)

    def leave(self) -> None:
        """Forget this pipe: both of its ends are gone."""
        self.link.pipes.pop(self, None)
        self.back.pipes.pop(self, None)
        self._travelling.clear()
        self._stop_watching()

    def _enqueue(self, item: bytes | Mark, size: int, gap_s: float) -> None:
        at = self.link.arrival(size, self._loop.time()) + self.link.stall_s()
        if self._travelling:
            at = max(at, self._travelling[-1][0] + gap_s)
        self._travelling.append((at, item))
        self._call_arrive(at)

    def _call_arrive(self, at: float) -> None:
        self._loop.call_at(at, self._arrive, context=self.receiver.context)

    def _arrive(self) -> None:
        """Hand over all that is due; data that is due together arrives together."""
        if self.dead or self.link.blocked:
            return
        now = self._loop.time()
        while self._travelling and self._travelling[0][0] <= now:
            _, item = self._travelling.popleft()
            self.receiver.take(item)
        self.receiver.deliver()

    def _acknowledge(self, size: int) -> None:
        self._acknowledged += size
        if self.dead or self.back.blocked or not self._acknowledged:
            return
        self.in_flight -= self._acknowledged
        self._acknowledged = 0
        if not self.in_flight:
            self._stop_watching()
        # As a kernel does: a writer is woken for a good part of the window, not for each byte.
        if self.room >= WINDOW_BYTES // 4:
            self.sender.push()

    def _watch(self) -> None:
        """Start or stop the sender's patience."""
        if not (self.dead or self.link.blocked or self.back.blocked) or not self.in_flight:
            self._stop_watching()
        elif self._give_up is None:
            self._give_up = self._loop.call_later(
                GIVE_UP_S, self._give_up_now, context=self.sender.context
            )

    def _stop_watching(self) -> None:
        if self._give_up is not None:
            self._give_up.cancel()
            self._give_up = None

    def _give_up_now(self) -> None:
        self._give_up = None
        self.sender.fail(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
