"""Fan-out: a run of messages to one topic is encoded once, joined once, and shared.

Publishers that pipeline bring many messages to one topic within a tick. They are gathered into a
run and put into the outboxes together: per subscriber that is one append for the whole run instead
of one per message. A run ends when anything happens that must come after it: a message to somewhere
else, a change among the subscribers, the end of the tick.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from chappe.events.recorder import Recorder
from chappe.hub.outbox import Outboxes, TopicBatch
from chappe.message import Message
from chappe.wire.encoding import Encoding

if TYPE_CHECKING:
    from chappe.hub.app import App
    from chappe.hub.session import Session

# A run is held in memory on top of the outboxes; this bounds it.
_RUN_MESSAGES_MAX = 512
_RUN_BYTES_MAX = 256 * 1024


class _Encoded(dict[Encoding, bytes]):
    """A run's bytes for each encoding among the receivers, made when first asked for."""

    __slots__ = ("_messages",)

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages

    def __missing__(self, encoding: Encoding) -> bytes:
        encode = encoding.message
        self[encoding] = data = TopicBatch.join([encode(message) for message in self._messages])
        return data


class FanOut:
    """Gathers published messages and puts them into the subscribers' outboxes."""

    __slots__ = ("_app", "_outboxes", "_recorder", "_run_bytes", "_to", "messages")

    def __init__(self, outboxes: Outboxes, recorder: Recorder) -> None:
        self._outboxes = outboxes
        self._recorder = recorder
        self._app: App | None = None
        self._to = ""
        self._run_bytes = 0
        self.messages: list[Message] = []

    def add(self, app: App, message: Message) -> None:
        """Take a message to a topic that has subscribers."""
        messages = self.messages
        if messages and (message.to != self._to or app is not self._app):
            self.settle()
            messages = self.messages
        if not messages:
            self._to = message.to
            self._app = app
            self._run_bytes = 0
        messages.append(message)
        self._run_bytes += len(message.payload)
        if len(messages) >= _RUN_MESSAGES_MAX or self._run_bytes >= _RUN_BYTES_MAX:
            self.settle()

    def settle(self) -> None:
        """End the run: put it into the outboxes."""
        messages = self.messages
        if not messages:
            return
        assert self._app is not None
        self.messages = []
        sessions: Collection[Session] = self._app.topics.get(self._to) or ()
        encoded = _Encoded(messages)
        dirty = self._outboxes.dirty
        for session in sessions:
            outbox = session.outbox
            if not outbox:
                dirty.append(session)
            outbox.append(encoded[session.encoding])
        self._recorder.published(self._app.name, messages, len(sessions))
