"""Consumers of queues without `await`."""

from __future__ import annotations

from typing import Self

from chappe import client as asynchronous
from chappe.blocking.item import Item
from chappe.blocking.items import Source


class Consumer(Source[asynchronous.Consumer]):
    """Takes a queue's messages by name, or in a group; see `chappe.client.Consumer`.

    with client.consumer("queue:orders", name="billing") as consumer:
        for item in consumer:
            with item:
                bill(item.data)
    """

    @property
    def queue(self) -> str:
        """The queue's address."""
        return self._source.queue

    @property
    def name(self) -> str | None:
        """What it is registered as."""
        return self._source.name

    @property
    def group(self) -> str | None:
        """The group it competes in."""
        return self._source.group

    def open(self) -> Self:
        """Register, if it has a name."""
        self._background.call(self._source.open())
        return self

    def pull(self, n: int = 1, wait_s: float = 0.0) -> list[Item]:
        """Take up to `n` items: those there are, or else the first that come within `wait_s`."""
        items = self._background.call(self._source.pull(n, wait_s))
        return [Item(self._background, item) for item in items]

    def unregister(self) -> None:
        """Be a consumer no more: nothing is kept for this name from now on."""
        self._background.call(self._source.unregister())

    def __enter__(self) -> Self:
        return self.open()
