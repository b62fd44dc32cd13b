"""The connection: keeps a conversation on a link, and makes a new link when one is lost.

    open --> established --> lost or leaving --> wait, jittered --> established ...
                                  |                    |
                                  +---- give up <------+

It joins what takes time: dialling and coming back (the keeper), beats (the pulse), writing,
deadlines. Time is the loop's, randomness is passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from chappe.backoff import Backoff
from chappe.client.attachment import Attachment
from chappe.client.conversation import Conversation
from chappe.client.deadline import Deadline
from chappe.client.departure import Departure
from chappe.client.event import Closing, Deferred, Event, Phase, Refused
from chappe.client.identity import Identity
from chappe.client.inbox import Inbox
from chappe.client.keeper import Keeper
from chappe.client.link import Dial
from chappe.client.notice import Draining, Dropped, Notice
from chappe.client.options import ClientOptions
from chappe.client.pulse import Pulse
from chappe.client.retry import Retry
from chappe.client.writer import Writer
from chappe.errors import ABNORMAL, CloseCode, ConnectionClosed
from chappe.message import Message

if TYPE_CHECKING:
    from random import Random

OnNotice = Callable[[Notice], None]


class Connection:
    """Carries one conversation for as long as its client lives."""

    def __init__(
        self,
        dial: Dial,
        conversation: Conversation,
        identity: Identity,
        options: ClientOptions,
        rng: Random,
        on_notice: OnNotice | None,
    ) -> None:
        self._dial = dial
        self._conversation = conversation
        self._identity = identity
        self._options = options
        self._on_notice = on_notice
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff(options.backoff_first_s, options.backoff_max_s, rng)
        self._departure = Departure(self, self._backoff, options.close_timeout_s)
        self._keeper = Keeper(self, conversation, self._departure, self._backoff, identity)
        self._attachment: Attachment | None = None
        self._pulse = Pulse(
            self._loop, options.heartbeats_missed_max, self._beat, self._fall_silent
        )
        self.writer = Writer(self._loop, conversation, self._pulse, options)
        self.retry = Retry(self._loop, conversation, self.writer, self._backoff)
        self.deadline = Deadline(self._loop, conversation.outgoing)
        self.inbox: Inbox[Message] = Inbox(
            self._loop,
            options.inbox_bytes_pause,
            options.inbox_bytes_max,
            self.regulate,
            conversation.subscriptions.take,
        )
        self.reconnects = 0
        self.dropped = 0

    async def open(self) -> None:
        """Connect for the first time; raises ConnectionClosed, or the RequestError of hello."""
        try:
            await self.establish()
        except OSError as error:
            reason = str(error) or "timed out"
            raise ConnectionClosed(ABNORMAL, f"cannot connect: {reason}") from error
        self._keeper.start()

    async def close(self) -> None:
        """Write what is queued, say goodbye, and end everything; cancelling it cuts the link."""
        self._keeper.closing = True
        try:
            async with asyncio.timeout(self._options.close_timeout_s):
                await self.writer.sent()
                await self._part()
        except TimeoutError:
            # The hub takes no more, or does not answer the goodbye: there is nothing left to say.
            pass
        finally:
            self.end(ConnectionClosed(CloseCode.NORMAL, "closed by this client"))
            self._keeper.cancel()
        await self._keeper.wait()

    async def _part(self) -> None:
        """End the session and wait until the hub has ended it, too."""
        attachment = self._attachment
        if attachment is None or attachment.link is None or attachment.gone.done():
            return
        attachment.mute()
        self._conversation.leave()
        attachment.part("")
        attachment.link.resume_reading()
        await asyncio.shield(attachment.gone)

    async def gone(self) -> ConnectionClosed:
        """Wait for the end of the link."""
        assert self._attachment is not None
        return await asyncio.shield(self._attachment.gone)

    @property
    def closing(self) -> bool:
        """Whether its user has closed it."""
        return self._keeper.closing

    @property
    def deaf(self) -> bool:
        """Whether the link is not read now, because the inbox is full."""
        return self._pulse.deaf

    @property
    def busy(self) -> bool:
        """Whether something is under way on this link."""
        return self._conversation.busy

    def leave(self) -> None:
        """Ask for nothing more on this link."""
        self._conversation.leave()
        self.writer.flush_soon()

    def part(self, reason: str) -> None:
        """Say goodbye to the hub."""
        self.writer.flush()
        if self._attachment is not None:
            self._attachment.part(reason)

    def cut(self) -> None:
        """Wait no longer for what is under way."""
        if self._attachment is not None:
            self._attachment.lost(CloseCode.GOING_AWAY, "moving on")

    def received(self, body: bytes) -> None:
        """The link brought an op."""
        self._pulse.missed = 0
        inbox = self.inbox
        for event in self._conversation.receive(body):
            if event.__class__ is Message:
                inbox.put(event)
            else:
                self._react(event)
        self.settle()

    def heard(self) -> None:
        """The link brought a sign of life."""
        self._pulse.missed = 0

    def regulate(self) -> None:
        """Stop reading when the inbox is full, or crowded and no reply is awaited; or read on."""
        attachment, inbox = self._attachment, self.inbox
        if attachment is None or attachment.link is None or attachment.gone.done():
            return
        pause = inbox.full or (inbox.crowded and not self._conversation.awaiting)
        if pause != self._pulse.deaf:
            self._pulse.deaf = pause
            if pause:
                attachment.link.pause_reading()
            else:
                attachment.link.resume_reading()

    def settle(self) -> None:
        """Do what follows from all that was received, or done, at once."""
        attachment, conversation = self._attachment, self._conversation
        if attachment is None:
            return
        if conversation.phase is Phase.READY and not attachment.ready.done():
            attachment.ready.set_result(None)
        if self._departure.under_way:
            self._departure.look()
        if self.inbox.crowded:
            self.regulate()
        if conversation.has_more:
            self.writer.flush_soon()

    def tell(self, event: Notice) -> None:
        """Tell the user."""
        if self._on_notice is not None:
            # Not from here: what the user's function raises must not break the reading of frames.
            self._loop.call_soon(self._on_notice, event)

    def _react(self, event: Event) -> None:
        attachment = self._attachment
        assert attachment is not None
        if isinstance(event, Refused):
            if not attachment.ready.done():
                attachment.ready.set_exception(event.error)
        elif isinstance(event, Closing):
            attachment.closing = event
        elif isinstance(event, Deferred):
            self.retry.later(event.wish)
        elif isinstance(event, Notice):
            if isinstance(event, Draining):
                self._departure.prepare(event.after_s)
            elif isinstance(event, Dropped):
                self.dropped += event.n
            self.tell(event)

    async def establish(self) -> None:
        """Make a link and a session on it; raises OSError, ConnectionClosed or RequestError."""
        attachment = Attachment(self, self._loop)
        self._attachment = self.writer.attachment = attachment
        established = False
        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                token = await self._identity.fresh_token()
                attachment.link = await self._dial(attachment)
                self._conversation.greet(self._identity.as_, token, self._identity.app)
                self.writer.flush()
                await attachment.ready
            established = True
        finally:
            if not established:
                self.detach()
        self._pulse.start(self._conversation.heartbeat_s)
        self.writer.flush_soon()

    def detach(self) -> None:
        """Let the link go."""
        self._pulse.stop()
        self._departure.cancel()
        self.retry.cancel()
        if self._attachment is not None:
            self._attachment.release()
            self._attachment = self.writer.attachment = None
        self._conversation.lose()

    def end(self, closed: ConnectionClosed) -> None:
        """Be over, for this reason."""
        self._conversation.end(closed)
        self.detach()
        self.deadline.cancel()
        self.inbox.end(closed)
        self.writer.tell()

    def _beat(self, answer: bool) -> None:
        self._conversation.beat(answer=answer)
        self.writer.flush()

    def _fall_silent(self) -> None:
        if self._attachment is not None:
            self._attachment.lost(CloseCode.HEARTBEAT_LOST, "the hub was not heard of in time")
