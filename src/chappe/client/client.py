"""The client: sends, publishes, subscribes, and iterates over what comes."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from chappe.client.connection import Connection, OnNotice
from chappe.client.conversation import Conversation, Phase
from chappe.client.form import check_receivers, check_text, encode_data
from chappe.client.identity import Identity, Token
from chappe.client.link import Dial
from chappe.client.options import ClientOptions
from chappe.client.request import Request, Settle
from chappe.errors import ChappeError, ConnectionClosed
from chappe.message import Message
from chappe.wire.ops import (
    AddressedOp,
    Presence,
    Publish,
    Reply,
    Send,
    Subscribe,
    Unsubscribe,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random


class Published(NamedTuple):
    """What became of a published message: its id, and how many nodes took it."""

    message: str
    nodes: int


class Client:
    """One endpoint's connection to a hub, which comes back by itself when it is lost.

    Requests may be made at any time: while there is no connection they wait for the next one, up
    to the request timeout. Every request raises Unreachable, Forbidden, BadRequest or Overload as
    the hub answers; Overload too when a bound of this side is reached, or the answer does not come
    in time, with `outcome_unknown` if the request may have been carried out; ConnectionClosed when
    the client is over. Cancelling a request leaves nothing behind; if it was sent already, the hub
    may carry it out all the same.

    Not for several threads: see `chappe.blocking`.
    """

    def __init__(
        self,
        dial: Dial,
        *,
        rng: Random,
        as_: str = "",
        token: Token = None,
        app: str | None = None,
        options: ClientOptions | None = None,
        on_notice: OnNotice | None = None,
    ) -> None:
        self._options = options or ClientOptions()
        self._loop = asyncio.get_running_loop()
        self._conversation = Conversation(dial.form, self._options)
        identity = Identity(as_, token, app)
        self._connection = Connection(
            dial, self._conversation, identity, self._options, rng, on_notice
        )
        self._closed = False
        self.address = as_

    async def open(self) -> Self:
        """Connect and say hello; afterwards the client comes back by itself.

        Raises ConnectionClosed when the hub cannot be reached, and the RequestError that it answers
        to hello. Cancelling it leaves no connection behind.
        """
        await self._connection.open()
        return self

    async def close(self) -> None:
        """Write what is queued, say goodbye and end; requests in flight fail."""
        self._closed = True
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def session(self) -> str:
        """The id of the current session, or of the last one."""
        return self._conversation.session

    @property
    def connected(self) -> bool:
        """Whether requests go out at once."""
        return self._conversation.phase is Phase.READY

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """The topics that are subscribed, and will be again after a reconnect."""
        return tuple(self._conversation.subscriptions)

    @property
    def dropped(self) -> int:
        """How many topic messages the hub dropped because this client read too slowly."""
        return self._connection.dropped

    @property
    def reconnects(self) -> int:
        """How often the client came back."""
        return self._connection.reconnects

    @property
    def pending(self) -> int:
        """How many requests await their answers."""
        return len(self._conversation)

    @property
    def waiting(self) -> int:
        """How many messages came and were not taken yet."""
        return len(self._connection.inbox)

    async def send(self, to: str | Sequence[str], data: Any) -> str:
        """Send to one endpoint, or to each of a list; return the message's id.

        `data` is any JSON value, or bytes. With a list, the error of the first receiver that did
        not take it is raised; its `verdicts` tell what became of each.
        """
        reply = await self._ask_payload(Send, to, data)
        return str(reply.message)

    async def publish(self, to: str, data: Any) -> Published:
        """Publish to a topic; return the message's id and how many nodes took it."""
        reply = await self._ask_payload(Publish, to, data)
        return Published(str(reply.message), reply.nodes or 0)

    def post(self, to: str | Sequence[str], data: Any) -> None:
        """Send, or publish if `to` is a topic or a room, without an answer.

        All that is posted in one turn of the loop is written at once. Whether it arrived is not
        known; raises Overload when more waits to be sent than may (see `drained`).
        """
        payload, binary = encode_data(data)
        receivers = check_receivers(to)
        public = isinstance(receivers, str) and receivers.startswith(("topic:", "room:"))
        self._conversation.say_payload(Publish if public else Send, receivers, payload, binary)
        self._connection.flush_soon()

    async def drained(self) -> None:
        """Wait, if much waits to be sent, until there is room again; for loops that post."""
        await self._connection.drained()

    async def subscribe(self, topic: str) -> None:
        """Receive what is published to a topic, also after a reconnect."""
        await self._ask(Subscribe(to=check_text(topic)))

    async def unsubscribe(self, topic: str) -> None:
        """Receive no more of a topic."""
        # Whatever becomes of the request, it is not wanted after a reconnect.
        self._conversation.subscriptions.pop(topic, None)
        await self._ask(Unsubscribe(to=check_text(topic)))

    async def presence(self, address: str) -> bool:
        """Tell whether an endpoint is online."""
        reply = await self._ask(Presence(to=check_text(address)))
        return bool(reply.online)

    async def receive(self) -> Message:
        """Take the next message, waiting for it; raises ConnectionClosed when there are no more.

        Cancelling it loses no message.
        """
        return await self._connection.inbox.get()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next message; the end after `close`, ConnectionClosed when the hub ended it."""
        try:
            return await self._connection.inbox.get()
        except ConnectionClosed:
            if self._closed:
                raise StopAsyncIteration from None
            raise

    async def _ask_payload(
        self, kind: type[Send] | type[Publish], to: str | Sequence[str], data: Any
    ) -> Reply:
        payload, binary = encode_data(data)
        receivers = check_receivers(to)
        ask = self._conversation.ask_payload
        return await self._answer(
            lambda due, settle: ask(kind, receivers, payload, binary, due, settle)
        )

    async def _ask(self, op: AddressedOp) -> Reply:
        return await self._answer(functools.partial(self._conversation.ask, op))

    async def _answer(self, ask: Callable[[float, Settle], Request]) -> Reply:
        """Make a request and wait for its reply."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        due = self._loop.time() + self._options.request_timeout_s
        request = ask(due, functools.partial(_settle, future))
        connection = self._connection
        connection.flush_soon()
        connection.watch_deadline(due)
        if connection.inbox.crowded:
            connection.regulate()
        try:
            return await future
        except asyncio.CancelledError:
            self._conversation.abandon(request)
            raise


def _settle(future: asyncio.Future[Reply], outcome: Reply | ChappeError) -> None:
    if future.done():
        return
    if isinstance(outcome, ChappeError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
