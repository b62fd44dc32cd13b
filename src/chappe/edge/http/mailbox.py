"""Mailboxes: the sink of a session that is read by requests, a long poll or a stream at a time.

A session is paused unless a reader waits for it, so that what comes lies in the hub's outbox, where
its bounds and policies hold. One write ends the wait:

    reader: take --> resume the session --> (wait) --------> bytes
    hub:                                      write --> pause the session
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.wire.ops import Closed


class Line(Protocol):
    """What carries a stream to its reader."""

    @property
    def stuck(self) -> bool:
        """Whether the reader does not take what was written to it."""
        ...

    def abort(self) -> None:
        """Drop it, and what it still buffers."""
        ...


class Mailbox:
    """Where a session's bytes wait for their reader; one at a time, the latest wins."""

    __slots__ = (
        "_hub",
        "_items",
        "_streaming",
        "_taker",
        "asking",
        "connection",
        "ended",
        "session",
    )

    session: Session

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._items: list[bytes] = []
        self._taker: asyncio.Future[None] | None = None
        self._streaming = False
        self.asking = 0
        self.connection: Line | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def take(self, wait_s: float | None) -> bytes | None:
        """Give what came; nothing when the time is over, or when a stream has to show life.

        Without `wait_s` the reader is a stream and waits for as long as it lasts. Returns None when
        the session is over, or another reader has come.
        """
        if self._taker is not None:
            self._wake()
            self._taker = None
        if not self._items and not self.session.closed:
            self._hub.resume(self.session)
            if not self._items and wait_s != 0 and not await self._wait(wait_s):
                return None
            self._pause()
        data = b"".join(self._items)
        self._items.clear()
        return data or (None if self.session.closed else b"")

    async def _wait(self, wait_s: float | None) -> bool:
        """Wait for a write, a beat or the end; False when another reader has come."""
        taker = self._taker = asyncio.get_running_loop().create_future()
        self._streaming = wait_s is None
        try:
            await asyncio.wait((taker,), timeout=wait_s)
            return self._taker is taker
        finally:
            if self._taker is taker:
                self._taker = None
                # Here, too, when the reader is cancelled: nobody is left to read.
                self._pause()

    def write(self, data: bytes) -> None:
        if data:
            self._items.append(data)
            self._pause()
            self._wake()

    def ping(self) -> None:
        """A request that waits is as good as an answer: its connection takes bytes."""
        if self._taker is not None or self.asking:
            self.session.beats_missed = 0
        if self._taker is not None and self._streaming:
            self._wake()

    def close(self, code: int, reason: str) -> None:
        self._items.append(self.session.encoding.op(Closed(code=code, reason=reason)))
        self.ended.set_result(None)
        self._wake()

    def abort(self) -> None:
        # A paused session is no sign of a stuck connection here; that is asked for itself.
        if self.connection is not None and self.connection.stuck:
            self.connection.abort()

    def _pause(self) -> None:
        if not self.session.closed and not self.session.paused:
            self._hub.pause(self.session)

    def _wake(self) -> None:
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)


class Poll(Mailbox):
    """A mailbox whose batches are given again until they are acknowledged."""

    __slots__ = ("batch", "unacknowledged")

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self.batch = 0
        self.unacknowledged = b""

    async def poll(self, ack: int | None, wait_s: float) -> tuple[int, bytes]:
        """Give the number and the items of the next batch, or of the last one again."""
        self.session.beats_missed = 0
        if ack == self.batch:
            self.unacknowledged = b""
        if not self.unacknowledged:
            items = await self.take(wait_s)
            if not items:
                return self.batch, b""
            self.batch += 1
            self.unacknowledged = items
        return self.batch, self.unacknowledged
