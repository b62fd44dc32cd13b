"""A client and a scripted hub, for what is said of queues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from chappe.client import Client, ClientOptions, connect
from chappe.wire import ops
from chappe.wire.ops import PACKED, Op

from .conftest import QUICK
from .peer import Port, peering

T = TypeVar("T")
QUEUE = "queue:orders"


@contextlib.asynccontextmanager
async def working(on_notice: Any = None, **bounds: Any) -> AsyncIterator[tuple[Port, Client]]:
    """A hub that does what it is told, and a client of it."""
    options = ClientOptions(**{**QUICK, **bounds})
    async with (
        peering() as port,
        connect(port.url, as_="user:a", options=options, on_notice=on_notice) as client,
    ):
        yield port, client


async def asked(
    port: Port, asking: Coroutine[Any, Any, T], kind: type[Op], **reply: Any
) -> tuple[Any, T]:
    """Ask something, let the hub reply to it; what it was asked, and what came of it."""
    task = asyncio.create_task(asking)
    op = await port.peer.next(kind)
    port.peer.answer(op, **reply)
    return op, await task


def order(n: int, **fields: Any) -> Op:
    """A message of the queue as the hub delivers it."""
    return PACKED[ops.Delivery](message=n, from_="user:b", to=QUEUE, ts=1, data=b"%d" % n, **fields)
