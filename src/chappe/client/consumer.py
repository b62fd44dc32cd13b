"""A consumer: lets a work queue push items, again after each reconnect."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Self

from chappe.client.event import Phase
from chappe.client.form import check_text
from chappe.client.inbox import Inbox
from chappe.client.item import Item
from chappe.client.notice import Notice, Stopped
from chappe.errors import BadRequest, CloseCode, ConnectionClosed, Overload, RequestError
from chappe.wire.ops import Consume, Reply

if TYPE_CHECKING:
    from chappe.client.asking import Asking
    from chappe.client.conversation import Conversation
    from chappe.client.workqueue import Workqueues


class Consumer:
    """Items of one queue, of which up to `credit` are here unacknowledged at any time.

        async with client.consume("queue:jobs", credit=10) as items:
            async for item in items:
                async with item:
                    work(item.data)

    It begins when it is entered or first iterated over. Leaving the block ends it and hands back
    what was not taken yet. Iterating ends with it, or with the client; it raises the RequestError
    with which a hub refused it after a reconnect, and ConnectionClosed when the hub ended the
    client.
    """

    def __init__(
        self,
        queues: Workqueues,
        conversation: Conversation,
        asking: Asking,
        queue: str,
        credit: int,
    ) -> None:
        if credit < 1:
            raise BadRequest("credit: must be 1 or more")
        self._queues = queues
        self._conversation = conversation
        self._asking = asking
        self._credit = credit
        # The hub sends no more than the credit: that is its bound.
        self._inbox = Inbox(asyncio.get_running_loop())
        self._error: RequestError | None = None
        self._begun = False
        self._closed = False
        self.queue = check_text(queue)
        # Whether the hub has taken it, so that it is said again on a new connection.
        self.standing = False

    async def open(self) -> Self:
        """Ask the hub to push; raises as every request does."""
        self._begun = True
        self._queues.take(self.queue, self._inbox.put, self)
        try:
            await self._asking.ask(self.ask(), self.taken)
        except (asyncio.CancelledError, Overload):
            # The hub may have begun all the same.
            self._queues.say(Consume(to=self.queue, credit=0))
            raise
        finally:
            if not self.standing:
                self._queues.leave_off(self.queue)
        return self

    async def close(self) -> None:
        """Ask for no more items and hand back those that were not taken yet."""
        if self._closed:
            return
        self._closed, self.standing = True, False
        generation = self._conversation.generation
        try:
            if self._queues.consumers.get(self.queue) is self:
                await self._stop()
        finally:
            self._queues.leave_off(self.queue)
            self._inbox.end(ConnectionClosed(CloseCode.NORMAL, "this consumer was closed"))
            for message in self._inbox.clear():
                self._queues.hand_back(message, generation)

    async def _stop(self) -> None:
        """Tell the hub to push no more; a connection that is lost has ended it as well."""
        op = Consume(to=self.queue, credit=0)
        if self._conversation.phase is Phase.READY:
            with contextlib.suppress(RequestError, ConnectionClosed):
                await self._asking.ask(op)
        else:
            self._queues.say(op)

    async def __aenter__(self) -> Self:
        return self if self._begun else await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        """The next item, waiting for it; cancelling it loses none."""
        if not self._begun:
            await self.open()
        try:
            message = await self._inbox.get()
        except ConnectionClosed:
            if self._error is not None:
                raise self._error from None
            if self._closed or self._queues.closing:
                raise StopAsyncIteration from None
            raise
        return Item(self._queues, message, self._conversation.generation)

    @property
    def wanted(self) -> bool:
        """Whether it is still to go on."""
        return self.standing

    def ask(self) -> Consume:
        """What to say to the hub."""
        return Consume(to=self.queue, credit=self._credit)

    def taken(self, reply: Reply) -> None:
        """The hub pushes."""
        self.standing = not self._closed

    def refused(self, error: RequestError) -> Notice:
        """The hub does not push any more, after a reconnect."""
        self._error = error
        self.end(ConnectionClosed(CloseCode.NORMAL, error.reason))
        return Stopped(self.queue, error)

    def lose(self) -> None:
        """The connection is gone, and with it what was not acknowledged."""
        self._inbox.clear()

    def end(self, reason: ConnectionClosed) -> None:
        """Nothing more comes."""
        self.standing = False
        self._queues.leave_off(self.queue)
        self._inbox.end(reason)
