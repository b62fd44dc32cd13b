"""Items of queues as they come, without `await`."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from chappe import client as asynchronous
from chappe.blocking.background import Background
from chappe.blocking.closing import Closing
from chappe.blocking.item import Item

S = TypeVar("S", bound=asynchronous.Items | asynchronous.Consumer)


class Source(Closing, Generic[S]):
    """What items come from, one after the other."""

    def __init__(self, background: Background, source: S) -> None:
        self._background = background
        self._source = source

    def close(self) -> None:
        """Take no more, and hand back what was not taken yet; a name stays registered."""
        self._background.call(self._source.close())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        item = self._background.call(self._next())
        if item is None:
            raise StopIteration
        return Item(self._background, item)

    async def _next(self) -> asynchronous.Item | None:
        return await anext(self._source, None)


class Items(Source[asynchronous.Items]):
    """Items of one queue, as they come; see `chappe.client.Items`.

    with client.consume("queue:jobs") as items:
        for item in items:
            with item:
                work(item.data)
    """

    def __enter__(self) -> Self:
        self._background.call(self._source.__aenter__())
        return self
