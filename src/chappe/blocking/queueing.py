"""What a client does with queues, without `await`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

from chappe import client as asynchronous
from chappe.blocking.background import Background
from chappe.blocking.consumer import Consumer
from chappe.blocking.item import Item
from chappe.blocking.items import Items
from chappe.blocking.producer import DelayedProducer, OneWayProducer, Producer
from chappe.client.delayed import DELAY_MS
from chappe.client.letter import PAGE, Letter
from chappe.client.producer import RETRIES

T = TypeVar("T")


class Queueing:
    """The part of a client that is about queues; see `chappe.client.Client`."""

    _background: Background
    _client: asynchronous.Client

    def create(self, address: str, **options: Any) -> tuple[int, ...]:
        """Make a topic or a queue with options of its own; for administrators."""
        return self._background.call(self._client.create(address, **options))

    def delete(self, address: str) -> None:
        """Remove a topic's options, or a queue with all it holds; for administrators."""
        self._background.call(self._client.delete(address))

    def fetch(
        self,
        queue: str,
        n: int = 1,
        *,
        wait_s: float = 0.0,
        group: str | None = None,
        tags: list[str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> list[Item]:
        """Take up to `n` items from a queue: those there are, or else the first that come."""
        fetching = self._client.fetch(
            queue, n, wait_s=wait_s, group=group, tags=tags, headers=headers
        )
        return [Item(self._background, item) for item in self._background.call(fetching)]

    def consume(
        self,
        queue: str,
        *,
        credit: int = 10,
        group: str | None = None,
        tags: list[str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Items:
        """Let a queue push items, up to `credit` unacknowledged ones; iterate over it."""
        items = self._made(
            lambda: self._client.consume(
                queue, credit=credit, group=group, tags=tags, headers=headers
            )
        )
        return Items(self._background, items)

    def consumer(
        self,
        queue: str,
        *,
        name: str | None = None,
        group: str | None = None,
        tags: list[str] | None = None,
        headers: dict[str, str] | None = None,
        new: bool = False,
        credit: int = 10,
    ) -> Consumer:
        """A consumer that may have a name, and is pushed items or pulls them."""
        consumer = self._made(
            lambda: self._client.consumer(
                queue,
                name=name,
                group=group,
                tags=tags,
                headers=headers,
                new=new,
                credit=credit,
            )
        )
        return Consumer(self._background, consumer)

    def producer(
        self,
        queue: str,
        *,
        lanes: int | None = None,
        name: str | None = None,
        retries: int = RETRIES,
        window: int = 1,
        seq: int | None = None,
    ) -> Producer:
        """A producer whose messages are stored when `send` returns.

        Threads that use one producer take turns; with a `window` so many send at a time.
        """
        producer = self._made(
            lambda: self._client.producer(
                queue, lanes=lanes, name=name, retries=retries, window=window, seq=seq
            )
        )
        return Producer(self._background, producer)

    def delayed_producer(
        self,
        queue: str,
        *,
        delay_ms: int = DELAY_MS,
        lanes: int | None = None,
        name: str | None = None,
        retries: int = RETRIES,
        window: int = 1,
        seq: int | None = None,
    ) -> DelayedProducer:
        """A producer whose messages are held by the broker for a while."""
        producer = self._made(
            lambda: self._client.delayed_producer(
                queue,
                delay_ms=delay_ms,
                lanes=lanes,
                name=name,
                retries=retries,
                window=window,
                seq=seq,
            )
        )
        return DelayedProducer(self._background, producer)

    def one_way_producer(self, queue: str, *, lanes: int | None = None) -> OneWayProducer:
        """A producer that does not wait for answers."""
        producer = self._made(lambda: self._client.one_way_producer(queue, lanes=lanes))
        return OneWayProducer(self._background, producer)

    def cancel(self, message: str | int, *, to: str = "") -> bool:
        """Take back a delayed message that is not due yet; False if it is too late."""
        return self._background.call(self._client.cancel(message, to=to))

    def inspect(self, queue: str) -> dict[str, Any]:
        """A queue's figures; for administrators."""
        return self._background.call(self._client.inspect(queue))

    def browse(
        self,
        queue: str,
        *,
        lane: int | None = None,
        after: int | None = None,
        reverse: bool = False,
        dead: bool = False,
        delayed: bool = False,
        page: int = PAGE,
    ) -> Iterator[Letter]:
        """Look at a queue's messages without taking them; for administrators."""
        letters = self._client.browse(
            queue, lane=lane, after=after, reverse=reverse, dead=dead, delayed=delayed, page=page
        )
        while (letter := self._background.call(_next(letters))) is not None:
            yield letter

    def dead_letters(self, queue: str, *, page: int = PAGE) -> Iterator[Letter]:
        """Look at a queue's dead letters, the oldest first; for administrators."""
        return self.browse(queue, dead=True, page=page)

    def replay(self, queue: str, messages: list[str] | None = None) -> int:
        """Send dead letters anew, these or all; returns how many. For administrators."""
        return self._background.call(self._client.replay(queue, messages))

    def purge(self, queue: str, messages: list[str] | None = None) -> int:
        """Remove dead letters, these or all; returns how many. For administrators."""
        return self._background.call(self._client.purge(queue, messages))

    def promote(self, broker: str, *, force: bool = False) -> None:
        """Make the node that this client is connected to the master of a broker's queues."""
        self._background.call(self._client.promote(broker, force=force))

    def _made(self, make: Callable[[], T]) -> T:
        """Make something in the loop it belongs to."""

        async def made() -> T:
            return make()

        return self._background.call(made())


async def _next(letters: AsyncIterator[Letter]) -> Letter | None:
    return await anext(letters, None)
