"""Publishing: messages to topics whose home is another node, in runs, and what comes of them.

    this node                             the topic's home
      a run, numbered: ToHome  ------->     publish: its subscribers here, the nodes that watch it
      answer each  <------------- Taken     those requests that as many nodes took, together
                   <---------- Returned     each that was refused

A node that is not the home, or not any more, passes a message on once, and its verdict back. A home
that waits until all nodes see the same holds messages for as long, each on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from chappe.cluster.homes import Homes
from chappe.cluster.peer import Peer
from chappe.cluster.pending import Pending
from chappe.cluster.settling import Settling
from chappe.cluster.verdicts import Verdicts
from chappe.endpoints.topic import Topics
from chappe.errors import Overload, RequestError
from chappe.hub.answer import Answer, RequestAnswer, SilentAnswer
from chappe.hub.app import App
from chappe.hub.fanout import runs_of
from chappe.hub.hub import Hub
from chappe.message import Message
from chappe.wire.node import RETURN_REFUSED, Returned, Taken, ToHome


class Publishing:
    """Takes messages to the homes of topics, and publishes those of other nodes."""

    def __init__(
        self,
        hub: Hub,
        topics: Topics,
        homes: Homes,
        settling: Settling,
        now: Callable[[], float],
        timeout_s: float,
    ) -> None:
        self._hub = hub
        self._topics = topics
        self._homes = homes
        self._settling = settling
        self._now = now
        self._timeout_s = timeout_s

    def publish(
        self, home: Peer, app: App, message: Message, answer: SilentAnswer | RequestAnswer
    ) -> None:
        """Begin a run to a topic's home, which more of the same may join; raises Overload."""
        home.check_room()
        fanout, to = self._hub.fanout, message.to
        if isinstance(answer, RequestAnswer):
            asking = _AskingRun(self, self._hub, home, answer)
            relays = (asking,)
            fanout.begin(app, to, (), promised=False, relays=relays, elsewhere=True, asking=asking)
        else:
            runs = (_SilentRun(self, home),)
            fanout.begin(app, to, (), promised=False, relays=runs, elsewhere=True)
        fanout.add(message, None)

    def publish_silently(self, home: Peer, app: str, messages: list[Message]) -> None:
        """Take a run that nobody asked an answer for to a topic's home."""
        if home.up:
            home.publish_all(app, messages, None)
            return
        for _ in messages:
            self._hub.recorder.refused(app, Overload.code)

    def publish_requests(
        self, home: Peer, app: str, messages: list[Message], run: _AskingRun
    ) -> None:
        """Take a run of a session's requests to a topic's home; their verdicts come back."""
        run.due = self._now() + self._timeout_s
        if home.up:
            home.publish_all(app, messages, run)
            return
        for place in range(len(messages)):
            # Never handed to the link, it was surely not published.
            run.one(place).fail(Overload("the link to the topic's home has just gone"))

    def serve(self, peer: Peer, op: ToHome) -> None:
        """Publish as a topic's home, or pass on once to the node that is."""
        verdicts = Verdicts(peer, op.app, RETURN_REFUSED if op.silent else op.first)
        for run in runs_of(op.messages):
            home = None if op.forwarded else self._homes.home(op.app, run[0].to)
            if home is not None or self._settling.holding:
                for message in run:
                    answer = _PeerAnswer(peer, op.app, verdicts.later(), message)
                    self._serve_later(peer.name, home, op.app, message, answer)
            else:
                self._serve_run(op.app, run, verdicts)
        verdicts.tell()

    def _serve_run(self, name: str, run: list[Message], verdicts: Verdicts) -> None:
        try:
            app = self._hub.app(name)
            try:
                for nodes in self._topics.publish_run_here(app, run):
                    verdicts.took(1, nodes)
                self._end_unless_home(name, run[0].to)
            finally:
                self._hub.forget_app(app)
        except RequestError as error:
            self._hub.recorder.declined(name, run, error.code)
            for message in run:
                verdicts.refused(message, error)

    def _serve_later(
        self, peer: str, home: Peer | None, app: str, message: Message, answer: Answer
    ) -> None:
        """Pass a peer's message on to its home; or hold it, if it is at home here."""
        try:
            if home is not None:
                pending = Pending(answer, 1, self._now() + self._timeout_s, topic=True)
                home.publish(app, message, pending, forwarded=True)
                self._hub.recorder.forwarded(app, (message,), peer, (home.name,), promised=False)
            else:
                self._settling.hold(partial(self._publish_held, peer, app, message, answer))
        except RequestError as error:
            self._hub.recorder.declined(app, (message,), error.code)
            answer.fail(error)

    def _publish_held(self, peer: str, name: str, message: Message, answer: Answer) -> None:
        fanout = self._hub.fanout
        fanout.origin = peer
        try:
            app = self._hub.app(name)
            answer.ok(self._topics.publish_here(app, message))
            self._end_unless_home(name, message.to)
            self._hub.forget_app(app)
        except RequestError as error:
            self._hub.recorder.declined(name, (message,), error.code)
            answer.fail(error)
        finally:
            fanout.origin = ""

    def _end_unless_home(self, app: str, topic: str) -> None:
        """What this node publishes for others, though it is not home as far as it knows, is not a
        run for its own sessions to join: what they publish goes to the home."""
        if self._homes.home(app, topic) is not None:
            self._hub.fanout.end()


