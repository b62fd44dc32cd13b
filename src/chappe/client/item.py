"""An item: a message that a queue has lent to this client until it says what became of it."""

from __future__ import annotations

import math
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from chappe.client.lent import Lent
from chappe.errors import BadRequest, RequestError
from chappe.wire.ops import Ack, Nack

if TYPE_CHECKING:
    from chappe.client.workqueue import Workqueues


class Item:
    """A queue's message, to be acknowledged or handed back.

    Acknowledge it with `ack`, hand it back with `nack`, or let `async with item:` do either,
    depending on whether the block raises.
    """

    __slots__ = ("_generation", "_queues", "message")

    def __init__(self, queues: Workqueues, message: Lent, generation: int) -> None:
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

    @property
    def key(self) -> str | None:
        """What it is ordered by: the next of the same key comes when this one is done."""
        return self.message.key

    @property
    def headers(self) -> dict[str, str]:
        """What its sender said of it."""
        return self.message.headers or {}

    @property
    def tags(self) -> list[str]:
        """The words that its sender gave it."""
        return self.message.tags or []

    @property
    def num(self) -> int | None:
        """Its sender's own number; it may repeat."""
        return self.message.num

    @property
    def attempt(self) -> int:
        """How often it has been handed out in this group, this time included."""
        return self.message.attempt

    async def ack(self) -> bool:
        """Say that it is done.

        False if that is too late, or not known to have arrived: the item may come again, to this
        client or to another.
        """
        return await self._settle(Ack(message=self.message.id))

    async def nack(self, *, delay_s: float | None = None) -> bool:
        """Hand it back, to come again, with a delay not before that; False if it does anyway."""
        op = Nack(message=self.message.id)
        if delay_s is not None:
            if not 0 <= delay_s < math.inf:
                raise BadRequest("delay_s: must be 0 or more")
            op.delay_ms = round(delay_s * 1000)
        return await self._settle(op)

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

    async def _settle(self, op: Ack | Nack) -> bool:
        try:
            return await self._queues.settle(op, self._generation)
        except RequestError:
            # It went to somebody else, or is about to: this session has it no more.
            return False

    def __repr__(self) -> str:
        return f"<Item {self.id} of {self.queue}>"
