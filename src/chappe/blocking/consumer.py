"""Consumers of queues without `await`."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from chappe import client as asynchronous
from chappe.blocking.background import Background
from chappe.blocking.item import Item


class Consumer:
    """Takes a queue's messages by name, or in a group; see `chappe.client.Consumer`.

    with client.consumer("queue:orders", name="billing") as consumer:
        for item in consumer:
            with item:
                bill(item.data)
    """

    def __init__(self, background: Background, consumer: asynchronous.Consumer) -> None:
        self._background = background
        self._consumer = consumer

    @property
    def queue(self) -> str:
        """The queue's address."""
        return self._consumer.queue

    @property
    def name(self) -> str | None:
        """What it is registered as."""
        return self._consumer.name

    @property
    def group(self) -> str | None:
        """The group it competes in."""
        return self._consumer.group

    def open(self) -> Self:
        """Register, if it has a name."""
        self._background.call(self._consumer.open())
        return self

    def pull(self, n: int = 1, wait_s: float = 0.0) -> list[Item]:
        """Take up to `n` items: those there are, or else the first that come within `wait_s`."""
        items = self._background.call(self._consumer.pull(n, wait_s))
        return [Item(self._background, item) for item in items]

    def unregister(self) -> None:
        """Be a consumer no more: nothing is kept for this name from now on."""
        self._background.call(self._consumer.unregister())

    def close(self) -> None:
        """Take no more, and hand back what was not taken yet; a name stays registered."""
        self._background.call(self._consumer.close())

    def __enter__(self) -> Self:
        return self.open()

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
