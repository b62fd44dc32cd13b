"""Requests: what a session may say, and what the hub answers.

A session goes through two states, each a table from op to handler: *greeting*, where it may only
say hello, and *serving*. An op that is in the vocabulary but in neither table is one that this node
does not serve. A handler that cannot do what is asked raises RequestError; with an `id` on the op
the peer is answered, without one the error is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from chappe.address import parse_address
from chappe.errors import BadRequest, Forbidden, Overload, RequestError, Unreachable
from chappe.hub.grant import EVERYTHING, Scope
from chappe.message import Message
from chappe.wire.encoding import Encoding
from chappe.wire.ops import (
    PACKED,
    VERSION,
    AddressedOp,
    Hello,
    Op,
    Ping,
    Pong,
    Presence,
    Publish,
    Reply,
    Send,
    Subscribe,
    Unsubscribe,
)
from chappe.wire.payload import take_payload

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session

Handlers = Mapping[type, Callable[["Session", Any], None]]


class Requests:
    """Carries out the ops of sessions on one hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._outboxes = hub.outboxes
        self._fanout = hub.fanout
        self._ids = hub.ids
        self._sent: list[Message] = []
        self._sent_app = ""
        self.greeting = _both_forms({Hello: self._hello, Ping: self._ping, Pong: self._pong})
        self.serving = _both_forms(
            {
                Hello: self._hello_again,
                Ping: self._ping,
                Pong: self._pong,
                Send: self._send,
                Publish: self._publish,
                Subscribe: self._subscribe,
                Unsubscribe: self._unsubscribe,
                Presence: self._presence,
            }
        )

    def carry_out(self, session: Session, op: Any) -> None:
        """Do what an op asks for, and answer it."""
        if not self._hub.ticking:
            self._hub.begin_tick()
        session.beats_missed = 0
        try:
            handler = session.handlers.get(op.__class__)
            if handler is None:
                raise self._not_served(session, op)
            handler(session, op)
        except RequestError as error:
            self._refuse(session, op, error)

    def record(self) -> None:
        """Tell the recorder what was sent since it was last told."""
        if self._sent:
            sent, self._sent = self._sent, []
            self._hub.recorder.sent(self._sent_app, sent)

    def _send(self, session: Session, op: Send) -> None:
        to = op.to
        if to.__class__ is not str:
            self._send_to_each(session, op)
            return
        scope = session.grant.send
        if scope is not EVERYTHING and to not in scope:
            raise _outside(scope, "send to", to, "to")
        message = self._make_message(session, op, to)
        self._deliver(session, message)
        if op.id is not None:
            self._outboxes.put(session, session.encoding.accepted(op.id, message.id))

    def _make_message(self, session: Session, op: Send | Publish, to: str) -> Message:
        """Take an op's payload, if the session is still allowed that much."""
        payload, binary = take_payload(op)
        session.message_allowance -= 1
        session.byte_allowance -= len(payload)
        if session.message_allowance < 0 or session.byte_allowance < 0:
            self._hub.refill(session)
        return Message(self._ids.next(), session.address, to, self._hub.now_ms, payload, binary)

    def _deliver(self, session: Session, message: Message) -> None:
        """Put a message into the outboxes of its receiver's sessions: `ok` if one takes it (H5)."""
        app = session.app
        receivers = app.endpoints.get(message.to)
        if receivers is None:
            kind = parse_address(message.to).kind
            if kind != "user":
                raise BadRequest(f"to: nothing can be sent to a {kind} on this node")
            raise Unreachable(f"{message.to} is not online")
        if self._fanout.messages:
            self._fanout.settle()
        encoded: bytes = b""
        encoding: Encoding | None = None
        taken = False
        for receiver in receivers:
            if receiver.encoding is not encoding:
                encoding = receiver.encoding
                encoded = encoding.message(message)
            if receiver.paused or receiver.backlog is not None:
                taken = self._outboxes.put_promised(receiver, encoded) or taken
                continue
            outbox = receiver.outbox
            if not outbox:
                self._outboxes.dirty.append(receiver)
            outbox.append(encoded)
            taken = True
        if not taken:
            raise Overload(f"the outbox of {message.to} is full")
        if app.name != self._sent_app:
            self.record()
            self._sent_app = app.name
        self._sent.append(message)

    def _send_to_each(self, session: Session, op: Send) -> None:
        receivers = dict.fromkeys(op.to)  # one message, one receiver, once
        if not receivers:
            raise BadRequest("to: an empty list")
        if len(receivers) > self._hub.limits.receivers_max:
            raise BadRequest(f"to: more than {self._hub.limits.receivers_max} receivers")
        scope = session.grant.send
        for to in receivers:
            if to not in scope:
                raise _outside(scope, "send to", to, "to")
        first = self._make_message(session, op, next(iter(receivers)))
        verdicts: dict[str, str] = {}
        errors: list[RequestError] = []
        for to in receivers:
            message = Message(
                first.id, first.sender, to, first.ts_ms, first.payload, first.binary
            )
            try:
                self._deliver(session, message)
                verdicts[to] = "ok"
            except RequestError as error:
                verdicts[to] = error.code
                errors.append(error)
        if op.id is None:
            for error in errors:
                self._hub.recorder.refused(session.app.name, error.code)
            return
        reply = Reply(id=op.id, ok=not errors, message=str(first.id), verdicts=verdicts)
        if errors:
            reply.error, reply.reason = errors[0].code, errors[0].reason
            self._hub.recorder.refused(session.app.name, errors[0].code)
        self._answer(session, reply)

    def _publish(self, session: Session, op: Publish) -> None:
        to = op.to
        scope = session.grant.publish
        if scope is not EVERYTHING and to not in scope:
            raise _outside(scope, "publish to", to, "to")
        known = to in session.app.topics
        if not known:
            _check_topic(to)
        message = self._make_message(session, op, to)
        if known:
            self._fanout.add(session.app, message)
        else:
            self._hub.recorder.published(session.app.name, (message,), 0)
        if op.id is not None:
            self._answer(
                session, Reply(id=op.id, ok=True, message=str(message.id), nodes=int(known))
            )

    def _subscribe(self, session: Session, op: Subscribe) -> None:
        to = op.to
        scope = session.grant.subscribe
        if to not in scope:
            raise _outside(scope, "subscribe to", to, "to")
        _check_topic(to)
        topics = session.topics
        if topics is None:
            topics = session.topics = set()
        if to not in topics and len(topics) >= self._hub.options.subscriptions_max:
            raise Overload(f"a session has at most {self._hub.options.subscriptions_max} topics")
        self._fanout.settle()
        session.app.topics.bind(to, session)
        topics.add(to)
        self._ok(session, op)

    def _unsubscribe(self, session: Session, op: Unsubscribe) -> None:
        _check_topic(op.to)
        self._fanout.settle()
        session.app.topics.unbind(op.to, session)
        if session.topics is not None:
            session.topics.discard(op.to)
        self._ok(session, op)

    def _presence(self, session: Session, op: Presence) -> None:
        kind = parse_address(op.to).kind
        if kind not in ("user", "topic"):
            raise BadRequest(f"to: this node does not know whether a {kind} is online")
        table = session.app.endpoints if kind == "user" else session.app.topics
        if op.id is not None:
            self._answer(session, Reply(id=op.id, ok=True, online=op.to in table))

    def _hello(self, session: Session, op: Hello) -> None:
        if op.v != VERSION:
            raise BadRequest(f"v: this hub speaks version {VERSION}")
        self._hub.admit(session, op)
        if op.id is not None:
            self._answer(
                session,
                Reply(
                    id=op.id,
                    ok=True,
                    session=session.id,
                    heartbeat_s=self._hub.options.heartbeat_s,
                    v=VERSION,
                ),
            )

    def _hello_again(self, session: Session, op: Hello) -> None:
        raise BadRequest(f"hello: this session is {session.address} already")

    def _ping(self, session: Session, op: Ping) -> None:
        self._answer(session, Pong(id=op.id))

    def _pong(self, session: Session, op: Pong) -> None:
        """A sign of life; taking note of it has been done."""

    def _ok(self, session: Session, op: AddressedOp) -> None:
        if op.id is not None:
            self._answer(session, Reply(id=op.id, ok=True))

    def _answer(self, session: Session, op: Op) -> None:
        self._outboxes.put(session, session.encoding.op(op))

    def _not_served(self, session: Session, op: Op) -> RequestError:
        name = _op_name(op)
        if not session.address:
            return BadRequest(f"{name}: say hello first")
        return BadRequest(f"{name}: this node does not serve it")

    def _refuse(self, session: Session, op: Any, error: RequestError) -> None:
        self._hub.recorder.refused(session.app.name if session.address else "", error.code)
        if op.id is not None:
            outcome = "unknown" if getattr(error, "outcome_unknown", False) else None
            self._answer(
                session,
                Reply(id=op.id, ok=False, error=error.code, reason=error.reason, outcome=outcome),
            )
        if not session.address:
            self._hub.turn_away(session, error)


def _both_forms(handlers: dict[type[Op], Callable[[Session, Any], None]]) -> Handlers:
    return handlers | {PACKED[op]: handler for op, handler in handlers.items()}


def _check_topic(to: str) -> None:
    kind = parse_address(to).kind
    if kind != "topic":
        raise BadRequest(f"to: a topic is meant here, not a {kind}")


def _outside(scope: Scope, verb: str, to: str, field: str) -> RequestError:
    """The error for an address outside a scope: a wrong address is named before a forbidden one."""
    parse_address(to, field)
    return Forbidden(f"{field}: this identity may not {verb} {to}")


def _op_name(op: Op) -> str:
    tag: Any = op.__struct_config__.tag
    return tag if isinstance(tag, str) else type(op).__name__.removeprefix("Packed").lower()
