"""What a client and a hub say to each other, without I/O.

A conversation outlives its connections. Bodies come in and events go out; ops are queued and taken
by whoever has a link. Its phases:

    OFFLINE --greet--> GREETING --hello answered--> RESTORING --all topics answered--> READY
       ^                  |                            |                              |    |
       +------------------+-----------lose-------------+------------------------------+    |
       ^                                                                                 leave
       +-----------------------------------lose-------------- LEAVING <--------------------+

    end, from anywhere --> OVER

What the client itself has to say (hello, subscriptions, beats) goes out in every phase with a
connection; what its user asks for goes out in READY only, and waits in order in the others. A
request that was handed to a link when the link was lost may have been carried out: it fails, and is
never sent again. One that was not waits for the next link.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

import msgspec

from chappe.client import notice
from chappe.client.form import Form, PayloadKind, Receivers, read_message
from chappe.client.notice import Notice
from chappe.client.options import ClientOptions
from chappe.client.request import Request, Settle
from chappe.errors import (
    BadRequest,
    ConnectionClosed,
    Overload,
    RemoteProtocolError,
    RequestError,
    request_error,
)
from chappe.message import Message
from chappe.wire import ops
from chappe.wire.ops import PACKED, AddressedOp, Op, Reply, Subscribe, Unsubscribe


class Phase(Enum):
    """How far a conversation has come."""

    OFFLINE = auto()
    GREETING = auto()
    RESTORING = auto()
    READY = auto()
    LEAVING = auto()
    OVER = auto()


class Refused(msgspec.Struct, frozen=True):
    """The hub did not admit this client."""

    error: RequestError


class Closing(msgspec.Struct, frozen=True):
    """The hub said why it closes the connection."""

    code: int
    reason: str


Event = Message | Refused | Closing | Notice


class Conversation:
    """Requests and their replies, subscriptions, and the order of what is said."""

    def __init__(self, form: Form, options: ClientOptions) -> None:
        self._form = form
        self._options = options
        self._last_id = 0
        self._requests: dict[int, Request] = {}
        # By number, so that an abandoned request leaves no empty place behind.
        self._outgoing: OrderedDict[int, Request | bytes] = OrderedDict()
        self._own: list[bytes] = []
        # What this client asked on its own behalf: request id -> what to do with the reply.
        self._greeting: dict[int, Callable[[Reply], Event | None]] = {}
        self._reason: ConnectionClosed | None = None
        self.phase = Phase.OFFLINE
        self.subscriptions: dict[str, None] = {}
        self.outgoing_bytes = 0
        self.in_flight = 0
        self.session = ""
        self.heartbeat_s = options.heartbeat_s
        self._handlers: dict[type, Callable[[Any], Event | None]] = {
            ops.Delivery: read_message,
            ops.Reply: self._on_reply,
            ops.Ping: self._on_ping,
            ops.Pong: lambda op: None,
            ops.Dropped: lambda op: notice.Dropped(op.n),
            ops.Reconnect: lambda op: notice.Draining(op.reason, max(op.after_ms, 0) / 1000),
            ops.Closed: lambda op: Closing(op.code, op.reason),
            ops.Error: lambda op: notice.Unreadable(op.reason),
        }
        self._handlers |= {PACKED[op]: handler for op, handler in self._handlers.items()}

    @property
    def awaiting(self) -> bool:
        """Whether any reply is awaited."""
        return bool(self._requests or self._greeting)

    @property
    def has_more(self) -> bool:
        """Whether there is anything to write now."""
        return bool(self._own or (self._outgoing and self.phase is Phase.READY))

    def __len__(self) -> int:
        return len(self._requests)

    def greet(self, as_: str, token: str | None, app: str | None) -> None:
        """Begin on a new link: say hello."""
        assert self.phase is Phase.OFFLINE, self.phase
        self.phase = Phase.GREETING
        hello = ops.Hello(id=self._next_id(self._on_hello), as_=as_, token=token, app=app)
        self._own.append(self._form.encode(hello))

    def receive(self, body: bytes) -> list[Event]:
        """Take in what the hub said.

        What cannot be read becomes a notice: a newer hub may say more than this side knows.
        """
        events: list[Event] = []
        handlers = self._handlers
        try:
            for op in self._form.decode(body):
                handler = handlers.get(op.__class__)
                event = handler(op) if handler is not None else None
                if event is not None:
                    events.append(event)
        except RemoteProtocolError as error:
            events.append(notice.Unreadable(error.reason))
        return events

    def ask(self, op: AddressedOp, due: float, settle: Settle) -> Request:
        """Queue an op that awaits a reply until `due`; raises Overload, or BadRequest."""
        self._check_room()
        op.id = self._last_id + 1
        request = self._queue(self._form.encode(op), due, settle)
        if isinstance(op, Subscribe | Unsubscribe):
            request.topic = op.to
            request.wanted = isinstance(op, Subscribe)
        return request

    def ask_payload(
        self,
        kind: PayloadKind,
        to: Receivers,
        payload: bytes,
        binary: bool,
        due: float,
        settle: Settle,
    ) -> Request:
        """Queue a send or publish that awaits a reply; raises Overload, or BadRequest."""
        self._check_room()
        body = self._form.encode_payload(kind, self._last_id + 1, to, payload, binary)
        return self._queue(body, due, settle)

    def say_payload(self, kind: PayloadKind, to: Receivers, payload: bytes, binary: bool) -> None:
        """Queue a send or publish that gets no reply; raises Overload, or BadRequest."""
        if self._reason is not None:
            raise self._reason.again()
        body = self._form.encode_payload(kind, None, to, payload, binary)
        self._check_body(body)
        self._last_id += 1
        self._outgoing[self._last_id] = body
        self.outgoing_bytes += len(body)

    def beat(self, *, answer: bool) -> None:
        """Queue a sign of life, one that asks for the hub's own or not."""
        self._own.append(self._form.encode(ops.Ping() if answer else ops.Pong()))

    def take(self, bytes_max: int) -> Sequence[bytes]:
        """What to write now, up to about so many bytes; requests among it count as written."""
        bodies, self._own = self._own, []
        if self.phase is not Phase.READY or not self._outgoing:
            return self._form.join(bodies)
        outgoing, size = self._outgoing, 0
        while outgoing and size < bytes_max:
            _, item = outgoing.popitem(last=False)
            if isinstance(item, Request):
                item.written = True
                self.in_flight += 1
                item = item.body
            size += len(item)
            bodies.append(item)
        self.outgoing_bytes -= size
        return self._form.join(bodies)

    def abandon(self, request: Request) -> None:
        """Forget a request whose reply nobody awaits any longer; unwritten, it is not sent."""
        if self._requests.pop(request.id, None) is None:
            return
        self._release(request)

    def expire(self, now: float) -> float | None:
        """Fail the requests that were due; return when the next one is, or None."""
        while self._requests:
            request = next(iter(self._requests.values()))
            if request.due > now:
                return request.due
            self.abandon(request)
            what = "answer" if request.written else "connection"
            request.settle(Overload(f"no {what} in time", outcome_unknown=request.written))
        return None

    def leave(self) -> None:
        """Ask for nothing more on this link."""
        if self.phase is Phase.READY:
            self.phase = Phase.LEAVING

    def lose(self) -> None:
        """The link is gone: what was written and not answered has an unknown outcome."""
        if self.phase is Phase.OVER:
            return
        self.phase = Phase.OFFLINE
        self._own.clear()
        self._greeting.clear()
        for request in [r for r in self._requests.values() if r.written]:
            self.abandon(request)
            request.settle(Overload("the connection was lost", outcome_unknown=True))

    def end(self, reason: ConnectionClosed) -> None:
        """It is over: fail everything that waits."""
        if self.phase is Phase.OVER:
            return
        self.lose()
        self.phase = Phase.OVER
        self._reason = reason
        for request in list(self._requests.values()):
            self.abandon(request)
            request.settle(reason.again())
        self._outgoing.clear()
        self.outgoing_bytes = 0

    def _queue(self, body: bytes, due: float, settle: Settle) -> Request:
        self._check_body(body)
        self._last_id += 1
        request = Request(self._last_id, body, due, settle)
        self._requests[request.id] = request
        self._outgoing[request.id] = request
        self.outgoing_bytes += len(body)
        return request

    def _check_room(self) -> None:
        if self._reason is not None:
            raise self._reason.again()
        if len(self._requests) >= self._options.requests_max:
            raise Overload(f"{len(self._requests)} requests await their answers already")

    def _check_body(self, body: bytes) -> None:
        if len(body) > self._options.message_bytes_max:
            raise BadRequest(
                f"data: {len(body)} bytes, envelope included; "
                f"{self._options.message_bytes_max} are allowed"
            )
        if self.outgoing_bytes + len(body) > self._options.outgoing_bytes_max:
            raise Overload(f"{self.outgoing_bytes} bytes wait to be sent already")

    def _release(self, request: Request) -> None:
        if request.written:
            self.in_flight -= 1
        else:
            del self._outgoing[request.id]
            self.outgoing_bytes -= len(request.body)

    def _next_id(self, answered: Callable[[Reply], Event | None]) -> int:
        self._last_id += 1
        self._greeting[self._last_id] = answered
        return self._last_id

    def _on_reply(self, op: Reply) -> Event | None:
        request = self._requests.pop(op.id, None)
        if request is None:
            answered = self._greeting.pop(op.id, None)
            return answered(op) if answered is not None else None
        self._release(request)
        if not op.ok:
            request.settle(_error_of(op))
            return None
        if request.topic:
            self._note_subscription(request)
        request.settle(op)
        return None

    def _note_subscription(self, request: Request) -> None:
        if request.wanted:
            self.subscriptions[request.topic] = None
        else:
            self.subscriptions.pop(request.topic, None)

    def _on_hello(self, op: Reply) -> Event | None:
        if not op.ok:
            return Refused(_error_of(op))
        self.session = op.session or ""
        self.heartbeat_s = max(op.heartbeat_s or self._options.heartbeat_s, 0.01)
        self.phase = Phase.RESTORING
        for topic in self.subscriptions:
            subscribe = Subscribe(id=self._next_id(self._restored(topic)), to=topic)
            self._own.append(self._form.encode(subscribe))
        self._maybe_ready()
        return None

    def _restored(self, topic: str) -> Callable[[Reply], Event | None]:
        def answered(op: Reply) -> Event | None:
            self._maybe_ready()
            if op.ok:
                return None
            self.subscriptions.pop(topic, None)
            return notice.Unsubscribed(topic, _error_of(op))

        return answered

    def _maybe_ready(self) -> None:
        if not self._greeting:
            self.phase = Phase.READY

    def _on_ping(self, op: Op) -> None:
        self._own.append(self._form.encode(ops.Pong()))


def _error_of(reply: Reply) -> RequestError:
    error = request_error(
        reply.error or "",
        reply.reason or "the hub gave no reason",
        outcome_unknown=reply.outcome == "unknown",
    )
    error.verdicts = reply.verdicts
    return error
