"""Items of queues without `await`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from chappe import client as asynchronous
from chappe.blocking.background import Background
from chappe.client.lent import Lent


class Item:
    """A queue's message, to be acknowledged or handed back; see `chappe.client.Item`."""

    __slots__ = ("_background", "_item")

    def __init__(self, background: Background, item: asynchronous.Item) -> None:
        self._background = background
        self._item = item

    @property
    def message(self) -> Lent:
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

    @property
    def key(self) -> str | None:
        """What it is ordered by."""
        return self._item.key

    @property
    def headers(self) -> dict[str, str]:
        """What its sender said of it."""
        return self._item.headers

    @property
    def tags(self) -> list[str]:
        """The words that its sender gave it."""
        return self._item.tags

    @property
    def num(self) -> int | None:
        """Its sender's own number; it may repeat."""
        return self._item.num

    @property
    def attempt(self) -> int:
        """How often it has been handed out in this group, this time included."""
        return self._item.attempt

    def ack(self) -> bool:
        """Say that it is done; False if that is too late: it comes again."""
        return self._background.call(self._item.ack())

    def nack(self, *, delay_s: float | None = None) -> bool:
        """Hand it back, to come again, with a delay not before that; False if it does anyway."""
        return self._background.call(self._item.nack(delay_s=delay_s))

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
