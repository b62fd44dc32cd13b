"""Watching: topics across nodes. A home knows which nodes have subscribers, each node its own.

    this node                         the topic's home
      first subscriber: Watch  ------->  knows that this node watches
                        Recover ------->  where the topic is, and what was missed
      bind the session  <--- Recovered
      deliver           <--- FromHome   for each message published
      last one left: Unwatch --------->  forgets this node

Everything about one topic travels on one link, in order: whatever is published after `Recovered`
was made comes behind it. A session is bound when that arrives, so nothing is missed or comes twice.
When homes move, a node watches at the new one before it leaves the old.
"""

from __future__ import annotations

import asyncio

import msgspec

from chappe.cluster.homes import Homes
from chappe.cluster.peer import Peer
from chappe.cluster.settling import Settling
from chappe.endpoints.topic import Topics
from chappe.errors import Overload
from chappe.hub.app import App
from chappe.hub.fanout import Relay
from chappe.hub.hub import Hub
from chappe.hub.session import Session
from chappe.message import Message
from chappe.wire.node import (
    FromHome,
    Interim,
    Recover,
    Recovered,
    Unwatch,
    Watch,
    Watched,
)
from chappe.wire.ops import Reply, Subscribe

# Subscribes whose home has not answered yet.
_JOINING_MAX = 100_000
# What came since a place, as far as it travels: about what a session's outbox takes, and well
# within a frame.
_RECOVERED_BYTES_MAX = 2 * 1024 * 1024
# Topics looked at in one turn of the loop when homes move.
_MOVE_TOPICS = 1_000

Key = tuple[str, str]


class Interest:
    """A topic with subscribers here and its home elsewhere."""

    __slots__ = ("epoch", "home", "joining", "left")

    def __init__(self, home: Peer) -> None:
        self.home = home
        # The homes before, until the new one knows of this node.
        self.left: list[Peer] = []
        self.joining: dict[int, Joining] = {}
        self.epoch = ""

    def leave_for(self, home: Peer) -> None:
        """Have another home. What was published while none knew of this node was missed, so the
        subscribers are told where the topic is, even if it is the home of before."""
        self.left = [one for one in (*self.left, self.home) if one is not home]
        self.home = home
        self.epoch = ""


class Joining:
    """A session that waits for the home's word."""

    __slots__ = ("due", "key", "op", "session", "withdrawn")

    def __init__(self, key: Key, session: Session, op: Subscribe, due: float) -> None:
        self.key = key
        self.session = session
        self.op = op
        self.due = due
        # Whether it unsubscribed meanwhile.
        self.withdrawn = False


