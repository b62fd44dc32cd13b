"""The connection: keeps a conversation on a link, and makes a new link when one is lost.

    open --> established --> lost or leaving --> wait, jittered --> established ...
                                  |                    |
                                  +---- give up <------+

It owns everything that takes time: dialling, writing once per turn of the loop, beats, deadlines,
delays. Time is the loop's, randomness is passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from chappe.client.attachment import Attachment
from chappe.client.backoff import Backoff
from chappe.client.conversation import Closing, Conversation, Event, Phase, Refused
from chappe.client.identity import Identity
from chappe.client.inbox import Inbox
from chappe.client.link import Dial
from chappe.client.notice import Disconnected, Draining, Dropped, Notice, Reconnected
from chappe.client.options import ClientOptions
from chappe.client.pulse import Pulse
from chappe.errors import ABNORMAL, CloseCode, ConnectionClosed, Overload, RequestError
from chappe.message import Message

if TYPE_CHECKING:
    from random import Random

OnNotice = Callable[[Notice], None]

# As much as a transport takes before it pauses: what lies in a transport counts as written.
_CHUNK_BYTES = 64 * 1024


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
        self._pulse = Pulse(
            self._loop, options.heartbeats_missed_max, self._beat, self._fall_silent
        )
        self._attachment: Attachment | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._flushing = False
        self._flush_done: asyncio.Future[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._leave_timer: asyncio.TimerHandle | None = None
        self._leave_at = 0.0
        self._leaving = False
        self._closing = False
        self.inbox = Inbox(
            self._loop, options.inbox_bytes_pause, options.inbox_bytes_max, self.regulate
        )
        self.reconnects = 0
        self.dropped = 0

    async def open(self) -> None:
        """Connect for the first time; raises ConnectionClosed, or the RequestError of hello."""
        try:
            await self._establish()
        except OSError as error:
            reason = str(error) or "timed out"
            raise ConnectionClosed(ABNORMAL, f"cannot connect: {reason}") from error
        self._keeper = self._loop.create_task(self._keep())
        self._keeper.add_done_callback(self._kept)

    async def close(self) -> None:
        """Write what is queued, say goodbye, and end everything; cancelling it cuts the link."""
        self._closing = True
        try:
            async with asyncio.timeout(self._options.close_timeout_s):
                await self._sent()
                await self._part()
        except TimeoutError:
            # The hub takes no more, or does not answer the goodbye: there is nothing left to say.
            pass
        finally:
            self._end(ConnectionClosed(CloseCode.NORMAL, "closed by this client"))
            if self._keeper is not None:
                self._keeper.cancel()
        if self._keeper is not None:
            await asyncio.wait((self._keeper,))

    async def _sent(self) -> None:
        """Wait until everything is written, if it can be at all."""
        self.flush()
        while self._conversation.outgoing_bytes and self._conversation.phase is Phase.READY:
            await self._flushed()

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

    def flush_soon(self) -> None:
        """Write at the end of this turn of the loop, together with all else that it brings."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Hand to the link what it takes."""
        self._flushing = False
        attachment = self._attachment
        if attachment is None or attachment.link is None or attachment.parted:
            return
        while not attachment.writing_paused and not attachment.gone.done():
            bodies = self._conversation.take(_CHUNK_BYTES)
            if not bodies:
                break
            self._pulse.spoke = True
            attachment.link.write(bodies)
        self._tell_flushed()

    @property
    def deaf(self) -> bool:
        """Whether the link is not read now, because the inbox is full."""
        return self._pulse.deaf

    @property
    def crowded(self) -> bool:
        """Whether more waits to be sent than half of what may."""
        return self._conversation.outgoing_bytes * 2 > self._options.outgoing_bytes_max

    async def drained(self) -> None:
        """Wait until no more waits to be sent than half of what may."""
        while self.crowded:
            await self._flushed()

    async def _flushed(self) -> None:
        """Wait for the next write, or the end."""
        if self._flush_done is None:
            self._flush_done = self._loop.create_future()
        await asyncio.shield(self._flush_done)

    def _tell_flushed(self) -> None:
        if self._flush_done is not None:
            self._flush_done.set_result(None)
            self._flush_done = None

    def watch_deadline(self, due: float) -> None:
        """See to it that requests fail when they are due: the next one is not before `due`."""
        if self._deadline is None:
            self._deadline = self._loop.call_at(due, self._expire)

    def received(self, body: bytes) -> None:
        """The link brought an op."""
        self._pulse.missed = 0
        inbox = self.inbox
        for event in self._conversation.receive(body):
            if event.__class__ is Message:
                inbox.put(event)
            else:
                self._react(event)
        self._settle()

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

    def _react(self, event: Event) -> None:
        attachment = self._attachment
        assert attachment is not None
        if isinstance(event, Refused):
            if not attachment.ready.done():
                attachment.ready.set_exception(event.error)
        elif isinstance(event, Closing):
            attachment.closing = event
        elif isinstance(event, Notice):
            self._take_notice(event)

    def _settle(self) -> None:
        """Do what follows from all that was received at once."""
        attachment, conversation = self._attachment, self._conversation
        if attachment is None:
            return
        if conversation.phase is Phase.READY and not attachment.ready.done():
            attachment.ready.set_result(None)
        if self._leaving and not conversation.in_flight:
            self._say_goodbye()
        if self.inbox.crowded:
            self.regulate()
        if conversation.has_more:
            self.flush_soon()

    def _take_notice(self, event: Notice) -> None:
        if isinstance(event, Draining):
            self._prepare_to_leave(event.after_s)
        elif isinstance(event, Dropped):
            self.dropped += event.n
        self._tell(event)

    def _tell(self, event: Notice) -> None:
        if self._on_notice is not None:
            # Not from here: what the user's function raises must not break the reading of frames.
            self._loop.call_soon(self._on_notice, event)

    async def _establish(self) -> None:
        """Make a link and a session on it; raises OSError, ConnectionClosed or RequestError."""
        attachment = Attachment(self, self._loop)
        self._attachment = attachment
        established = False
        try:
            async with asyncio.timeout(self._options.connect_timeout_s):
                token = await self._identity.fresh_token()
                attachment.link = await self._dial(attachment)
                self._conversation.greet(self._identity.as_, token, self._identity.app)
                self.flush()
                await attachment.ready
            established = True
        finally:
            if not established:
                self._detach()
        self._pulse.start(self._conversation.heartbeat_s)
        self.flush_soon()

    def _detach(self) -> None:
        self._pulse.stop()
        if self._leave_timer is not None:
            self._leave_timer.cancel()
        self._leaving = False
        if self._attachment is not None:
            self._attachment.release()
            self._attachment = None
        self._conversation.lose()

    async def _keep(self) -> None:
        """Live through one connection after the other, until one says not to come back."""
        while True:
            assert self._attachment is not None
            since = self._loop.time()
            closed = await asyncio.shield(self._attachment.gone)
            if self._closing:
                return
            left = self._leaving
            self._detach()
            self._tell(Disconnected(closed.code, closed.reason))
            if self._loop.time() - since >= self._conversation.heartbeat_s:
                self._backoff.reset()
            if not self._may_return(closed) and not (left and closed.code == CloseCode.NORMAL):
                self._end(closed)
                return
            # Leaving has had its delay already.
            wait_s = self._leave_at - self._loop.time()
            delay_s = 0.0 if left else max(self._backoff.next_s(), wait_s)
            if not await self._return(delay_s):
                return
            self.reconnects += 1
            self._tell(Reconnected(self._conversation.session))

    async def _return(self, delay_s: float) -> bool:
        """Try to connect until it works, or there is a reason to give up."""
        while True:
            await asyncio.sleep(delay_s)
            # A link that may not be read could not bring the reply to hello.
            await self.inbox.room()
            try:
                await self._establish()
            except OSError:
                pass
            except ConnectionClosed as closed:
                if not self._may_return(closed):
                    self._end(closed)
                    return False
            except RequestError as error:
                if not isinstance(error, Overload):
                    self._end(ConnectionClosed(CloseCode.UNAUTHORIZED, error.reason))
                    return False
            else:
                return True
            delay_s = self._backoff.next_s()

    def _may_return(self, closed: ConnectionClosed) -> bool:
        if closed.code == CloseCode.TOKEN_EXPIRED:
            return self._identity.renewable
        return closed.reconnect

    def _kept(self, keeper: asyncio.Task[None]) -> None:
        """What the user's token function raised ends the client, with that as its cause."""
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            closed = ConnectionClosed(CloseCode.INTERNAL_ERROR, f"this client failed: {error!r}")
            closed.__cause__ = error
            self._end(closed)

    def _end(self, closed: ConnectionClosed) -> None:
        self._conversation.end(closed)
        self._detach()
        if self._deadline is not None:
            self._deadline.cancel()
        self.inbox.end(closed)
        self._tell_flushed()

    def _expire(self) -> None:
        self._deadline = None
        due = self._conversation.expire(self._loop.time())
        if due is not None:
            self._deadline = self._loop.call_at(due, self._expire)

    def _beat(self, answer: bool) -> None:
        self._conversation.beat(answer=answer)
        self.flush()

    def _fall_silent(self) -> None:
        if self._attachment is not None:
            self._attachment.lost(CloseCode.HEARTBEAT_LOST, "the hub was not heard of in time")

    def _prepare_to_leave(self, after_s: float) -> None:
        delay_s = self._backoff.stretch_s(after_s)
        self._leave_at = self._loop.time() + delay_s
        if self._leave_timer is not None:
            self._leave_timer.cancel()
        self._leave_timer = self._loop.call_later(delay_s, self._leave)

    def _leave(self) -> None:
        """Finish what is in flight, then go; a client that cannot read yet goes later."""
        if self._pulse.deaf:
            self._leave_timer = self._loop.call_later(self._options.close_timeout_s, self._leave)
            return
        self._leaving = True
        self._conversation.leave()
        self._leave_timer = self._loop.call_later(self._options.close_timeout_s, self._cut)
        if not self._conversation.in_flight:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if self._attachment is not None:
            self._attachment.part("moving on")

    def _cut(self) -> None:
        if self._attachment is not None:
            self._attachment.lost(CloseCode.GOING_AWAY, "moving on")
