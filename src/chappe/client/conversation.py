"""What a client and a hub say to each other, without I/O.

A conversation outlives its connections. Bodies come in and events go out; ops are queued and taken
by whoever has a link. Its phases:

    OFFLINE --greet--> GREETING --hello answered--> RESTORING --all wishes answered--> READY
       ^                  |                            |                              |    |
       +------------------+-----------lose-------------+------------------------------+    |
       ^                                                                                 leave
       +-----------------------------------lose-------------- LEAVING <--------------------+

    end, from anywhere --> OVER

What the client itself has to say (hello, subscriptions, beats, answers to a service's requests)
goes out in every phase with a connection; what its user asks for goes out in READY only, and waits
in order in the others. A request that was handed to a link when the link was lost may have been
carried out: it fails, and is never sent again. One that was not waits for the next link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chappe.client import notice
from chappe.client.event import Closing, Deferred, Event, Phase, Refused
from chappe.client.form import Form, read_message
from chappe.client.lent import Lent, read_lent
from chappe.client.options import ClientOptions
from chappe.client.outgoing import Outgoing
from chappe.client.request import error_of
from chappe.client.standing import Standing, Tenant
from chappe.client.subscription import Subscriptions
from chappe.errors import ConnectionClosed, Overload, RemoteProtocolError
from chappe.message import Message
from chappe.wire import ops
from chappe.wire.ops import PACKED, Op, Reply


class Conversation:
    """Who one is, what one holds on to, and the order of what is said."""

    def __init__(self, form: Form, options: ClientOptions) -> None:
        self._form = form
        self._options = options
        self._own: list[bytes] = []
        # What this client asked on its own behalf: request id -> what to do with the reply.
        self._greeting: dict[int, Callable[[Reply], Event | None]] = {}
        self.outgoing = Outgoing(form, options)
        self.subscriptions = Subscriptions()
        # Who gets what comes from a queue instead of the inbox; who may want what a queue itself
        # says, and tells whether it does; and who gets what is asked of a service.
        self.takers: dict[str, Callable[[Lent], None]] = {}
        self.hearers: dict[str, Callable[[Message], bool]] = {}
        self.providers: dict[str, Callable[[ops.Request], None]] = {}
        self.tenants: list[Tenant] = []
        self.phase = Phase.OFFLINE
        # Grows with every connection: what was said on an old one is not answered on a new one.
        self.generation = 0
        self.address = ""
        self.session = ""
        self.heartbeat_s = options.heartbeat_s
        self._handlers: dict[type, Callable[[Any], Event | None]] = {
            ops.Delivery: read_message,
            ops.Reply: self._on_reply,
            ops.Ping: self._on_ping,
            ops.Pong: lambda op: None,
            ops.Request: self._on_request,
            ops.Position: self.subscriptions.renew,
            ops.Dropped: lambda op: notice.Dropped(op.n),
            ops.Reconnect: lambda op: notice.Draining(op.reason, max(op.after_ms, 0) / 1000),
            ops.Closed: lambda op: Closing(op.code, op.reason),
            ops.Error: lambda op: notice.Unreadable(op.reason),
        }
        self._handlers |= {PACKED[op]: handler for op, handler in self._handlers.items()}

    @property
    def awaiting(self) -> bool:
        """Whether any reply is awaited."""
        return bool(self._greeting or len(self.outgoing))

    @property
    def busy(self) -> bool:
        """Whether something is under way that would suffer if the link went now."""
        return self.outgoing.in_flight > 0 or any(tenant.busy for tenant in self.tenants)

    @property
    def has_more(self) -> bool:
        """Whether there is anything to write now."""
        return bool(self._own or (self.phase is Phase.READY and self.outgoing.waiting))

    def greet(self, as_: str, token: str | None, app: str | None) -> None:
        """Begin on a new link: say hello."""
        assert self.phase is Phase.OFFLINE, self.phase
        self.phase = Phase.GREETING
        self.generation += 1
        hello = ops.Hello(id=self._next_id(self._on_hello), as_=as_, token=token, app=app)
        self._own.append(self._form.encode(hello))

    def receive(self, body: bytes) -> list[Event]:
        """Take in what the hub said.

        What cannot be read becomes a notice: a newer hub may say more than this side knows.
        """
        events: list[Event] = []
        handlers, add = self._handlers, events.append
        takers, hearers = self.takers, self.hearers
        try:
            for op in self._form.decode(body):
                handler = handlers.get(op.__class__)
                if handler is read_message:
                    message = read_message(op)
                    # Sorted here, and not by whoever gets the events: replies change what is to be
                    # done with the messages behind them.
                    sorted_ = message.offset or takers or hearers
                    if not sorted_ or not self._sort(message, op):
                        add(message)
                elif handler is not None and (event := handler(op)) is not None:
                    add(event)
        except RemoteProtocolError as error:
            add(notice.Unreadable(error.reason))
        return events

    def beat(self, *, answer: bool) -> None:
        """Queue a sign of life, one that asks for the hub's own or not."""
        self._own.append(self._form.encode(ops.Ping() if answer else ops.Pong()))

    def answer(self, body: bytes) -> None:
        """Queue what belongs to this connection and to no other, if it is still there."""
        if self.phase in (Phase.RESTORING, Phase.READY, Phase.LEAVING):
            self._own.append(body)

    def wish(self, wish: Standing) -> None:
        """Say on this connection what was wished before."""
        op = wish.ask()
        op.id = self._next_id(lambda reply: self._restored(wish, reply))
        self._own.append(self._form.encode(op))

    def take(self, bytes_max: int) -> Sequence[bytes]:
        """What to write now, up to about so many bytes; requests among it count as written."""
        bodies, self._own = self._own, []
        if self.phase is Phase.READY:
            self.outgoing.take(bodies, bytes_max)
        return self._form.join(bodies)

    def leave(self) -> None:
        """Ask for nothing more on this link."""
        if self.phase is Phase.READY:
            self.phase = Phase.LEAVING
            for tenant in self.tenants:
                tenant.leave()

    def lose(self) -> None:
        """The link is gone: what was written and not answered has an unknown outcome."""
        if self.phase is Phase.OVER:
            return
        self.phase = Phase.OFFLINE
        self._own.clear()
        self._greeting.clear()
        for tenant in self.tenants:
            tenant.lose()
        self.outgoing.lose()

    def end(self, reason: ConnectionClosed) -> None:
        """It is over: fail everything that waits."""
        if self.phase is Phase.OVER:
            return
        self.lose()
        self.phase = Phase.OVER
        self.outgoing.end(reason)
        for tenant in self.tenants:
            tenant.end(reason)

    def _sort(self, message: Message, op: Any) -> bool:
        """Whether a message is not for the inbox: it came before, or somebody else takes it."""
        if message.offset and not self.subscriptions.admit(message):
            return True
        take = self.takers.get(message.to)
        if take is None:
            hear = self.hearers.get(message.sender)
            return hear is not None and hear(message)
        take(read_lent(op))
        return True

    def _next_id(self, answered: Callable[[Reply], Event | None]) -> int:
        number = self.outgoing.next_id()
        self._greeting[number] = answered
        return number

    def _on_reply(self, op: Reply) -> Event | None:
        request = self.outgoing.answered(op)
        if request is None:
            answered = self._greeting.pop(op.id, None)
            return answered(op) if answered is not None else None
        if not op.ok:
            request.settle(error_of(op))
            return None
        event: Event | None = request.answered(op) if request.answered is not None else None
        request.settle(op)
        return event

    def _on_hello(self, op: Reply) -> Event | None:
        if not op.ok:
            return Refused(error_of(op))
        self.session = op.session or ""
        self.address = op.as_ or self.address
        self.heartbeat_s = max(op.heartbeat_s or self._options.heartbeat_s, 0.01)
        self.phase = Phase.RESTORING
        for wish in (*self.subscriptions, *(w for t in self.tenants for w in t.wishes())):
            self.wish(wish)
        self._maybe_ready()
        return None

    def _restored(self, wish: Standing, op: Reply) -> Event | None:
        self._maybe_ready()
        if op.ok:
            return wish.taken(op)
        error = error_of(op)
        return Deferred(wish) if isinstance(error, Overload) else wish.refused(error)

    def _maybe_ready(self) -> None:
        if self.phase is Phase.RESTORING and not self._greeting:
            self.phase = Phase.READY

    def _on_request(self, op: ops.Request) -> None:
        provide = self.providers.get(op.to)
        if provide is not None:
            provide(op)
        else:
            refusal = ops.Respond(request=op.request or "", error="unreachable")
            refusal.reason = "this client provides no such service"
            self.answer(self._form.encode(refusal))

    def _on_ping(self, op: Op) -> None:
        self._own.append(self._form.encode(ops.Pong()))
