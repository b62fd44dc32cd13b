"""Items as they come: lets a queue push them, again after each reconnect."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Self

from chappe.client.event import Deferred, Phase
from chappe.client.inbox import Inbox
from chappe.client.item import Item
from chappe.client.lent import Lent
from chappe.client.notice import Notice, Stopped
from chappe.client.patience import Patience
from chappe.client.selection import Selection
from chappe.errors import BadRequest, CloseCode, ConnectionClosed, Overload, RequestError
from chappe.wire.ops import Consume, Reply

if TYPE_CHECKING:
    from chappe.client.asking import Asking
    from chappe.client.conversation import Conversation
    from chappe.client.workqueue import Workqueues


class Items:
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
        selection: Selection,
        credit: int,
    ) -> None:
        if credit < 1:
            raise BadRequest("credit: must be 1 or more")
        self._queues = queues
        self._conversation = conversation
        self._asking = asking
        self._selection = selection
        self._credit = credit
        # The hub sends no more than the credit: that is its bound.
        self._inbox: Inbox[Lent] = Inbox(asyncio.get_running_loop())
        self._error: RequestError | None = None
        self._patience = Patience(selection.name)
        self._begun = False
        self._closed = False
        self.queue = selection.queue
        # Whether the hub has taken it, so that it is said again on a new connection.
        self.standing = False

    async def open(self) -> Self:
        """Ask the hub to push; raises as every request does."""
        self._begun = True
        self._queues.take(self, self._inbox.put)
        try:
            await self._asking.ask(self.ask(), self.taken)
        except (asyncio.CancelledError, Overload):
            # The hub may have begun all the same.
            self._queues.say(self._selection.consume(0))
            raise
        finally:
            if not self.standing:
                self._queues.leave_off(self)
        return self

    async def close(self) -> None:
        """Ask for no more items and hand back those that were not taken yet."""
        if self._closed:
            return
        self._closed, self.standing = True, False
        generation = self._conversation.generation
        try:
            if self._queues.pushed.get(self.queue) is self:
                await self._stop()
        finally:
            self._queues.leave_off(self)
            self._inbox.end(ConnectionClosed(CloseCode.NORMAL, "these items were given up"))
            for message in self._inbox.clear():
                self._queues.hand_back(message, generation)

    async def _stop(self) -> None:
        """Tell the hub to push no more; a connection that is lost has ended it as well."""
        op = self._selection.consume(0)
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
        if not self._begun and not self._closed:
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
        return self._selection.consume(self._credit)

    def taken(self, reply: Reply) -> None:
        """The hub pushes."""
        self.standing = not self._closed
        self._patience.renew()
        if self._error is not None:
            self._queues.say(self._selection.consume(0))

    def refused(self, error: RequestError) -> Notice | Deferred:
        """The hub does not push any more, after a reconnect."""
        if self._patience.bears(error):
            return Deferred(self)
        self.fail(error)
        return Stopped(self.queue, error)

    def fail(self, error: RequestError) -> None:
        """End with an error, whatever the hub says from now on."""
        self._error, self._closed = error, True
        self.end(ConnectionClosed(CloseCode.NORMAL, error.reason))

    def lose(self) -> None:
        """The connection is gone, and with it what was not acknowledged."""
        self._inbox.clear()

    def end(self, reason: ConnectionClosed) -> None:
        """Nothing more comes."""
        self.standing = False
        self._queues.leave_off(self)
        self._inbox.end(reason)
