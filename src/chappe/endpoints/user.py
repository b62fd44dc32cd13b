"""Users: messages to single receivers, and whether they are online (H5, H8, H11 to H14)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from chappe.address import parse_address
from chappe.endpoints.cluster import Cluster
from chappe.errors import BadRequest, Overload, RequestError, Unreachable
from chappe.hub.answer import Answer, JointAnswer, RequestAnswer, SilentAnswer
from chappe.hub.app import App
from chappe.hub.fanout import Relay
from chappe.hub.grant import EVERYTHING
from chappe.hub.hub import Hub
from chappe.hub.requests import Handler
from chappe.hub.scope import outside
from chappe.hub.session import Session
from chappe.message import Message
from chappe.wire.ops import Op, Presence, Reply, Send

# What a send says to a queue only; written out where the hot path asks.
_QUEUE_FIELDS = ("key", "headers", "tags", "delay_ms", "producer", "seq", "num")
# What to do with addresses that are neither a user's nor an avatar's.
_INSTEAD = {
    "topic": "publish to a topic",
    "queue": "send to a queue by itself, not in a list",
    "service": "make a request to a service",
    "room": "publish to a room",
    "key": "publish to a key",
}


class Owners(Protocol):
    """Knows whose avatars are whose."""

    def user_of(self, app: str, avatar: str) -> str | None:
        """The user that an avatar belongs to."""
        ...


class Users:
    """Delivers messages to single receivers, here and elsewhere."""

    def __init__(self, hub: Hub, owners: Owners, send_to_queue: Handler) -> None:
        self._hub = hub
        self._outboxes = hub.outboxes
        self._fanout = hub.fanout
        self._next_id = hub.ids.next
        self._owners = owners
        self._send_to_queue = send_to_queue
        self.cluster: Cluster
        # What else can be online, by kind.
        self.others_online: dict[str, Callable[[Session, Presence], None]] = {}

    def handlers(self) -> dict[type[Op], Handler]:
        """The ops served here."""
        return {Send: self.send, Presence: self.presence}

    def send(self, session: Session, op: Send) -> None:
        """Deliver to one receiver: `ok` once a session of it has taken the message (H5)."""
        to = op.to
        if to.__class__ is not str:
            self._send_to_each(session, op)
            return
        scope = session.grant.send
        if scope is not EVERYTHING and to not in scope:
            raise outside("send to", to)
        app, fanout = session.app, self._fanout
        if to not in app.endpoints and to.startswith("queue:"):
            self._send_to_queue(session, op)
            return
        if (
            op.key is not None
            or op.headers is not None
            or op.tags is not None
            or op.delay_ms is not None
            or op.producer is not None
            or op.seq is not None
            or op.num is not None
        ):
            _refuse_queue_fields(op)
        payload, binary = self._hub.take(session, op)
        message = Message(self._next_id(), session.address, to, self._hub.now_ms, payload, binary)
        # What may be sent may not be published: a run to a topic is not one to join here.
        joins = to == fanout.to and app is fanout.app and fanout.promised and not fanout.foreign
        if joins and fanout.elsewhere:
            joins = fanout.joins_elsewhere(session, op.id)
            if joins:
                fanout.add(message, session if op.id is None else None)
                return
        if joins:
            fanout.add(message, session)
        elif not self._deliver(app, message, session, op.id):
            return
        if op.id is not None:
            self._outboxes.put(session, session.encoding.accepted(op.id, message.id))

    def _deliver(self, app: App, message: Message, sender: Session, request: int | None) -> bool:
        """Whether a message was taken here; if not, the verdict comes later, or is raised."""
        to = message.to
        receivers = app.endpoints.get(to)
        user = to
        if receivers is None and to not in app.routes:
            user = self.user_of(app, to)
            receivers = app.endpoints.get(user)
        if receivers is not None:
            relays = app.routes.get(user, ())
            if self._put(app, message, receivers, relays, sender):
                return True
            if not relays:
                raise Overload(f"the outbox of {to} is full")
        answer: Answer
        if request is None:
            answer = SilentAnswer(self._hub, app.name)
        else:
            answer = RequestAnswer(self._hub, sender, request, message.id)
        self.cluster.send(app, user, message, answer)
        fanout = self._fanout
        if fanout.elsewhere and fanout.to == to and fanout.app is app and request is None:
            fanout.sender = sender  # more of the same need not be checked again
        return False

    def user_of(self, app: App, to: str) -> str:
        """The user behind an address; raises BadRequest for what is neither user nor avatar, and
        Unreachable for an avatar that is nobody's."""
        kind = parse_address(to).kind
        if kind == "user":
            return to
        if kind != "avatar":
            raise BadRequest(f"to: {_INSTEAD.get(kind, f'nothing can be sent to a {kind}')}")
        user = self._owners.user_of(app.name, to)
        if user is None:
            raise Unreachable(f"{to} belongs to nobody")
        return user

    def deliver_here(self, app: App, message: Message) -> None:
        """Deliver what another node forwarded: to sessions of this node only; raises RequestError.

        A message for this node alone: whoever forwarded it knows of the other nodes.
        """
        to, fanout = message.to, self._fanout
        joins = to == fanout.to and app is fanout.app and fanout.promised and fanout.foreign
        if joins and fanout.came_from == fanout.origin:
            fanout.add(message, None)
            return
        receivers = app.endpoints.get(to)
        if receivers is None:
            receivers = app.endpoints.get(self.user_of(app, to))
            if receivers is None:
                raise Unreachable(f"{to} is not online")
        if not self._put(app, message, receivers, (), None, foreign=True):
            raise Overload(f"the outbox of {to} is full")

    def deliver_besides(self, app: App, user: str, message: Message, besides: str) -> None:
        """Deliver to those of a user's sessions of this node that are not the one of an id."""
        self._fanout.end()
        for receiver in app.endpoints.get(user) or ():
            if receiver.id != besides:
                self._outboxes.put_promised(receiver, receiver.encoding.message(message))

    def missed_here(self, app: App, to: str, count: int = 1) -> None:
        """Tell a receiver's devices on this node that so many messages, which others of its
        devices have, found no room; raises RequestError when it is nobody's address."""
        self._fanout.end()
        for session in app.endpoints.get(self.user_of(app, to)) or ():
            self._outboxes.miss(session, count)

    def deliver_run_here(self, app: App, messages: list[Message]) -> bool:
        """Deliver what another node forwarded, all to one receiver and no more than a run may hold.

        False when none of it was taken: its receiver is not here, or has room for a part at best.
        """
        to, fanout = messages[0].to, self._fanout
        receivers = app.endpoints.get(to)
        if receivers is None or not any(map(self._outboxes.takes, receivers)):
            return False
        fanout.begin(app, to, receivers, promised=True, foreign=True)
        fanout.add_all(messages)
        return True

    def _put(
        self,
        app: App,
        message: Message,
        receivers: Collection[Session],
        relays: Collection[Relay],
        sender: Session | None,
        *,
        foreign: bool = False,
    ) -> bool:
        """Put a message into the outboxes of its receiver's sessions; False if none takes it."""
        to = message.to
        for receiver in receivers:
            if self._outboxes.takes(receiver):
                self._fanout.begin(
                    app, to, receivers, promised=True, relays=relays, foreign=foreign
                )
                self._fanout.add(message, sender)
                return True
        self._fanout.end()
        taken = [
            self._outboxes.put_promised(receiver, receiver.encoding.message(message))
            for receiver in receivers
        ]
        if not any(taken):
            return False
        for receiver, took in zip(receivers, taken, strict=True):
            if not took:
                self._outboxes.miss(receiver)
        went_to = [relay.name for relay in relays if not relay.full]
        for relay in relays:
            relay.relay(app.name, [message], promised=True)
        self._hub.recorder.sent(app.name, (message,), sum(taken), self._fanout.origin, went_to)
        return True

    def _send_to_each(self, session: Session, op: Send) -> None:
        receivers = dict.fromkeys(op.to)  # one message, one receiver, once
        if not receivers:
            raise BadRequest("to: an empty list")
        if len(receivers) > self._hub.limits.receivers_max:
            raise BadRequest(f"to: more than {self._hub.limits.receivers_max} receivers")
        scope = session.grant.send
        for to in receivers:
            if to not in scope:
                raise outside("send to", to)
        _refuse_queue_fields(op)
        payload, binary = self._hub.take(session, op, len(receivers))
        message_id = self._next_id()
        joint = JointAnswer(self._hub, session, op.id, message_id, receivers)
        sent: dict[str, str] = {}  # H14: a user and its avatars are one receiver
        for to in receivers:
            message = Message(message_id, session.address, to, self._hub.now_ms, payload, binary)
            self._send_part(session, message, sent, joint)

    def _send_part(
        self, session: Session, message: Message, sent: dict[str, str], joint: JointAnswer
    ) -> None:
        app, to = session.app, message.to
        answer = joint.of(to)
        try:
            user = self.user_of(app, to)
            if user in sent:
                joint.follow(to, sent[user])
                return
            sent[user] = to
            receivers, relays = app.endpoints.get(user), app.routes.get(user, ())
            if receivers is not None and self._put(app, message, receivers, relays, None):
                answer.ok()
            elif receivers is not None and not relays:
                raise Overload(f"the outbox of {to} is full")
            else:
                self.cluster.send(app, user, message, answer)
        except RequestError as error:
            answer.fail(error)

    def presence(self, session: Session, op: Presence) -> None:
        """Tell whether an endpoint is online, anywhere (H8); costs as much as a message, since
        other nodes may have to be asked."""
        kind = parse_address(op.to).kind
        if session.allowances is not None:
            session.allowances.spend(0)
        if kind in self.others_online:
            self.others_online[kind](session, op)
            return
        if kind not in ("user", "avatar"):
            raise BadRequest(f"to: whether a {kind} is online is not known")
        if op.id is None:
            return
        app, request = session.app, op.id
        user = op.to if kind == "user" else self._owners.user_of(app.name, op.to)

        def tell(online: bool) -> None:
            self._hub.answer(session, Reply(id=request, ok=True, online=online))

        if user is None:
            tell(False)
        elif user in app.endpoints or user in app.routes:
            tell(True)
        else:
            self.cluster.ask_online(app, user, tell)


def _refuse_queue_fields(op: Send) -> None:
    """Nothing that was asked for is ignored silently."""
    for name in _QUEUE_FIELDS:
        if getattr(op, name) is not None:
            raise BadRequest(f"{name}: a message to a user has none")
