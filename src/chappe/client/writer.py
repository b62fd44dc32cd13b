"""The writer: hands a conversation's bodies to its link, once per turn of the loop."""

from __future__ import annotations

import asyncio

from chappe.client.attachment import Attachment
from chappe.client.conversation import Conversation
from chappe.client.event import Phase
from chappe.client.options import ClientOptions
from chappe.client.pulse import Pulse

# As much as a transport takes before it pauses: what lies in a transport counts as written.
_CHUNK_BYTES = 64 * 1024


class Writer:
    """Writes to one attachment after the other, and knows when much waits."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        conversation: Conversation,
        pulse: Pulse,
        options: ClientOptions,
    ) -> None:
        self._loop = loop
        self._conversation = conversation
        self._outgoing = conversation.outgoing
        self._pulse = pulse
        self._crowded_bytes = options.outgoing_bytes_max // 2
        self._soon = False
        self._done: asyncio.Future[None] | None = None
        self.attachment: Attachment | None = None

    def flush_soon(self) -> None:
        """Write at the end of this turn of the loop, together with all else that it brings."""
        if not self._soon:
            self._soon = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hand to the link what it takes."""
        self._soon = False
        attachment = self.attachment
        if attachment is None or attachment.link is None or attachment.parted:
            return
        while not attachment.writing_paused and not attachment.gone.done():
            bodies = self._conversation.take(_CHUNK_BYTES)
            if not bodies:
                break
            self._pulse.spoke = True
            attachment.link.write(bodies)
        self.tell()

    @property
    def crowded(self) -> bool:
        """Whether more waits to be sent than half of what may."""
        return self._outgoing.bytes > self._crowded_bytes

    async def drained(self) -> None:
        """Wait until no more waits to be sent than half of what may."""
        while self.crowded:
            await self._flushed()

    async def sent(self) -> None:
        """Write everything and wait until it is, if it can be at all."""
        self.flush()
        while self._outgoing.bytes and self._conversation.phase is Phase.READY:
            await self._flushed()

    def tell(self) -> None:
        """Let those look who wait for a write, or for the end."""
        if self._done is not None:
            self._done.set_result(None)
            self._done = None

    async def _flushed(self) -> None:
        if self._done is None:
            self._done = self._loop.create_future()
        await asyncio.shield(self._done)