class Watching:
    """The topics of a node in its cluster."""

    def __init__(
        self,
        hub: Hub,
        topics: Topics,
        homes: Homes,
        settling: Settling,
        loop: asyncio.AbstractEventLoop,
        timeout_s: float,
    ) -> None:
        self._hub = hub
        self._topics = topics
        self._homes = homes
        self._settling = settling
        self._loop = loop
        self._timeout_s = timeout_s
        self._interests: dict[Key, Interest] = {}
        self._joining: dict[int, Joining] = {}
        self._joining_of: dict[Session, dict[int, Joining]] = {}
        self._number = 0
        # Which topics each peer watches here.
        self._watched: dict[Peer, dict[Key, None]] = {}
        # Counts changes among the nodes: topics are looked at for the latest only.
        self._moves = 0
        self._moving = False

    @property
    def moving(self) -> bool:
        """Whether topics are still being looked at after a change among the nodes."""
        return self._moving

    def serve_fan_out(self, peer: Peer, op: FromHome) -> None:
        """Hand what a home published to the subscribers on this node."""
        app = self._hub.apps.get(op.app)
        if not op.messages:
            return
        if app is None:
            self._hub.recorder.declined(op.app, op.messages, "nobody")
            return
        messages = op.messages
        if messages[0].offset:
            interest = self._interests.get((op.app, messages[0].to))
            if interest is None or interest.home is not peer:
                # Numbered by a home that is one no more: its numbers mean nothing to subscribers
                # who count by another's.
                messages = [msgspec.structs.replace(one, offset=0) for one in messages]
        self._topics.fan_out_here(app, messages)

    def subscribe(self, home: Peer, session: Session, op: Subscribe) -> None:
        """Ask a topic's home where it is, then bind the session; raises Overload."""
        if len(self._joining) >= _JOINING_MAX:
            raise Overload("too many subscribes wait for their topic's home")
        key = (session.app.name, op.to)
        self._hub.fanout.end()  # what is gathered was published before this
        interest = self._interests.get(key)
        if interest is None:
            interest = self._interests[key] = Interest(home)
            home.tell(Watch(key[0], [key[1]]))
        self._ask(interest, Joining(key, session, op, self._loop.time() + self._timeout_s))

    def joining(self, session: Session) -> int:
        """How many subscribes of a session are under way."""
        return len(self._joining_of.get(session, ()))

    def _ask(self, interest: Interest, joining: Joining) -> None:
        self._number += 1
        self._joining[self._number] = joining
        self._joining_of.setdefault(joining.session, {})[self._number] = joining
        interest.joining[self._number] = joining
        app, topic = joining.key
        op = joining.op
        interest.home.tell(Recover(self._number, app, topic, op.epoch, op.offset))

    def _asked(self, number: int) -> Joining | None:
        """Take a subscribe that is under way out of all tables."""
        joining = self._joining.pop(number, None)
        if joining is None:
            return None
        of = self._joining_of[joining.session]
        del of[number]
        if not of:
            del self._joining_of[joining.session]
        interest = self._interests.get(joining.key)
        if interest is not None:
            interest.joining.pop(number, None)
        return joining

    def withdraw(self, session: Session, topic: str | None, identity: str) -> None:
        """A session unsubscribed from a topic, or from all as an identity that is no more, while
        its subscribe may still be under way."""
        for joining in self._joining_of.get(session, {}).values():
            if (joining.op.as_ or session.address) == identity and topic in (None, joining.op.to):
                joining.withdrawn = True

    def sweep(self) -> None:
        """Answer subscribes whose home has been silent for longer than the time limit."""
        now = self._loop.time()
        for number, joining in list(self._joining.items()):
            if joining.due > now:
                return
            self._asked(number)
            error = Overload("the topic's home did not answer in time", outcome_unknown=True)
            if not joining.session.closed:
                self._hub.refuse(joining.session, joining.op.id, error)
            interest = self._interests.get(joining.key)
            if interest is not None:
                self._leave_if_nobody(joining.key, interest)

    def unwatch(self, app: App, topic: str) -> None:
        """The last subscriber here has left."""
        interest = self._interests.get((app.name, topic))
        if interest is not None and not interest.joining:
            self._leave((app.name, topic), interest)

    def _leave(self, key: Key, interest: Interest) -> None:
        del self._interests[key]
        for home in (interest.home, *interest.left):
            if home.up:
                home.tell(Unwatch(key[0], [key[1]]))

    def serve_watch(self, peer: Peer, op: Watch) -> None:
        """A peer has subscribers of topics whose home this node is, or is about to be."""
        app = self._hub.app(op.app)
        self._hub.fanout.end()
        watched = self._watched.setdefault(peer, {})
        for topic in op.topics:
            there = app.watchers.get(topic, ())
            if peer not in there:
                app.watchers[topic] = (*there, peer)
            watched[op.app, topic] = None
            history = self._topics.history(op.app, topic)
            if history is None:
                peer.tell(Watched(op.app, topic))
            else:
                peer.tell(Watched(op.app, topic, history.epoch, history.offset))

    def serve_unwatch(self, peer: Peer, op: Unwatch) -> None:
        """A peer has no subscribers of these topics any more."""
        for topic in op.topics:
            self._forget_watcher(peer, (op.app, topic))

    def _forget_watcher(self, peer: Peer, key: Key) -> None:
        self._watched.get(peer, {}).pop(key, None)
        app = self._hub.apps.get(key[0])
        there = app.watchers.get(key[1], ()) if app is not None else ()
        if app is None or peer not in there:
            return
        self._hub.fanout.end()
        left: tuple[Relay, ...] = tuple(one for one in there if one is not peer)
        if left:
            app.watchers[key[1]] = left
        else:
            del app.watchers[key[1]]
            self._hub.forget_app(app)

    def watched(self, peer: Peer, op: Watched) -> None:
        """A home knows of this node; a history that began anew is told to the subscribers."""
        interest = self._interests.get((op.app, op.topic))
        if interest is None or interest.home is not peer:
            return
        for home in interest.left:
            if home.up:
                home.tell(Unwatch(op.app, [op.topic]))
        interest.left.clear()
        if op.epoch and op.epoch != interest.epoch:
            interest.epoch = op.epoch
            app = self._hub.apps.get(op.app)
            if app is not None:
                self._topics.tell_position(app, op.topic, op.epoch, op.offset)

    def renew(self, app: App, topic: str, epoch: str) -> None:
        """A topic's history begins here: tell the nodes that watch it."""
        for peer in app.watchers.get(topic, ()):
            assert isinstance(peer, Peer)
            peer.tell(Watched(app.name, topic, epoch, 0))

    def serve_interim(self, peer: Peer, op: Interim) -> None:
        """Another node was home of topics while this one could not be seen: a history that goes
        back to before that has a gap now, so it begins anew."""
        for topic in op.topics:
            self._topics.renew_history(op.app, topic)

    def serve_recover(self, peer: Peer, op: Recover) -> None:
        """Tell a peer where a topic is, and what came since a place in its history."""
        epoch, offset, whole, missed = self._topics.position(op.app, op.topic, op.epoch, op.offset)
        # A run under way is published already, and in the history: it must not come behind.
        self._hub.fanout.end()
        newest, size = _newest(missed, 0 if peer.full else _RECOVERED_BYTES_MAX)
        whole = whole and len(newest) == len(missed)
        peer.tell(Recovered(op.number, epoch, offset, whole, newest), 100 + size)

    def recovered(self, op: Recovered) -> None:
        """The home's word has come: the session is bound from here on."""
        joining = self._asked(op.number)
        if joining is None:
            return
        interest = self._interests[joining.key]
        interest.epoch = op.epoch
        self._bind(joining, op.epoch, op.offset, op.whole, op.messages)
        self._leave_if_nobody(joining.key, interest)

    def _bind(
        self, joining: Joining, epoch: str, offset: int, whole: bool, missed: list[Message]
    ) -> None:
        session, op = joining.session, joining.op
        if session.closed:
            return
        if joining.withdrawn:
            reply = Reply(id=op.id or 0, ok=True)
        else:
            reply = self._topics.join(session, op, epoch, offset, whole, missed)
        self._topics.answer_subscribe(session, op, reply)

    def _leave_if_nobody(self, key: Key, interest: Interest) -> None:
        app = self._hub.apps.get(key[0])
        if not interest.joining and (app is None or key[1] not in app.topics):
            self._leave(key, interest)

    def lost(self, peer: Peer) -> None:
        """A peer is gone, and whatever it watched."""
        for key in list(self._watched.pop(peer, ())):
            self._forget_watcher(peer, key)

    def move(self) -> None:
        """The nodes have changed: watch each topic where its home is now."""
        self._topics.views += 1
        for key in list(self._topics.histories()):
            home = self._home(key)
            if home is not None and self._topics.forget_history(*key):
                home.tell(Interim(key[0], [key[1]]))
        keys = [(app.name, topic) for app in self._hub.apps.values() for topic in app.topics]
        keys = list(dict.fromkeys([*self._interests, *keys]))
        self._moves += 1
        self._moving = True
        self._move_some(keys, self._moves)

    def _home(self, key: Key) -> Peer | None:
        return self._homes.home(*key)

    def _move_some(self, keys: list[Key], move: int) -> None:
        if move != self._moves:
            return  # the nodes have changed again, and all topics are looked at for that
        some = keys[-_MOVE_TOPICS:]
        del keys[-_MOVE_TOPICS:]
        for key in some:
            self._move_one(key)
        if keys:
            self._loop.call_soon(self._move_some, keys, move)
        else:
            self._moving = False
            self._settling.announce()

    def _move_one(self, key: Key) -> None:
        home, interest = self._home(key), self._interests.get(key)
        app = self._hub.apps.get(key[0])
        wanted = interest is not None or (app is not None and key[1] in app.topics)
        if not wanted or (interest.home if interest is not None else None) is home:
            return
        if home is None:
            assert interest is not None
            self._come_home(key, interest)
            return
        if interest is None:
            interest = self._interests[key] = Interest(home)
        else:
            interest.leave_for(home)
        home.tell(Watch(key[0], [key[1]]))
        self._ask_again(key, interest)

    def _ask_again(self, key: Key, interest: Interest) -> None:
        for number in list(interest.joining):
            joining = self._asked(number)
            if joining is not None:
                self._ask(interest, joining)

    def _come_home(self, key: Key, interest: Interest) -> None:
        """A topic lives here now: its subscribers are known, those who wait are bound."""
        app_name, topic = key
        waiting = [self._asked(number) for number in list(interest.joining)]
        self._leave(key, interest)
        self._topics.history(app_name, topic)  # begun, and so told to the subscribers
        for joining in waiting:
            assert joining is not None
            op = joining.op
            self._bind(joining, *self._topics.position(app_name, topic, op.epoch, op.offset))


def _newest(messages: list[Message], bytes_max: int) -> tuple[list[Message], int]:
    """The last messages that are not larger together, and how large they are."""
    size = 0
    for place in range(len(messages) - 1, -1, -1):
        more = len(messages[place].payload) + 100
        if size + more > bytes_max:
            return messages[place + 1 :], size
        size += more
    return messages, size
