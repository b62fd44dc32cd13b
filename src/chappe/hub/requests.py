"""Requests: what a session may say, and what the hub answers.

A session goes through two states, each a table from op to handler: *greeting*, where it may only
say hello, and *serving*. An op that is in the vocabulary but in neither table is one that this node
does not serve. A handler that cannot do what is asked raises RequestError; with an `id` on the op
the peer is answered, without one the error is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from chappe.address import parse_address
from chappe.errors import BadRequest, Forbidden, Overload, RequestError, Unreachable
from chappe.hub.grant import EVERYTHING
from chappe.message import Message
from chappe.wire.ops import (
    PACKED,
    VERSION,
    AddressedOp,
    Hello,
    Malformed,
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
    from chappe.hub.app import App
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session

# The ops that bring a message, in both forms: to a single receiver, and to a topic.
_SENDS = frozenset({Send, PACKED[Send]})
_PUBLISHES = frozenset({Publish, PACKED[Publish]})

# What a send says to a queue only; written out where the hot path asks.
_QUEUE_FIELDS = ("key", "headers", "tags", "delay_ms", "producer", "seq", "num")

Handler = Callable[["Session", Any], None]
Handlers = Mapping[type, Handler]


class Requests:
    """Carries out the ops of sessions on one hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._outboxes = hub.outboxes
        self._fanout = hub.fanout
        self._next_id = hub.ids.next
        always: dict[type[Op], Handler] = {
            Ping: self._ping,
            Pong: self._pong,
            Malformed: hub.malformed,
        }
        self.greeting = _both_forms({**always, Hello: self._hello})
        self.serving = _both_forms(
            {
                **always,
                Hello: self._hello_again,
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
        handler = session.handlers.get(op.__class__)
        if handler is None:
            self._refuse(session, op, self._not_served(session, op))
            return
        try:
            handler(session, op)
        except RequestError as error:
            self._refuse(session, op, error)

    def carry_out_all(self, session: Session, ops: list[Any]) -> None:
        """Do what a batch of ops asks for, in order.

        Clients that pipeline send one message after the other to the same address. The first goes
        the ordinary way; those behind it join its run here, without a call for each.
        """
        fanout, new_id = self._fanout, self._next_id
        address, now_ms, to, kind, publishes = session.address, 0, "", None, False
        join = fanout.messages.append
        for op in ops:
            if (
                op.__class__ is kind
                and op.to == to
                and op.id is None
                and (
                    not op.reliable
                    if publishes
                    else op.key is None
                    and op.headers is None
                    and op.tags is None
                    and op.delay_ms is None
                    and op.producer is None
                    and op.seq is None
                    and op.num is None
                )
            ):
                if op.data64 is True and op.data is not None:  # packed, binary: nothing to check
                    join(Message(new_id(), address, to, now_ms, op.data, True))
                    continue
                try:
                    payload, binary = take_payload(op)
                    join(Message(new_id(), address, to, now_ms, payload, binary))
                    continue
                except RequestError as error:
                    self._refuse(session, op, error)
            else:
                self.carry_out(session, op)
            if session.closed:
                return
            joins = fanout.sender is session and session.allowances is None
            publishes = not fanout.promised
            joining = _PUBLISHES if publishes else _SENDS
            kind = op.__class__ if joins and op.__class__ in joining else None
            address, now_ms, to = session.address, self._hub.now_ms, fanout.to
            join = fanout.messages.append
        if len(ops) > 1:
            # What one read brought is bounded; a run of several such would not be.
            fanout.end()

    def _take(self, session: Session, op: Send | Publish, receivers: int = 1) -> tuple[bytes, bool]:
        """An op's payload, if it is not too large, and the session may still send that much."""
        payload, binary = take_payload(op)
        if len(payload) > self._hub.limits.message_bytes_max:
            raise BadRequest(
                f"data: {len(payload)} bytes, {self._hub.limits.message_bytes_max} are allowed"
            )
        if session.allowances is not None:
            session.allowances.spend(len(payload) * receivers, receivers)
        return payload, binary

    def _send(self, session: Session, op: Send) -> None:
        to = op.to
        if to.__class__ is not str:
            self._send_to_each(session, op)
            return
        scope = session.grant.send
        if scope is not EVERYTHING and to not in scope:
            raise _outside("send to", to)
        _refuse_queue_fields(op)
        payload, binary = self._take(session, op)
        fanout = self._fanout
        message = Message(self._next_id(), session.address, to, self._hub.now_ms, payload, binary)
        # What may be sent may not be published: a run to a topic is not one to join here.
        if to == fanout.to and session.app is fanout.app and fanout.promised:
            fanout.add(message, session)
        else:
            self._deliver(session.app, message, session)
        if op.id is not None:
            self._outboxes.put(session, session.encoding.accepted(op.id, message.id))

    def _deliver(self, app: App, message: Message, sender: Session | None = None) -> None:
        """Put a message into the outboxes of its receiver's sessions: `ok` if one takes it (H5)."""
        to = message.to
        receivers = app.endpoints.get(to)
        if receivers is None:
            kind = parse_address(to).kind
            if kind != "user":
                raise BadRequest(f"to: nothing can be sent to a {kind} on this node")
            raise Unreachable(f"{to} is not online")
        for receiver in receivers:
            if self._outboxes.takes(receiver):
                self._fanout.begin(app, to, receivers, promised=True)
                self._fanout.add(message, sender)
                return
        self._fanout.end()
        taken = [
            self._outboxes.put_promised(receiver, receiver.encoding.message(message))
            for receiver in receivers
        ]
        if not any(taken):
            raise Overload(f"the outbox of {to} is full")
        for receiver, took in zip(receivers, taken, strict=True):
            if not took:
                self._outboxes.miss(receiver)
        self._hub.recorder.sent(app.name, (message,))

    def _send_to_each(self, session: Session, op: Send) -> None:
        receivers = dict.fromkeys(op.to)  # one message, one receiver, once
        if not receivers:
            raise BadRequest("to: an empty list")
        if len(receivers) > self._hub.limits.receivers_max:
            raise BadRequest(f"to: more than {self._hub.limits.receivers_max} receivers")
        scope = session.grant.send
        for to in receivers:
            if to not in scope:
                raise _outside("send to", to)
        _refuse_queue_fields(op)
        payload, binary = self._take(session, op, len(receivers))
        message_id = self._next_id()
        errors: dict[str, RequestError] = {}
        for to in receivers:
            message = Message(message_id, session.address, to, self._hub.now_ms, payload, binary)
            try:
                self._deliver(session.app, message)
            except RequestError as error:
                errors[to] = error
                self._hub.recorder.refused(session.app.name, error.code)
        if op.id is not None:
            self._answer(
                session,
                _joint_reply(op.id, session.encoding.message_id(message_id), receivers, errors),
            )

    def _publish(self, session: Session, op: Publish) -> None:
        to = op.to
        scope = session.grant.publish
        if scope is not EVERYTHING and to not in scope:
            raise _outside("publish to", to)
        if op.reliable:
            raise BadRequest("reliable: not for a topic")
        payload, binary = self._take(session, op)
        app, fanout = session.app, self._fanout
        message = Message(self._next_id(), session.address, to, self._hub.now_ms, payload, binary)
        nodes = 1
        if to == fanout.to and app is fanout.app and not fanout.promised:
            fanout.add(message, session)
        elif (subscribers := app.topics.get(to)) is not None:
            fanout.begin(app, to, subscribers, promised=False)
            fanout.add(message, session)
        else:
            _check_topic(to)
            nodes = 0
            self._hub.recorder.published(app.name, (message,), 0)
        if op.id is not None:
            self._answer(
                session,
                Reply(
                    id=op.id, ok=True, message=session.encoding.message_id(message.id), nodes=nodes
                ),
            )

    def _subscribe(self, session: Session, op: Subscribe) -> None:
        to = op.to
        scope = session.grant.subscribe
        if to not in scope:
            raise _outside("subscribe to", to)
        _check_topic(to)
        topics = session.topics
        if topics is None:
            topics = session.topics = set()
        if to not in topics and len(topics) >= self._hub.options.subscriptions_max:
            raise Overload(f"a session has at most {self._hub.options.subscriptions_max} topics")
        self._fanout.end()
        session.app.topics.bind(to, session)
        topics.add(to)
        self._ok(session, op)

    def _unsubscribe(self, session: Session, op: Unsubscribe) -> None:
        _check_topic(op.to)
        self._fanout.end()
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


def _both_forms(handlers: dict[type[Op], Handler]) -> Handlers:
    return handlers | {PACKED[op]: handlers[op] for op in handlers if op in PACKED}


def _refuse_queue_fields(op: Send) -> None:
    """Nothing that was asked for is ignored silently."""
    for name in _QUEUE_FIELDS:
        if getattr(op, name) is not None:
            raise BadRequest(f"{name}: a message to a user has none")


def _check_topic(to: str) -> None:
    kind = parse_address(to).kind
    if kind != "topic":
        raise BadRequest(f"to: a topic is meant here, not a {kind}")


def _outside(verb: str, to: str) -> RequestError:
    """The error for an address outside a scope: a wrong address is named before a forbidden one."""
    parse_address(to)
    return Forbidden(f"to: this identity may not {verb} {to}")


def _joint_reply(
    request: int, message: str | int, receivers: Iterable[str], errors: dict[str, RequestError]
) -> Reply:
    """The answer to a send to a list: ok when all took it, and each one's verdict."""
    reply = Reply(
        id=request,
        ok=not errors,
        message=message,
        verdicts={to: errors[to].code if to in errors else "ok" for to in receivers},
    )
    for error in errors.values():
        reply.error, reply.reason = error.code, error.reason
        break
    return reply


def _op_name(op: Op) -> str:
    tag: Any = op.__struct_config__.tag
    return tag if isinstance(tag, str) else type(op).__name__.removeprefix("Packed").lower()
