"""A delayed producer: the broker holds its messages for a while (Q2)."""

from __future__ import annotations

from typing import Any

from chappe.client.outlet import Post
from chappe.client.producer import RETRIES, Producer, Receipt
from chappe.errors import BadRequest

DELAY_MS = 2_000


class DelayedProducer(Producer):
    """Sends messages that are stored at once, and delivered when they are due.

    async with client.delayed_producer("queue:reminders") as producer:
        receipt = await producer.send("call back", delay_ms=60_000)
        await producer.cancel(receipt)
    """

    def __init__(
        self,
        post: Post,
        queue: str,
        *,
        delay_ms: int = DELAY_MS,
        lanes: int | None = None,
        name: str | None = None,
        retries: int = RETRIES,
        window: int = 1,
        seq: int | None = None,
    ) -> None:
        super().__init__(
            post, queue, lanes=lanes, name=name, retries=retries, window=window, seq=seq
        )
        self._delay_ms = _check(delay_ms)

    async def send(
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
        labels = {
            "key": key,
            "headers": headers,
            "tags": tags,
            "num": num,
            "consumers": consumers,
            "type": type,
            "delay_ms": self._delay_ms if delay_ms is None else _check(delay_ms),
        }
        return await self._store(data, labels)

    async def cancel(self, receipt: Receipt) -> bool:
        """Take a message back that is not due yet; False if it was, or was taken back before."""
        return await self._post.cancel(receipt.message, self.queue)


def _check(delay_ms: int) -> int:
    if delay_ms < 0:
        raise BadRequest("delay_ms: must be 0 or more")
    return delay_ms
