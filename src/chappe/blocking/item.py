"""Items of work queues without `await`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from chappe import client as asynchronous
from chappe.blocking.background import Background
from chappe.message import Message


class Item:
    """A queue's message, to be acknowledged or handed back; see `chappe.client.Item`."""

    __slots__ = ("_background", "_item")

    def __init__(self, background: Background, item: asynchronous.Item) -> None:
        self._background = background
        self._item = item

    @property
    def message(self) -> Message:
        """The message itself."""
        return self._item.message

    @property
    def id(self) -> int:
        """The message's id, the same each time it comes."""
        return self._item.id

    @property
    def queue(self) -> str:
        """The queue's address."""
        return self._item.queue

    @property
    def data(self) -> Any:
        """What is to be done."""
        return self._item.data

    def ack(self) -> bool:
        """Say that it is done; False if that is too late: it comes again."""
        return self._background.call(self._item.ack())

    def nack(self) -> bool:
        """Hand it back, to come again; False if it is going to anyway."""
        return self._background.call(self._item.nack())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.ack()
        else:
            self.nack()

    def __repr__(self) -> str:
        return repr(self._item)


class Consumer:
    """Items of one queue, as they come; see `chappe.client.Consumer`.

    with client.consume("queue:jobs") as items:
        for item in items:
            with item:
                work(item.data)
    """

    def __init__(self, background: Background, consumer: asynchronous.Consumer) -> None:
        self._background = background
        self._consumer = consumer

    def close(self) -> None:
        """Ask for no more items and hand back those that were not taken yet."""
        self._background.call(self._consumer.close())

    def __enter__(self) -> Self:
        self._background.call(self._consumer.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        item = self._background.call(self._next())
        if item is None:
            raise StopIteration
        return Item(self._background, item)

    async def _next(self) -> asynchronous.Item | None:
        return await anext(self._consumer, None)
