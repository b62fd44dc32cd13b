"""Subscriptions: the topics a client listens to, as whom, and how far it has come in each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from chappe.client.notice import Missed, Notice, Renewed, Unsubscribed
from chappe.client.position import Position, Track
from chappe.errors import RequestError
from chappe.message import Message
from chappe.wire.ops import Position as PositionOp
from chappe.wire.ops import Reply, Subscribe


class Subscription:
    """One topic, as one identity; subscribed again after each reconnect."""

    __slots__ = ("_all", "as_", "recover", "topic")

    def __init__(self, all: Subscriptions, topic: str, as_: str | None, recover: bool) -> None:
        self._all = all
        self.topic = topic
        self.as_ = as_
        self.recover = recover

    def ask(self, *, recover: bool | None = None) -> Subscribe:
        """What to say to the hub, with the position from which to go on."""
        op = Subscribe(to=self.topic, as_=self.as_)
        track = self._all.tracks.get(self.topic)
        if track is not None and (self.recover if recover is None else recover):
            track.asking = True
            op.epoch, op.offset = track.came
        return op

    @property
    def wanted(self) -> bool:
        """Whether nobody unsubscribed it meanwhile."""
        return self._all.wanted.get(self.topic, {}).get(self.as_) is self

    def begin(self, reply: Reply) -> Notice | None:
        """The hub subscribed it for the first time."""
        self._all.add(self)
        return self.taken(reply)

    def taken(self, reply: Reply) -> Notice | None:
        """The hub subscribed it, again perhaps."""
        return self._all.settle(self.topic, reply)

    def refused(self, error: RequestError) -> Notice:
        """The hub did not subscribe it again."""
        self._all.remove(self.topic, self.as_)
        self._all.sweep(self.topic)
        return Unsubscribed(self.topic, error, self.as_)


class Subscriptions:
    """All of them; a topic may be subscribed as oneself and as several avatars."""

    def __init__(self) -> None:
        self.wanted: dict[str, dict[str | None, Subscription]] = {}
        # By topic, for those with a history; also of a topic that is not wanted any more, as long
        # as messages of it wait in the inbox.
        self.tracks: dict[str, Track] = {}

    def __iter__(self) -> Iterator[Subscription]:
        return itertools.chain.from_iterable(each.values() for each in self.wanted.values())

    def begin(self, topic: str, since: Position) -> None:
        """Be about to subscribe from a place of the past."""
        track = self.tracks.get(topic)
        if track is None:
            track = self.tracks[topic] = Track(*since)
        else:
            track.restart(*since)

    def add(self, subscription: Subscription) -> None:
        """Want a topic, as one identity."""
        self.wanted.setdefault(subscription.topic, {})[subscription.as_] = subscription

    def remove(self, topic: str, as_: str | None) -> None:
        """Want a topic no more, as one identity; to be swept once nothing more of it can come."""
        identities = self.wanted.get(topic)
        if identities is not None and identities.pop(as_, None) is not None and not identities:
            del self.wanted[topic]

    def sweep(self, topic: str) -> None:
        """Forget how far one had come in a topic that nobody wants and of which nothing waits."""
        track = self.tracks.get(topic)
        if track is not None and track.empty and topic not in self.wanted:
            del self.tracks[topic]

    def admit(self, message: Message) -> bool:
        """Take note of a message with an offset; False if it came before."""
        track = self.tracks.get(message.to)
        return track is None or track.admit(message.offset)

    def take(self, message: Message) -> None:
        """Take note of a message with an offset that leaves the inbox."""
        track = self.tracks.get(message.to)
        if track is not None:
            track.take(message.offset)
            if track.empty:
                self.sweep(message.to)

    def settle(self, topic: str, reply: Reply) -> Notice | None:
        """Go on from where a subscribe's reply says one is."""
        track = self.tracks.get(topic)
        asked = track is not None and track.asking
        lost = asked and not reply.recovered
        if reply.epoch is None:
            # It keeps no history, or none any more.
            self.tracks.pop(topic, None)
        elif track is None:
            self.tracks[topic] = Track(reply.epoch, reply.offset or 0)
        else:
            track.asking = False
            # What was recovered came before the reply, and has moved the track along already.
            if lost or track.came.epoch != reply.epoch:
                track.move(reply.epoch, reply.offset or 0)
        return Missed(topic) if lost else None

    def renew(self, op: PositionOp) -> Notice | None:
        """The hub says where a topic is, because its history began anew or its home moved."""
        track = self.tracks.get(op.to)
        if track is None:
            if op.to in self.wanted:
                self.tracks[op.to] = Track(op.epoch, op.offset)
            return None
        before = track.came
        track.move(op.epoch, op.offset)
        if before.epoch != op.epoch:
            return Renewed(op.to)
        return Missed(op.to) if before.offset < op.offset else None
