"""The client: sends, publishes, subscribes, and iterates over what comes."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from chappe.client.asking import Asking
from chappe.client.connection import Connection, OnNotice
from chappe.client.conversation import Conversation
from chappe.client.deadletter import Obituaries
from chappe.client.event import Phase
from chappe.client.form import check_receivers, check_text, encode_data
from chappe.client.identity import Identity, Token
from chappe.client.letter import Inspection
from chappe.client.link import Dial
from chappe.client.membership import Memberships
from chappe.client.options import ClientOptions
from chappe.client.outlet import Post
from chappe.client.position import Position
from chappe.client.provider import Handler
from chappe.client.queueing import Queueing
from chappe.client.rooming import Rooming
from chappe.client.service import Services
from chappe.client.subscription import Subscription
from chappe.client.workqueue import Workqueues
from chappe.errors import BadRequest, ConnectionClosed
from chappe.message import Message
from chappe.wire.ops import Avatar, Presence, Publish, Send, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from random import Random


class Published(NamedTuple):
    """What became of a published message: its id, and how many nodes took it.

    Of one to a room nobody counts them: 0.
    """

    message: str
    nodes: int


class Client(Queueing, Rooming):
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
        options = options or ClientOptions()
        self._conversation = Conversation(dial.form, options)
        self._conversation.address = as_
        self._connection = Connection(
            dial, self._conversation, Identity(as_, token, app), options, rng, on_notice
        )
        # Kept beside what they are parts of: posting is on the path of every message.
        self._form = dial.form
        self._outgoing = self._conversation.outgoing
        self._writer = self._connection.writer
        self._asking = Asking(self._conversation, self._connection, options)
        self._queues = Workqueues(self._conversation, self._connection, self._asking, dial.form)
        self._inspection = Inspection(self._asking, dial.form)
        self._post = Post(
            self._asking,
            self._outgoing,
            self._writer,
            Obituaries(self._conversation),
            dial.form,
            rng,
            options.requests_max,
        )
        self._memberships = Memberships()
        self._conversation.tenants.append(self._memberships)
        self._services = Services(
            self._conversation, self._connection, self._asking, dial.form, options
        )

    async def open(self) -> Self:
        """Connect and say hello; afterwards the client comes back by itself.

        Raises ConnectionClosed when the hub cannot be reached, and the RequestError that it answers
        to hello. Cancelling it leaves no connection behind.
        """
        await self._connection.open()
        return self

    async def close(self) -> None:
        """Write what is queued, say goodbye and end; requests in flight fail.

        A service's handlers have a moment to finish what they were asked.
        """
        try:
            await self._services.close()
        finally:
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
    def address(self) -> str:
        """Who the hub takes this client for."""
        return self._conversation.address

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
        return tuple(self._conversation.subscriptions.wanted)

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
        return len(self._outgoing)

    @property
    def waiting(self) -> int:
        """How many messages came and were not taken yet."""
        return len(self._connection.inbox)

    async def send(self, to: str | Sequence[str], data: Any) -> str:
        """Send to one endpoint, or to each of a list; return the message's id.

        `data` is any JSON value, or bytes. With a list, the error of the first receiver that did
        not take it is raised; its `verdicts` tell what became of each.
        """
        reply = await self._asking.ask_payload(Send, to, data)
        return str(reply.message)

    async def publish(self, to: str, data: Any, *, reliable: bool = False) -> Published:
        """Publish to a topic or a room; return the message's id and how many nodes took it.

        What is reliable goes to its room by several ways at once, and arrives once.
        """
        if reliable:
            fields = {"to": check_text(to), "reliable": True}
            reply = await self._asking.ask_carrying(Publish, fields, *encode_data(data))
        else:
            reply = await self._asking.ask_payload(Publish, to, data)
        return Published(str(reply.message), reply.nodes or 0)

    def post(self, to: str | Sequence[str], data: Any) -> None:
        """Send, or publish if `to` is a topic or a room, without an answer.

        All that is posted in one turn of the loop is written at once. Whether it arrived is not
        known; raises Overload when more waits to be sent than may (see `drained`).
        """
        payload, binary = encode_data(data)
        receivers = check_receivers(to)
        public = isinstance(receivers, str) and receivers.startswith(("topic:", "room:", "key:"))
        self._outgoing.say_payload(Publish if public else Send, receivers, payload, binary)
        self._writer.flush_soon()

    async def drained(self) -> None:
        """Wait, if much waits to be sent, until there is room again; for loops that post."""
        await self._writer.drained()

    async def subscribe(
        self,
        topic: str,
        *,
        as_: str | None = None,
        recover: bool = True,
        since: Position | tuple[str, int] | None = None,
    ) -> bool:
        """Receive what is published to a topic, as oneself or as an avatar of one's own.

        After a reconnect it is subscribed again, and what a topic with a history published
        meanwhile comes first, unless `recover` is False. `since`, a position that was kept from
        before, does the same now. Each message comes once. False when what was published after
        `since` is not all there any more; the notice `Missed` says so as well.
        """
        subscriptions = self._conversation.subscriptions
        subscription = Subscription(subscriptions, check_text(topic), as_, recover)
        if since is None:
            op = Subscribe(to=topic, as_=as_)
        elif topic in subscriptions.wanted:
            raise BadRequest(f"since: this client is subscribed to {topic} already")
        else:
            subscriptions.begin(topic, Position(*since))
            op = subscription.ask(recover=True)
        try:
            reply = await self._asking.ask(op, subscription.begin)
        finally:
            subscriptions.sweep(topic)
        return since is None or bool(reply.recovered)

    async def unsubscribe(self, topic: str, *, as_: str | None = None) -> None:
        """Receive no more of a topic, as oneself or as an avatar."""
        subscriptions = self._conversation.subscriptions
        op = Unsubscribe(to=check_text(topic), as_=as_)
        # Whatever becomes of the request, it is not wanted after a reconnect.
        subscriptions.remove(topic, as_)
        try:
            await self._asking.ask(op, lambda reply: subscriptions.remove(topic, as_))
        finally:
            subscriptions.sweep(topic)

    def position(self, topic: str) -> Position | None:
        """The place of the last message taken from a topic, to be kept for `since`.

        None when the topic keeps no history, or is not subscribed.
        """
        track = self._conversation.subscriptions.tracks.get(topic)
        return None if track is None else track.taken

    async def presence(self, address: str) -> bool:
        """Tell whether an endpoint is online."""
        reply = await self._asking.ask(Presence(to=check_text(address)))
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
            if self._connection.closing:
                raise StopAsyncIteration from None
            raise

    async def add_avatar(self, avatar: str, user: str) -> None:
        """Give a user another address; for avatar managers."""
        await self._asking.ask(Avatar(do="add", avatar=check_text(avatar), user=check_text(user)))

    async def remove_avatar(self, avatar: str) -> None:
        """Take an address from its user; for avatar managers and for the user."""
        await self._asking.ask(Avatar(do="remove", avatar=check_text(avatar)))

    async def provide(self, service: str, handler: Handler, *, concurrency: int = 16) -> None:
        """Answer a service's requests with a function, also after a reconnect.

        The handler gets the data of a request and returns that of the response; it may be async,
        and at most `concurrency` run at a time. A plain function runs in the loop and must not
        block it. A RequestError that it raises is raised where the request was made; anything else
        is told to the loop's exception handler, and the requester gets Unreachable.
        """
        await self._services.provide(service, handler, concurrency)

    async def unprovide(self, service: str) -> None:
        """Answer no more of a service's requests than were handed over already."""
        await self._services.unprovide(service)

    async def request(
        self, service: str, data: Any, *, timeout_s: float | None = None, idempotent: bool = False
    ) -> Any:
        """Ask a service and return the data of its response.

        One that is idempotent may go to a second provider when the first one dies; any other raises
        Unreachable then, with `outcome_unknown`.
        """
        return await self._services.request(service, data, timeout_s, idempotent)
