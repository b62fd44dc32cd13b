"""Answers that come later: a verdict from another node, told to whoever asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from chappe.errors import RequestError
from chappe.wire.ops import Reply

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session


class Answer(Protocol):
    """Takes one verdict, once."""

    def ok(self, nodes: int | None = None) -> None:
        """It was taken; for a topic, by that many nodes."""
        ...

    def fail(self, error: RequestError) -> None:
        """It was not, or nobody knows."""
        ...


class RequestAnswer:
    """Answers the request of a session about one message."""

    __slots__ = ("_hub", "_message", "request", "session")

    def __init__(self, hub: Hub, session: Session, request: int, message: int) -> None:
        self._hub = hub
        self.session = session
        self.request = request
        self._message = message

    def ok(self, nodes: int | None = None) -> None:
        session = self.session
        if nodes is None:
            data = session.encoding.accepted(self.request, self._message)
            self._hub.outboxes.put(session, data)
            return
        message = session.encoding.message_id(self._message)
        self._hub.answer(session, Reply(id=self.request, ok=True, message=message, nodes=nodes))

    def fail(self, error: RequestError) -> None:
        self._hub.refuse(self.session, self.request, error)


class SilentAnswer:
    """Counts the errors of a message nobody waits for."""

    __slots__ = ("_app", "_hub")

    def __init__(self, hub: Hub, app: str) -> None:
        self._hub = hub
        self._app = app

    def ok(self, nodes: int | None = None) -> None:
        """Nobody waits for it."""

    def fail(self, error: RequestError) -> None:
        self._hub.recorder.refused(self._app, error.code)


class JointAnswer:
    """Answers a send to a list once the verdict of each receiver is known."""

    __slots__ = (
        "_errors",
        "_hub",
        "_message",
        "_receivers",
        "_request",
        "_same",
        "_session",
        "_waiting",
    )

    def __init__(
        self,
        hub: Hub,
        session: Session,
        request: int | None,
        message: int,
        receivers: Iterable[str],
    ) -> None:
        self._hub = hub
        self._session = session
        self._request = request
        self._message = message
        self._receivers = tuple(receivers)
        self._waiting = len(self._receivers)
        self._errors: dict[str, RequestError] = {}
        self._same: dict[str, str] = {}

    def of(self, receiver: str) -> Answer:
        """The part of one receiver."""
        return _PartAnswer(self, receiver)

    def follow(self, receiver: str, first: str) -> None:
        """A receiver that is the same as one before it has the same verdict."""
        self._same[receiver] = first
        self.settle(receiver, None)

    def settle(self, receiver: str, error: RequestError | None) -> None:
        """Take one receiver's verdict."""
        if error is not None:
            self._errors[receiver] = error
            self._hub.recorder.refused(self._session.app.name, error.code)
        self._waiting -= 1
        if not self._waiting and self._request is not None:
            self._hub.answer(self._session, self._reply(self._request))

    def _reply(self, request: int) -> Reply:
        errors = self._errors
        for receiver, first in self._same.items():
            if first in errors:
                errors[receiver] = errors[first]
        reply = Reply(
            id=request,
            ok=not errors,
            message=self._session.encoding.message_id(self._message),
            verdicts={to: errors[to].code if to in errors else "ok" for to in self._receivers},
        )
        # The first receiver's, whoever's verdict came first.
        for error in (errors[to] for to in self._receivers if to in errors):
            reply.error, reply.reason = error.code, error.reason
            reply.outcome = "unknown" if getattr(error, "outcome_unknown", False) else None
            break
        return reply


class _PartAnswer:
    __slots__ = ("_joint", "_receiver")

    def __init__(self, joint: JointAnswer, receiver: str) -> None:
        self._joint = joint
        self._receiver = receiver

    def ok(self, nodes: int | None = None) -> None:
        self._joint.settle(self._receiver, None)

    def fail(self, error: RequestError) -> None:
        self._joint.settle(self._receiver, error)
