"""Topics: published to by anybody who may, received by all who subscribed (H16).

A key, `key:order-7`, is a topic that nobody makes and that has no options.

A topic lives on one node, its *home*, which is this one unless the cluster says otherwise. The home
numbers messages, keeps the history of topics that ask for one, and hands each message to its own
subscribers and to every node that has some.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from chappe.address import parse_address
from chappe.endpoints.cluster import Cluster
from chappe.endpoints.history import History, TopicOptions, newest
from chappe.endpoints.user import Owners
from chappe.errors import BadRequest, Forbidden, Overload, RequestError
from chappe.hub.answer import RequestAnswer, SilentAnswer
from chappe.hub.app import App
from chappe.hub.grant import EVERYTHING
from chappe.hub.hub import Hub
from chappe.hub.requests import Handler
from chappe.hub.scope import outside
from chappe.hub.session import Session
from chappe.message import Message
from chappe.wire.ops import Op, Position, Presence, Publish, Reply, Subscribe, Unsubscribe

# All histories of a node together; the one that was published to longest ago goes first.
HISTORIES_BYTES_MAX = 256 * 1024 * 1024

_Answer = RequestAnswer | SilentAnswer


class Topics:
    """The topics of a node: its subscribers, and those topics whose home it is."""

    def __init__(self, hub: Hub, owners: Owners, publish_to_room: Handler) -> None:
        self._hub = hub
        self._fanout = hub.fanout
        self._next_id = hub.ids.next
        self._owners = owners
        self._publish_to_room = publish_to_room
        self._options: dict[tuple[str, str], TopicOptions] = {}
        # By app and topic, the one published to longest ago first.
        self._histories: dict[tuple[str, str], History] = {}
        self.histories_bytes = 0
        # How often the nodes have changed.
        self.views = 0
        self.cluster: Cluster

    def handlers(self) -> dict[type[Op], Handler]:
        """The ops served here."""
        return {
            Publish: self.publish,
            Subscribe: self.subscribe,
            Unsubscribe: self.unsubscribe,
        }

    def define(self, app: str, topic: str, options: TopicOptions | None) -> None:
        """Give a topic options of its own, or take them away."""
        self._fanout.end()
        key = (app, topic)
        self.forget_history(app, topic)
        if options is None:
            self._options.pop(key, None)
        else:
            self._options[key] = options

    def publish(self, session: Session, op: Publish) -> None:
        """Hand a message to all subscribers; answered with how many nodes took it."""
        to = op.to
        if to.startswith("room:"):
            self._publish_to_room(session, op)
            return
        scope = session.grant.publish
        if scope is not EVERYTHING and to not in scope:
            raise outside("publish to", to)
        if op.reliable:
            raise BadRequest("reliable: not for a topic")
        payload, binary = self._hub.take(session, op)
        app, fanout = session.app, self._fanout
        message = Message(self._next_id(), session.address, to, self._hub.now_ms, payload, binary)
        if self._joins(app, to):
            fanout.add(message, session)
            nodes = fanout.nodes
        elif self._joins_elsewhere(session, op):
            fanout.add(message, session if op.id is None else None)
            return
        else:
            home = self.cluster.home(app.name, to)
            if home is not None or self.cluster.holding:
                check_topic(to, "a topic, a key or a room")
                self._publish_later(app.name, message, self._answer(session, op.id, message))
                if op.id is None and home is not None and to == fanout.to:
                    fanout.sender = session  # more of the same need not be checked again
                return
            nodes = self.publish_here(app, message, session)
        if op.id is not None:
            message_id = session.encoding.message_id(message.id)
            self._hub.answer(session, Reply(id=op.id, ok=True, message=message_id, nodes=nodes))

    def _publish_later(self, name: str, message: Message, answer: _Answer) -> None:
        """Publish at a home that is elsewhere, or here once all nodes see the same ones."""
        home = self.cluster.home(name, message.to)
        if home is not None:
            self.cluster.publish(home, self._hub.app(name), message, answer)
        elif self.cluster.holding:
            self.cluster.hold(partial(self._publish_held, name, message, answer))
        else:
            answer.ok(self.publish_here(self._hub.app(name), message))

    def _publish_held(self, name: str, message: Message, answer: _Answer) -> None:
        try:
            self._publish_later(name, message, answer)
        except RequestError as error:
            answer.fail(error)

    def _joins(self, app: App, to: str) -> bool:
        """Whether a message to this topic goes on with the run under way."""
        fanout = self._fanout
        return (
            to == fanout.to
            and app is fanout.app
            and not fanout.promised
            and not fanout.foreign
            and not fanout.elsewhere
            and fanout.came_from == fanout.origin
            and not (self._options and (app.name, to) in self._options)
        )

    def _joins_elsewhere(self, session: Session, op: Publish) -> bool:
        """Whether a message goes on with a run to its topic's home; it has to, then."""
        fanout = self._fanout
        return (
            fanout.elsewhere
            and op.to == fanout.to
            and session.app is fanout.app
            and not fanout.promised
            and fanout.joins_elsewhere(session, op.id)
        )

    def _answer(self, session: Session, request: int | None, message: Message) -> _Answer:
        if request is None:
            return SilentAnswer(self._hub, session.app.name)
        return RequestAnswer(self._hub, session, request, message.id)

    def publish_here(self, app: App, message: Message, sender: Session | None = None) -> int:
        """Publish as the topic's home; how many nodes took it. Raises BadRequest if it is none."""
        to, fanout = message.to, self._fanout
        if self._joins(app, to):
            fanout.add(message, sender)
            return fanout.nodes
        options = self._options.get((app.name, to)) if self._options else None
        if options is not None:
            message = self._keep(app, message, options)
            sender = None  # what follows is numbered, too: it does not join unseen
        subscribers, watchers = app.topics.get(to), app.watchers.get(to, ())
        if subscribers is None and not watchers:
            check_topic(to, "a topic, a key or a room")
            self._hub.recorder.published(app.name, (message,), 0, fanout.origin)
            return 0
        fanout.begin(app, to, subscribers or (), promised=False, relays=watchers)
        fanout.add(message, sender)
        return fanout.nodes

    def publish_run_here(self, app: App, messages: list[Message]) -> list[int]:
        """Publish messages to one topic as its home; how many nodes took each. Raises BadRequest
        if it is none."""
        first, *rest = messages
        nodes = [self.publish_here(app, first)]
        if rest and self._joins(app, first.to):
            nodes += [self._fanout.nodes] * len(rest)
            self._fanout.extend(rest)
            return nodes
        return nodes + [self.publish_here(app, message) for message in rest]

    def _keep(self, app: App, message: Message, options: TopicOptions) -> Message:
        if options.anonymous:
            message = msgspec.structs.replace(message, sender="")
        history = self.history(app.name, message.to)
        if history is None:
            return message
        key = (app.name, message.to)
        self._histories[key] = self._histories.pop(key)
        before = history.size_bytes
        message = history.add(message, self._hub.clock.monotonic())
        self.histories_bytes += history.size_bytes - before
        while self.histories_bytes > HISTORIES_BYTES_MAX and len(self._histories) > 1:
            self.forget_history(*next(iter(self._histories)))
        return message

    def fan_out_here(self, app: App, messages: list[Message]) -> None:
        """Hand what the home sent, all to one topic, to the subscribers on this node."""
        to = messages[0].to
        subscribers = app.topics.get(to)
        if subscribers is None:
            self._hub.recorder.declined(app.name, messages, "nobody")
            return
        self._fanout.begin(app, to, subscribers, promised=False, foreign=True)
        for message in messages:
            self._fanout.add(message, None)
            if not self._fanout.to:  # grown large, it ended
                self._fanout.begin(app, to, subscribers, promised=False, foreign=True)

    def missed_here(self, app: App, topic: str, count: int) -> None:
        """Tell the subscribers on this node that so many messages did not get here."""
        self._fanout.end()
        for session in app.topics.get(topic) or ():
            self._hub.outboxes.miss(session, count, "missed")

    def history(self, app: str, topic: str) -> History | None:
        """The history of a topic whose home is here, begun if it is to have one and has none."""
        options = self._options.get((app, topic))
        if options is None or not options.history or not options.history_s:
            return None
        if self.cluster.home(app, topic) is not None:
            return None
        history = self._histories.get((app, topic))
        if history is None:
            history = self._begin_history(app, topic, options)
        history.expire(self._hub.clock.monotonic())
        return history

    def _begin_history(self, app: str, topic: str, options: TopicOptions) -> History:
        """Begin an epoch; whoever has listened until now must not take it for the one before."""
        history = History(f"{self._next_id():x}", options, self.views)
        self._histories[app, topic] = history
        found = self._hub.apps.get(app)
        if found is not None:
            self.tell_position(found, topic, history.epoch, history.offset)
            self.cluster.renew(found, topic, history.epoch)
        return history

    def renew_history(self, app: str, topic: str) -> None:
        """Another node was home while this one could not be seen: a history from before has a gap
        now, and begins anew. Whoever listens is told."""
        history = self._histories.get((app, topic))
        if history is not None and history.born < self.views:
            self.forget_history(app, topic)
            self.history(app, topic)

    def histories(self) -> Iterator[tuple[str, str]]:
        """The topics that have a history here, as (app, topic)."""
        return iter(self._histories)

    def forget_history(self, app: str, topic: str) -> bool:
        """Let go of a topic's history: its home is elsewhere now, or it is not to be kept.

        Returns whether anything was ever in it.
        """
        history = self._histories.pop((app, topic), None)
        if history is None:
            return False
        self.histories_bytes -= history.size_bytes
        return history.offset > 0

    def subscribe(self, session: Session, op: Subscribe) -> None:
        """Let a session receive what is published to a topic, as itself or as an avatar."""
        to, app = op.to, session.app
        if to not in session.grant.subscribe:
            raise outside("subscribe to", to)
        check_topic(to)
        self._check_identity(session, op.as_)
        topics = session.topics or {}
        if to not in topics:
            most = self._hub.options.subscriptions_max
            if len(topics) + self.cluster.joining(session) >= most:
                raise Overload(f"a session has at most {most} topics")
        home = self.cluster.home(app.name, to)
        if home is not None:
            self.cluster.subscribe(home, session, op)
            return
        reply = self.join(session, op, *self.position(app.name, to, op.epoch, op.offset))
        self.answer_subscribe(session, op, reply)

    def position(
        self, app: str, topic: str, epoch: str | None, offset: int | None
    ) -> tuple[str, int, bool, list[Message]]:
        """Where a topic at home here is, and what came since a place: epoch, offset, whether that
        is all, and the messages: no more than the half of an outbox, the newest ones."""
        history = self.history(app, topic)
        if history is None:
            return "", 0, offset is None, []
        whole, missed = history.since(epoch, offset)
        fitting = newest(missed, self._hub.options.outbox_bytes_max // 2)
        return history.epoch, history.offset, whole and len(fitting) == len(missed), fitting

    def join(
        self,
        session: Session,
        op: Subscribe,
        epoch: str,
        offset: int,
        whole: bool,
        missed: list[Message],
    ) -> Reply:
        """Bind a session to a topic, after what it missed; the reply tells where it is then."""
        to, app = op.to, session.app
        self._fanout.end()
        if app.topics.bind(to, session) and missed:
            # What does not fit would be dropped, or close the session: then that is not all.
            fitting = newest(missed, self._hub.outboxes.room(session))
            whole = whole and len(fitting) == len(missed)
            if fitting:
                self._fanout.put_droppable(fitting, (session,))
        if session.topics is None:
            session.topics = {}
        identity = op.as_ or session.address
        known = session.topics.get(to, ())
        if identity not in known:
            session.topics[to] = (*known, identity)
        reply = Reply(id=op.id or 0, ok=True)
        if op.offset is not None:
            reply.recovered = whole
        if epoch:
            reply.epoch, reply.offset = epoch, offset
        return reply

    def answer_subscribe(self, session: Session, op: Subscribe, reply: Reply) -> None:
        """Answer, if an answer was asked for."""
        if op.id is not None:
            self._hub.answer(session, reply)

    def _check_identity(self, session: Session, identity: str | None) -> None:
        if identity is None or identity == session.address:
            return
        if parse_address(identity, "as").kind != "avatar":
            raise BadRequest("as: oneself, or an avatar of one's own")
        if self._owners.user_of(session.app.name, identity) != session.address:
            raise Forbidden(f"as: {identity} is not an avatar of {session.address}")

    def unsubscribe(self, session: Session, op: Unsubscribe) -> None:
        """Let a session receive no more of a topic, unless another of its identities does."""
        check_topic(op.to)
        identity = op.as_ or session.address
        self.cluster.withdraw(session, op.to, identity)
        self._part(session, op.to, identity)
        if op.id is not None:
            self._hub.answer(session, Reply(id=op.id, ok=True))

    def _part(self, session: Session, topic: str, identity: str) -> None:
        if session.topics is None or identity not in session.topics.get(topic, ()):
            return
        left = tuple(one for one in session.topics[topic] if one != identity)
        if left:
            session.topics[topic] = left
            return
        del session.topics[topic]
        self._fanout.end()
        self._unbind(session, topic)

    def avatar_removed(self, app: App, user: str, avatar: str) -> None:
        """An avatar is no more: what its user subscribed as it goes."""
        for session in app.endpoints.get(user) or ():
            for topic in [t for t, who in (session.topics or {}).items() if avatar in who]:
                self._part(session, topic, avatar)
            self.cluster.withdraw(session, None, avatar)

    def left(self, session: Session) -> None:
        """A session has gone: it subscribes to nothing any more (H16)."""
        for topic in session.topics or ():
            self._unbind(session, topic)
        session.topics = None

    def _unbind(self, session: Session, topic: str) -> None:
        app = session.app
        app.topics.unbind(topic, session)
        if topic not in app.topics:
            self.cluster.unwatch(app, topic)

    def tell_position(self, app: App, topic: str, epoch: str, offset: int) -> None:
        """Tell the subscribers on this node that a topic's history began anew."""
        self._fanout.end()
        for session in app.topics.get(topic) or ():
            self._hub.say(session, Position(to=topic, epoch=epoch, offset=offset))

    def presence(self, session: Session, op: Presence) -> None:
        """A topic is there while somebody subscribes to it."""
        app = session.app
        home = self.cluster.home(app.name, op.to)
        if home is not None:
            self.cluster.carry(home, session, op)
        elif op.id is not None:
            online = op.to in app.topics or op.to in app.watchers
            self._hub.answer(session, Reply(id=op.id, ok=True, online=online))


def check_topic(to: str, meant: str = "a topic or a key") -> None:
    """Refuse an address that cannot be subscribed to, and say what may be; raises BadRequest."""
    kind = parse_address(to).kind
    if kind not in ("topic", "key"):
        raise BadRequest(f"to: {meant} is meant here, not a {kind}")
