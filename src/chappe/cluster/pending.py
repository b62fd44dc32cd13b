"""What waits for another node's verdict: a message on its own, or a run of a session's requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from chappe.errors import RequestError
from chappe.hub.answer import Answer, RequestAnswer
from chappe.message import Message

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session


class Awaited(Protocol):
    """One message, or several, by their numbers on one link."""

    due: float

    def one(self, number: int) -> Pending:
        """The one of that number, on its own."""
        ...

    def take(self, number: int, nodes: int) -> None:
        """The node has taken the one of that number; a topic's, so many nodes have."""
        ...


class AwaitedRun(Awaited, Protocol):
    """Messages whose numbers follow each other."""

    # The number of the first of them; given with the link that they go by.
    first: int


class Pending:
    """A message whose verdict has not come: how many nodes may still take it."""

    __slots__ = ("answer", "due", "last", "nodes", "topic", "unknown")

    def __init__(
        self, answer: Answer, nodes: int, due: float, *, last: bool = False, topic: bool = False
    ) -> None:
        self.answer = answer
        self.nodes = nodes
        self.due = due
        # Whether it has been looked for once more already (H11).
        self.last = last
        # Whether it is a topic's, so that the verdict tells how many nodes took it.
        self.topic = topic
        # The error of a node that may have taken it all the same: then it is not sent again, and
        # no other node's refusal is the verdict.
        self.unknown: RequestError | None = None

    def fail(self, error: RequestError) -> None:
        """One of the nodes will not take it; the last one's word is the verdict."""
        if error.outcome_unknown:
            self.unknown = error
        self.nodes -= 1
        if not self.nodes:
            self.answer.fail(self.unknown or error)

    def one(self, number: int) -> Pending:
        """The one of that number, which is all there is."""
        return self

    def take(self, number: int, nodes: int) -> None:
        """One of the nodes has taken it."""
        if self.nodes > 0:
            self.nodes = -1  # whatever the others say
            self.answer.ok(nodes if self.topic else None)

    @property
    def open(self) -> bool:
        """Whether the verdict is still awaited."""
        return self.nodes > 0

    @property
    def may_repeat(self) -> bool:
        """Whether the last node that may take it refusing, it may be looked for once more."""
        return self.nodes == 1 and not self.last and self.unknown is None


class PendingRun:
    """A run of messages, all requests of one session, whose verdicts have not come."""

    __slots__ = ("_hub", "_messages", "_requests", "_session", "due", "first")

    def __init__(
        self,
        hub: Hub,
        session: Session,
        requests: list[int],
        messages: list[Message],
        due: float,
    ) -> None:
        self.due = due
        # The number of its first message; given with the link that it goes by.
        self.first = 0
        self._hub = hub
        self._session = session
        self._requests = requests
        self._messages = messages

    def one(self, number: int) -> Pending:
        """The one of that number, on its own."""
        place = number - self.first
        request, message = self._requests[place], self._messages[place].id
        return Pending(RequestAnswer(self._hub, self._session, request, message), 1, self.due)

    def take(self, number: int, nodes: int) -> None:
        """The node has taken the one of that number."""
        place, session = number - self.first, self._session
        data = session.encoding.accepted(self._requests[place], self._messages[place].id)
        self._hub.outboxes.put(session, data)
