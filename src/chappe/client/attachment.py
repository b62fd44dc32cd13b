"""An attachment: what joins one link to a connection, until either lets go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chappe.client.event import Closing
from chappe.client.link import Link
from chappe.errors import ABNORMAL, CloseCode, ConnectionClosed

if TYPE_CHECKING:
    from chappe.client.connection import Connection


class Attachment:
    """One link's hold on the connection: what a link that was let go says is not heard."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection: Connection | None = connection
        self.link: Link | None = None
        self.ready: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[ConnectionClosed] = loop.create_future()
        self.writing_paused = False
        self.parted = False
        self.closing: Closing | None = None

    def received(self, body: bytes) -> None:
        if self._connection is not None:
            self._connection.received(body)

    def heard(self) -> None:
        if self._connection is not None:
            self._connection.heard()

    def lost(self, code: int, reason: str) -> None:
        if self.closing is not None and code == ABNORMAL:
            code, reason = self.closing.code, self.closing.reason
        if not self.gone.done():
            self.gone.set_result(ConnectionClosed(code, reason))
        if not self.ready.done():
            self.ready.set_exception(ConnectionClosed(code, reason))

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        if self._connection is not None:
            self._connection.writer.flush()

    def part(self, reason: str) -> None:
        """Say goodbye: nothing can be written after it, not even that one is alive."""
        if self.link is not None and not self.parted:
            self.parted = True
            self.link.close(CloseCode.NORMAL, reason)

    def mute(self) -> None:
        """Hear no more of the link but its end."""
        self._connection = None

    def release(self) -> None:
        """Let the link go, cutting it if it is still there."""
        self.mute()
        if not self.ready.cancel() and not self.ready.cancelled():
            # Looked at, so that nobody is told of an exception that nobody awaited.
            self.ready.exception()
        if self.link is not None:
            self.link.abort()
