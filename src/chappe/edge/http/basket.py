"""Baskets: mailboxes of consumers that fetch from queues by request."""

from __future__ import annotations

import asyncio

import msgspec

from chappe.edge.http.depth import deep
from chappe.edge.http.mailbox import Mailbox
from chappe.hub.hub import Hub


class _Tag(msgspec.Struct):
    op: str


_read_tags = deep(msgspec.json.Decoder(list[_Tag]).decode)


class Basket(Mailbox):
    """Holds what a consumer fetched; the queue has it still until it is acknowledged.

    It lives on between requests, since a queue takes a consumer that leaves for a dead one.
    """

    __slots__ = ("busy",)

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self.busy = False

    async def gather(self, n: int, wait_s: float) -> bytes:
        """Give all that came, once it holds `n` messages; fewer when the time is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        items = b""
        while n > _messages_in(items) and (left := until - loop.time()) > 0:
            data = await self.take(left)
            if data is None:
                break
            items += data
        return items


def _messages_in(items: bytes) -> int:
    return sum(tag.op == "message" for tag in _read_tags(b"[%b]" % items.removesuffix(b",")))
