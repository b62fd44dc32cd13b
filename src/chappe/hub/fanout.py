"""Fan-out: a run of messages to one address is encoded once, joined once, and shared.

Senders that pipeline bring many messages to one address within a tick. They are gathered into a run
and put into the outboxes together: per receiving session that is one append for the whole run
instead of one per message. A run ends when anything happens that must come after it: a message to
somewhere else, a change among the receivers, the end of the tick.

A user and a topic differ in one thing only: what was promised to a user may not be dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Protocol

from chappe.events.recorder import Recorder
from chappe.hub.outbox import Outboxes, TopicFrames
from chappe.message import Message
from chappe.wire.encoding import Encoding

if TYPE_CHECKING:
    from chappe.hub.app import App
    from chappe.hub.session import Session

# A run is held in memory on top of the outboxes, and promises join it without asking them again:
# this much, or what one read of one connection brought.
RUN_MESSAGES_MAX = 512
RUN_BYTES_MAX = 256 * 1024
_NOWHERE: list[str] = []


class Relay(Protocol):
    """Another node, as a run sees it: where receivers may be, too."""

    name: str

    @property
    def full(self) -> bool:
        """Whether it will leave out what it is asked to take along."""
        ...

    def relay(self, app: str, messages: list[Message], *, promised: bool) -> None:
        """Take a run along; the list is the relay's from now on."""
        ...


class Asking(Protocol):
    """Whose requests the messages of a run to elsewhere are, one for each."""

    session: Session
    requests: list[int]


