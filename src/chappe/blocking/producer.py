"""Producers without `await`."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from chappe import client as asynchronous
from chappe.blocking.background import Background
from chappe.blocking.closing import Closing
from chappe.client import Receipt
from chappe.client.deadletter import OnDead
from chappe.client.outlet import Outlet

P = TypeVar("P", bound=Outlet)
N = TypeVar("N", bound=asynchronous.Producer)


class _Outlet(Closing, Generic[P]):
    """What all producers have in common."""

    def __init__(self, background: Background, producer: P) -> None:
        self._background = background
        self._producer = producer

    @property
    def queue(self) -> str:
        """The queue's address."""
        return self._producer.queue

    @property
    def lanes(self) -> tuple[int, ...]:
        """The queue's lanes, as the broker numbers them."""
        return self._producer.lanes

    def open(self) -> Self:
        """Request the queue: it is made if it is not there."""
        self._background.call(self._producer.open())
        return self

    def close(self) -> None:
        """Send no more, and hear no more of dead letters."""
        self._background.call(self._producer.close())

    def on_dead(self, callback: OnDead) -> None:
        """Call a function, in the client's thread, with each dead letter of this queue."""
        self._background.call(self._on_dead(callback))

    def __enter__(self) -> Self:
        return self.open()

    async def _on_dead(self, callback: OnDead) -> None:
        self._producer.on_dead(callback)


class _Numbered(_Outlet[N]):
    """A producer whose retries the broker knows."""

    @property
    def name(self) -> str:
        """What the broker knows its retries by."""
        return self._producer.name

    @property
    def seq(self) -> int:
        """The number of the next message."""
        return self._producer.seq


class Producer(_Numbered[asynchronous.Producer]):
    """Sends messages that are stored when `send` returns; see `chappe.client.Producer`."""

    def send(
        self,
        data: Any,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        tags: list[str] | None = None,
        num: int | None = None,
        consumers: list[str] | None = None,
        type: int | None = None,
    ) -> Receipt:
        """Send a message and return when it is stored."""
        sending = self._producer.send(
            data, key=key, headers=headers, tags=tags, num=num, consumers=consumers, type=type
        )
        return self._background.call(sending)


class DelayedProducer(_Numbered[asynchronous.DelayedProducer]):
    """Sends messages that the broker holds for a while; see `chappe.client.DelayedProducer`."""

    def send(
        self,
        data: Any,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        tags: list[str] | None = None,
        num: int | None = None,
        consumers: list[str] | None = None,
        type: int | None = None,
        delay_ms: int | None = None,
    ) -> Receipt:
        """Send a message and return when it is stored; it is delivered `delay_ms` after that."""
        sending = self._producer.send(
            data,
            key=key,
            headers=headers,
            tags=tags,
            num=num,
            consumers=consumers,
            type=type,
            delay_ms=delay_ms,
        )
        return self._background.call(sending)

    def cancel(self, receipt: Receipt) -> bool:
        """Take a message back that is not due yet; False if it was, or was taken back before."""
        return self._background.call(self._producer.cancel(receipt))


class OneWayProducer(_Outlet[asynchronous.OneWayProducer]):
    """Sends messages without an answer; see `chappe.client.OneWayProducer`."""

    def send(
        self,
        data: Any,
        *,
        key: str | None = None,
        headers: dict[str, str] | None = None,
        tags: list[str] | None = None,
        num: int | None = None,
        consumers: list[str] | None = None,
    ) -> None:
        """Send a message; waits only while more is to be written than may."""
        sending = self._producer.send(
            data, key=key, headers=headers, tags=tags, num=num, consumers=consumers
        )
        self._background.call(sending)
