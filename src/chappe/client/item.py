"""An item: a message that a work queue has lent to this client until it says what became of it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from chappe.errors import RequestError
from chappe.message import Message
from chappe.wire.ops import Ack, Nack

if TYPE_CHECKING:
    from chappe.client.workqueue import Workqueues


class Item:
    """A queue's message, to be acknowledged or handed back.

    Acknowledge it with `ack`, hand it back with `nack`, or let `async with item:` do either,
    depending on whether the block raises.
    """

    __slots__ = ("_generation", "_queues", "message")

    def __init__(self, queues: Workqueues, message: Message, generation: int) -> None:
        self._queues = queues
        self._generation = generation
        self.message = message

    @property
    def id(self) -> int:
        """The message's id, the same each time it comes."""
        return self.message.id

    @property
    def queue(self) -> str:
        """The queue's address."""
        return self.message.to

    @property
    def data(self) -> Any:
        """What is to be done; raises RemoteProtocolError as `Message.data` does."""
        return self.message.data

    async def ack(self) -> bool:
        """Say that it is done.

        False if that is too late, or not known to have arrived: the item may come again, to this
        client or to another.
        """
        return await self._say(Ack)

    async def nack(self) -> bool:
        """Hand it back, to come again; False if it is going to anyway."""
        return await self._say(Nack)

    def hand_back(self) -> None:
        """Hand it back without waiting for an answer."""
        self._queues.hand_back(self.message, self._generation)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.ack()
        else:
            # Not awaited: whoever was cancelled is not kept waiting.
            self.hand_back()

    async def _say(self, kind: type[Ack] | type[Nack]) -> bool:
        try:
            return await self._queues.settle(kind, self.message, self._generation)
        except RequestError:
            # It went to somebody else, or is about to: this session has it no more.
            return False

    def __repr__(self) -> str:
        return f"<Item {self.id} of {self.queue}>"
