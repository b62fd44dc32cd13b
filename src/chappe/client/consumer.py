"""A consumer: one of a queue's, by name or in a group, that is pushed messages or asks for them."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from chappe.client.item import Item
from chappe.client.items import Items
from chappe.client.registration import Registration
from chappe.client.selection import Selection
from chappe.errors import BadRequest, RequestError

if TYPE_CHECKING:
    from chappe.client.asking import Asking
    from chappe.client.conversation import Conversation
    from chappe.client.workqueue import Workqueues


class Consumer:
    """Takes a queue's messages, for a group: each message goes to one consumer of each group.

        async with client.consumer("queue:orders", name="billing") as consumer:
            async for item in consumer:          # pushed, up to `credit` unacknowledged ones
                async with item:
                    bill(item.data)

    With a name it is registered when it is opened: the queue keeps for it what comes while it is
    away, until `unregister`. Another may not take the name meanwhile: that raises the RequestError
    of the hub. Without a name or a group it competes with all others that have neither.

    Iterating lets the queue push, also after a reconnect; `pull` asks for some instead. One client
    takes from one queue in one way at a time.
    """

    def __init__(
        self,
        queues: Workqueues,
        conversation: Conversation,
        asking: Asking,
        selection: Selection,
        *,
        new: bool,
        credit: int,
    ) -> None:
        if selection.name is None and new:
            raise BadRequest("new: only a consumer with a name can begin with what is new")
        self._queues = queues
        self._conversation = conversation
        self._asking = asking
        self._selection = selection
        self._registration = Registration(selection, new, self._refuse)
        self._items = Items(queues, conversation, asking, selection, credit)
        self._error: RequestError | None = None
        self._opened = False
        self._closed = False

    @property
    def queue(self) -> str:
        """The queue's address."""
        return self._selection.queue

    @property
    def name(self) -> str | None:
        """What it is registered as."""
        return self._selection.name

    @property
    def group(self) -> str | None:
        """The group it competes in; its name, unless told otherwise."""
        return self._selection.group

    async def open(self) -> Self:
        """Register, if it has a name; raises as every request does."""
        if self._opened or self.name is None:
            return self
        if self.queue in self._queues.registrations:
            raise BadRequest(f"name: this client is a consumer of {self.queue} already")
        self._queues.registrations[self.queue] = self._registration
        try:
            await self._asking.ask(self._registration.ask(), self._registration.taken)
            self._opened = True
        finally:
            if not self._registration.standing:
                self._leave()
        return self

    async def pull(self, n: int = 1, wait_s: float = 0.0) -> list[Item]:
        """Take up to `n` items: those there are, or else the first that come within `wait_s`.

        Cancelling it hands back what it would have brought.
        """
        if self._closed:
            raise BadRequest(f"to: this consumer of {self.queue} is closed")
        await self._ready()
        return await self._queues.fetch(self._selection, n, wait_s)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        """The next item that is pushed, waiting for it; cancelling it loses none."""
        if not self._closed:
            await self._ready()
        return await anext(self._items)

    async def unregister(self) -> None:
        """Be a consumer no more: nothing is kept for this name from now on, and this one is closed.

        Raises BadRequest when it has no name.
        """
        if self.name is None:
            raise BadRequest("name: this consumer has none")
        await self.close()
        await self._asking.ask(self._selection.unregister())

    async def close(self) -> None:
        """Take no more, and hand back what was not taken yet; a name stays registered."""
        self._closed = True
        self._leave()
        await self._items.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _ready(self) -> None:
        await self.open()
        # After a reconnect the name may be this client's a moment later.
        await self._registration.settled()
        if self._error is not None:
            raise self._error

    def _leave(self) -> None:
        self._registration.end()
        if self._queues.registrations.get(self.queue) is self._registration:
            del self._queues.registrations[self.queue]

    def _refuse(self, error: RequestError) -> None:
        """The hub gave the name to somebody else, after a reconnect."""
        self._error = error
        self._leave()
        self._items.fail(error)
