"""What a client does with queues: makes them, sends to them, takes from them, looks into them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from chappe.client.consumer import Consumer
from chappe.client.delayed import DELAY_MS, DelayedProducer
from chappe.client.form import check_text
from chappe.client.item import Item
from chappe.client.items import Items
from chappe.client.letter import PAGE, Inspection, Letter
from chappe.client.oneway import OneWayProducer
from chappe.client.producer import RETRIES, Producer
from chappe.client.selection import select
from chappe.errors import BadRequest
from chappe.wire.ops import Create, Delete

if TYPE_CHECKING:
    from chappe.client.asking import Asking
    from chappe.client.conversation import Conversation
    from chappe.client.outlet import Post
    from chappe.client.workqueue import Workqueues


class Queueing:
    """The part of a client that is about queues."""

    _asking: Asking
    _conversation: Conversation
    _queues: Workqueues
    _post: Post
    _inspection: Inspection

    async def create(self, address: str, **options: Any) -> tuple[int, ...]:
        """Make a topic or a queue with options of its own; for administrators.

        Returns a queue's lanes, as the broker numbers them. Options of a queue: `volatile`,
        `lanes`, `ordered`, `depth_max`, `bytes_max`, `ack_timeout_s`, `attempts_max`, `retry_s`,
        `retry_max_s`, `consumers`, `await_s`, `push_interval_s`, `expire_s`; of a topic:
        `anonymous`, `history`, `history_s`.
        """
        for name in options:
            if name in ("id", "to") or name not in Create.__struct_fields__:
                raise BadRequest(f"{name}: not an option of a topic or a queue")
        try:
            op = msgspec.convert({"to": check_text(address), **options}, Create)
        except msgspec.ValidationError as error:
            raise BadRequest(f"create: {error}") from None
        return tuple((await self._asking.ask(op)).lanes or ())

    async def delete(self, address: str) -> None:
        """Remove a topic's options, or a queue with all it holds; for administrators."""
        await self._asking.ask(Delete(to=check_text(address)))

    async def fetch(
        self,
        queue: str,
        n: int = 1,
        *,
        wait_s: float = 0.0,
        group: str | None = None,
        tags: list[str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> list[Item]:
        """Take up to `n` items from a queue: those there are, or else the first that come.

        Empty when none came within `wait_s`. Cancelling it hands back what it would have brought.
        """
        selection = select(queue, group=group, tags=tags, headers=headers)
        return await self._queues.fetch(selection, n, wait_s)

    def consume(
        self,
        queue: str,
        *,
        credit: int = 10,
        group: str | None = None,
        tags: list[str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Items:
        """Let a queue push items, up to `credit` unacknowledged ones, also after a reconnect.

        Iterate over it, within `async with` to end it properly: see `Items`.
        """
        selection = select(queue, group=group, tags=tags, headers=headers)
        return Items(self._queues, self._conversation, self._asking, selection, credit)

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
        """A consumer that may have a name, and is pushed items or pulls them: see `Consumer`.

        A group that is new begins with all that the queue holds, or with `new`, what is sent from
        then on; it gets what has any of the tags and all of the headers.
        """
        return Consumer(
            self._queues,
            self._conversation,
            self._asking,
            select(queue, name=name, group=group, tags=tags, headers=headers),
            new=new,
            credit=credit,
        )

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
        """A producer whose messages are stored when `send` returns: see `Producer`."""
        return Producer(
            self._post, queue, lanes=lanes, name=name, retries=retries, window=window, seq=seq
        )

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
        """A producer whose messages are held by the broker for a while: see `DelayedProducer`."""
        return DelayedProducer(
            self._post,
            queue,
            delay_ms=delay_ms,
            lanes=lanes,
            name=name,
            retries=retries,
            window=window,
            seq=seq,
        )

    def one_way_producer(self, queue: str, *, lanes: int | None = None) -> OneWayProducer:
        """A producer that does not wait for answers: see `OneWayProducer`."""
        return OneWayProducer(self._post, queue, lanes)

    async def cancel(self, message: str | int, *, to: str = "") -> bool:
        """Take back a delayed message that is not due yet; without `to`, one that this session
        sent. False if it is too late."""
        return await self._post.cancel(str(message), to)

    async def inspect(self, queue: str) -> dict[str, Any]:
        """A queue's figures: depth, lanes, groups and their lag, options; for administrators."""
        return await self._inspection.figures(queue)

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
    ) -> AsyncIterator[Letter]:
        """Look at a queue's messages without taking them, the oldest first; for administrators.

        Lane by lane, or one of them, from a place in it on. With `reverse` the newest first; with
        `dead` or `delayed` those instead. `page` are read at a time.
        """
        return self._inspection.browse(
            queue, lane=lane, after=after, reverse=reverse, dead=dead, delayed=delayed, page=page
        )

    def dead_letters(self, queue: str, *, page: int = PAGE) -> AsyncIterator[Letter]:
        """Look at a queue's dead letters, the oldest first; for administrators."""
        return self.browse(queue, dead=True, page=page)

    async def replay(self, queue: str, messages: list[str] | None = None) -> int:
        """Send dead letters anew, these or all; returns how many. For administrators."""
        return await self._inspection.deal(queue, "replay", messages)

    async def purge(self, queue: str, messages: list[str] | None = None) -> int:
        """Remove dead letters, these or all; returns how many. For administrators."""
        return await self._inspection.deal(queue, "purge", messages)

    async def promote(self, broker: str, *, force: bool = False) -> None:
        """Make the node that this client is connected to the master of a broker's queues.

        With `force` also when it may lack what was acknowledged. For administrators.
        """
        await self._inspection.promote(broker, force)
