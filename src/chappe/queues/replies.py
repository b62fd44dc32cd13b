"""Replies: how sessions are answered once what they asked of a queue is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from chappe.errors import RequestError
from chappe.wire.ops import ClientOp, Reply

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session


class Replies:
    """Answers ops, those that want an answer and whose session is still there."""

    __slots__ = ("_hub",)

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def ok(self, session: Session, op: ClientOp) -> None:
        """Tell that it is done."""
        if op.id is not None:
            self._hub.outboxes.put(session, session.encoding.ok(op.id))

    def show(self, session: Session, op: ClientOp, shown: dict[str, Any]) -> None:
        """Tell what was asked for."""
        if op.id is not None and not session.closed:
            data = msgspec.Raw(msgspec.json.encode(shown))
            self._hub.answer(session, Reply(id=op.id, ok=True, data=data))
            self._hub.ensure_tick()

    def counter(self, session: Session, op: ClientOp) -> Callable[[int], None]:
        """Whom to call later, to tell how many it were."""

        def told(count: int) -> None:
            if op.id is not None and not session.closed:
                self._hub.answer(session, Reply(id=op.id, ok=True, n=count))
                self._hub.ensure_tick()

        return told

    def teller(self, session: Session, op: ClientOp) -> Callable[[], None]:
        """Whom to call later, to tell that it is done."""

        def told() -> None:
            if not session.closed:
                self.ok(session, op)
                self._hub.ensure_tick()

        return told

    def refuser(self, session: Session, op: ClientOp) -> Callable[[RequestError], None]:
        """Whom to call later, to tell that it is not."""

        def refused(error: RequestError) -> None:
            if not session.closed:
                self._hub.refuse(session, op.id, error)
                self._hub.ensure_tick()

        return refused