class _SilentRun:
    """Takes messages that nobody asked an answer for to their topic's home."""

    __slots__ = ("_peer", "_publishing", "name")
    full = False  # it is looked at when such a run begins

    def __init__(self, publishing: Publishing, peer: Peer) -> None:
        self._publishing = publishing
        self._peer = peer
        self.name = peer.name

    def relay(self, app: str, messages: list[Message], *, promised: bool) -> None:
        self._publishing.publish_silently(self._peer, app, messages)


class _AskingRun:
    """Messages to one topic that are a session's requests: gathered, then under way."""

    __slots__ = (
        *("_hub", "_messages", "_peer", "_publishing", "due", "first", "name"),
        *("requests", "session"),
    )
    full = False  # it is looked at when such a run begins

    def __init__(self, publishing: Publishing, hub: Hub, peer: Peer, answer: RequestAnswer) -> None:
        self._publishing = publishing
        self._hub = hub
        self._peer = peer
        self._messages: list[Message] = []
        self.name = peer.name
        self.due = 0.0
        self.first = 0
        self.session = answer.session
        self.requests = [answer.request]

    def relay(self, app: str, messages: list[Message], *, promised: bool) -> None:
        self._messages = messages
        self._publishing.publish_requests(self._peer, app, messages, self)

    def one(self, number: int) -> Pending:
        return Pending(self._answer(number), 1, self.due, topic=True)

    def take(self, number: int, nodes: int) -> None:
        self._answer(number).ok(nodes)

    def _answer(self, number: int) -> RequestAnswer:
        place = number - self.first
        message = self._messages[place].id
        return RequestAnswer(self._hub, self.session, self.requests[place], message)


class _PeerAnswer:
    """Tells a peer what became of a message whose verdict had to wait."""

    __slots__ = ("_app", "_message", "_number", "_peer")

    def __init__(self, peer: Peer, app: str, number: int, message: Message) -> None:
        self._peer = peer
        self._app = app
        self._number = number
        self._message = message

    def ok(self, nodes: int | None = None) -> None:
        if self._number:
            self._peer.tell(Taken(self._number, 1, nodes or 0))

    def fail(self, error: RequestError) -> None:
        unknown, message = error.outcome_unknown, self._message
        returned = Returned(self._number, self._app, error.code, error.reason, message, unknown)
        self._peer.tell(returned, len(message.payload))