class FanOut:
    """The run that is being gathered.

    `to` in `app` is where it goes. `sender` is a session that may send there, as was checked when
    it last did: more of the same from it need not be checked again. The fields are plain because
    the path of every message compares with them.
    """

    __slots__ = (
        "_bytes",
        "_outboxes",
        "_recorder",
        "_relays",
        "_sessions",
        "app",
        "asking",
        "came_from",
        "elsewhere",
        "foreign",
        "messages",
        "nodes",
        "origin",
        "promised",
        "sender",
        "to",
    )

    def __init__(self, outboxes: Outboxes, recorder: Recorder) -> None:
        self._outboxes = outboxes
        self._recorder = recorder
        self._sessions: Collection[Session] = ()
        self._relays: Collection[Relay] = ()
        self._bytes = 0
        self.nodes = 0
        # The node whose words are being carried out, and the one that the run came from: all of
        # its messages did. Nobody: a session of this node.
        self.origin = self.came_from = ""
        self.foreign = False
        self.elsewhere = False
        self.asking: Asking | None = None
        self.sender: Session | None = None
        self.app: App | None = None
        self.to = ""
        self.promised = False
        self.messages: list[Message] = []

    def begin(
        self,
        app: App,
        to: str,
        sessions: Collection[Session],
        *,
        promised: bool,
        relays: Collection[Relay] = (),
        foreign: bool = False,
        elsewhere: bool = False,
        asking: Asking | None = None,
    ) -> None:
        """Start a run to these sessions and nodes, after ending the one before it.

        A foreign run came from another node, which knows of the others: messages of this node's own
        sessions do not join it. A run to elsewhere is for another node to deliver or to publish:
        either all of its messages are requests of one session, which that node's verdict answers,
        or none is a request.
        """
        if self.messages:
            self.settle()
        self.app = app
        self.to = to
        self.promised = promised
        self.came_from = self.origin
        self.sender = None
        self._bytes = 0
        self._sessions = sessions
        self._relays = relays
        self.nodes = bool(sessions) + len(relays)
        if relays and not promised:
            self.nodes -= len([relay for relay in relays if relay.full])
        self.foreign = foreign
        self.elsewhere = elsewhere
        self.asking = asking

    def joins_elsewhere(self, session: Session, request: int | None) -> bool:
        """Whether a message of a session may join a run to elsewhere; it has to, then."""
        asking = self.asking
        if request is None or asking is None:
            return request is None and asking is None
        if asking.session is session:
            asking.requests.append(request)
            return True
        return False

    def add(self, message: Message, sender: Session | None) -> None:
        """Take a message to the run's address from a session whose right to send there was checked.

        A run that has grown large ends.
        """
        self.sender = sender
        self.messages.append(message)
        self._bytes += len(message.payload)
        if len(self.messages) >= RUN_MESSAGES_MAX or self._bytes >= RUN_BYTES_MAX:
            self.end()

    def extend(self, messages: list[Message]) -> None:
        """Take messages to the run's address that another node has checked.

        A run that has grown large ends.
        """
        self.sender = None
        self.messages += messages
        self._bytes += sum([len(message.payload) for message in messages])
        if len(self.messages) >= RUN_MESSAGES_MAX or self._bytes >= RUN_BYTES_MAX:
            self.end()

    def add_all(self, messages: list[Message]) -> None:
        """Take messages to the run's address, no more than a run may hold; the run ends."""
        self.messages += messages
        self.end()

    def end(self) -> None:
        """End the run: what comes next begins another."""
        if self.messages:
            self.settle()
        self.to = ""
        self.app = None
        self.sender = None
        self._sessions = ()
        self._relays = ()

    def settle(self) -> None:
        """Put what was gathered into the outboxes."""
        # Taken first: closing a session, whoever does it, ends the run.
        messages, self.messages = self.messages, []
        assert self.app is not None
        app, sessions, recorder = self.app.name, self._sessions, self._recorder
        came_from, went_to = self.came_from, _NOWHERE
        if self._relays:
            went_to = [relay.name for relay in self._relays if not relay.full]
            for relay in self._relays:
                relay.relay(app, messages, promised=self.promised)
        if self.elsewhere:
            recorder.forwarded(app, messages, came_from, went_to, promised=self.promised)
        elif self.promised:
            self._put_promised(messages, sessions)
            recorder.sent(app, messages, len(sessions), came_from, went_to)
        else:
            self.put_droppable(messages, sessions)
            recorder.published(app, messages, len(sessions), came_from, went_to)

    def put_droppable(self, messages: list[Message], sessions: Collection[Session]) -> None:
        """Put messages of a topic into outboxes, encoded once for all."""
        encoded = _Encoded(messages)
        dirty = self._outboxes.dirty
        for session in sessions:
            outbox = session.outbox
            if not outbox:
                dirty.append(session)
            outbox.append(encoded[session.encoding])

    def _put_promised(self, messages: list[Message], sessions: Collection[Session]) -> None:
        outboxes = self._outboxes
        for session in sessions:
            encoding = session.encoding
            if not outboxes.takes(session):
                # Some other session of the receiver has taken them; this one takes what it can.
                for message in messages:
                    if not outboxes.put_promised(session, encoding.message(message)):
                        outboxes.miss(session)
                continue
            outbox = session.outbox
            if not outbox:
                outboxes.dirty.append(session)
            data = encoding.messages(messages)
            session.promised_bytes += len(data)
            outbox.append(data)


def runs_of(messages: list[Message]) -> Iterator[list[Message]]:
    """Messages in order, those to one address together, as many as a run may hold."""
    start, to, size = 0, "", 0
    for place, message in enumerate(messages):
        if message.to != to or size >= RUN_BYTES_MAX or place - start >= RUN_MESSAGES_MAX:
            if place > start:
                yield messages[start:place]
            start, to, size = place, message.to, 0
        size += len(message.payload)
    if messages:
        yield messages[start:]


class _Encoded(dict[Encoding, bytes]):
    """A run's bytes for each encoding among the receivers, made when first asked for."""

    __slots__ = ("_messages",)

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def __missing__(self, encoding: Encoding) -> bytes:
        self[encoding] = data = TopicFrames.of(self._messages, encoding)
        return data
