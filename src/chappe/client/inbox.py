"""The inbox: messages that came and were not taken yet, bounded by not reading on."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from chappe.errors import ConnectionClosed
from chappe.message import Message

# What a message costs beside its payload: the object, its addresses, its place in the queue.
OVERHEAD_BYTES = 256

M = TypeVar("M", bound=Message)


class Inbox(Generic[M]):
    """A queue for one reader or several, each message to one of them.

    It never refuses: whoever fills it looks at `crowded` and `full` and stops reading, or has
    another bound. `drained` is called when there is room again, `taken` for a message with an
    offset.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        bytes_pause: int = sys.maxsize,
        bytes_max: int = sys.maxsize,
        drained: Callable[[], None] = lambda: None,
        taken: Callable[[M], None] = lambda message: None,
    ) -> None:
        self._loop = loop
        self._bytes_pause = bytes_pause
        self._bytes_max = bytes_max
        # Half, so that reading does not stop and go with every message.
        self._bytes_resume = bytes_pause // 2
        self._drained = drained
        self._taken = taken
        self._messages: deque[M] = deque()
        self._readers: deque[asyncio.Future[None]] = deque()
        self._end: ConnectionClosed | None = None
        self._room: asyncio.Future[None] | None = None
        self.bytes = 0
        # Whether there is enough to do without reading on.
        self.crowded = False

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def full(self) -> bool:
        """Whether nothing more may come."""
        return self.bytes >= self._bytes_max

    def put(self, message: M) -> None:
        """Add a message."""
        self._messages.append(message)
        self.bytes += len(message.payload) + OVERHEAD_BYTES
        if self.bytes >= self._bytes_pause:
            self.crowded = True
        if self._readers:
            self._wake_reader()

    def end(self, reason: ConnectionClosed) -> None:
        """Let readers finish what is there, and then raise `reason`; the first call counts."""
        if self._end is None:
            self._end = reason
            while self._readers:
                self._wake_reader()

    async def get(self) -> M:
        """Take the oldest message, waiting for one; raises ConnectionClosed at the end.

        Cancelling it loses no message.
        """
        while not self._messages:
            if self._end is not None:
                raise self._end.again()
            await self._wait()
        return self._take()

    def clear(self) -> list[M]:
        """Take everything at once."""
        messages = list(self._messages)
        for _ in messages:
            self._take()
        return messages

    async def room(self) -> None:
        """Wait until it is not full."""
        while self.full:
            self._room = self._loop.create_future()
            await self._room

    def _take(self) -> M:
        message = self._messages.popleft()
        before = self.bytes
        self.bytes = after = before - len(message.payload) - OVERHEAD_BYTES
        if self.crowded and after < self._bytes_resume:
            self.crowded = False
            self._drained()
        if after < self._bytes_max <= before:
            self._drained()
            if self._room is not None and not self._room.done():
                self._room.set_result(None)
        if message.offset:
            self._taken(message)
        return message

    async def _wait(self) -> None:
        reader = self._loop.create_future()
        self._readers.append(reader)
        try:
            await reader
        except asyncio.CancelledError:
            if reader in self._readers:
                self._readers.remove(reader)
            elif not reader.cancelled() and self._messages:
                # Woken and cancelled at once: the message is another reader's now.
                self._wake_reader()
            raise

    def _wake_reader(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                return
