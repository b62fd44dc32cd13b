"""Asking: from a request to its reply, with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from chappe.client.connection import Connection
from chappe.client.conversation import Conversation
from chappe.client.form import CarryKind, PayloadKind, check_receivers, encode_data
from chappe.client.options import ClientOptions
from chappe.client.request import Answered, Request, Settle
from chappe.errors import ChappeError
from chappe.wire.ops import ClientOp, Reply

Make = Callable[[float | None, Settle], Request]


class Asking:
    """Makes the requests of one client.

    Cancelling one leaves nothing behind; if it was sent already, the hub may carry it out all the
    same.
    """

    def __init__(
        self, conversation: Conversation, connection: Connection, options: ClientOptions
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._outgoing = conversation.outgoing
        self._connection = connection
        self.timeout_s = options.request_timeout_s

    async def ask(self, op: ClientOp, answered: Answered | None = None) -> Reply:
        """Ask with an op; `answered` hears of a good reply before what comes behind it."""
        ask = self._outgoing.ask
        return await self._await(*self.begin(lambda due, settle: ask(op, due, settle, answered)))

    async def ask_payload(self, kind: PayloadKind, to: str | Sequence[str], data: Any) -> Reply:
        """Send or publish."""
        payload, binary = encode_data(data)
        receivers = check_receivers(to)
        ask = self._outgoing.ask_payload
        future, request = self.begin(
            lambda due, settle: ask(kind, receivers, payload, binary, due, settle)
        )
        return await self._await(future, request)

    async def ask_carrying(
        self,
        kind: CarryKind,
        fields: dict[str, Any],
        payload: bytes,
        binary: bool,
        timeout_s: float | None = None,
    ) -> Reply:
        """Ask with any op that carries a payload, for so long."""
        ask = self._outgoing.ask_carrying
        future, request = self.begin(
            lambda due, settle: ask(kind, fields, payload, binary, due, settle), timeout_s
        )
        return await self._await(future, request)

    def begin_op(self, op: ClientOp, answered: Answered, timeout_s: float) -> asyncio.Future[Reply]:
        """Ask with an op for so long, whether anybody waits for the reply or not."""
        ask = self._outgoing.ask
        future, _ = self.begin(lambda due, settle: ask(op, due, settle, answered), timeout_s)
        return future

    def begin(
        self, make: Make, timeout_s: float | None = None
    ) -> tuple[asyncio.Future[Reply], Request]:
        """Make a request; the future is its reply."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        settle = partial(_settle, future)
        connection = self._connection
        if timeout_s is None:
            due = self._loop.time() + self.timeout_s
            request = make(due, settle)
            connection.deadline.watch(due)
        else:
            request = make(None, settle)
            timer = self._loop.call_later(timeout_s, self._outgoing.time_out, request)
            future.add_done_callback(lambda _: timer.cancel())
        connection.writer.flush_soon()
        if connection.inbox.crowded:
            connection.regulate()
        return future, request

    async def _await(self, future: asyncio.Future[Reply], request: Request) -> Reply:
        try:
            return await future
        except asyncio.CancelledError:
            self._outgoing.abandon(request)
            raise


def _settle(future: asyncio.Future[Reply], outcome: Reply | ChappeError) -> None:
    if future.done():
        return
    if isinstance(outcome, ChappeError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
