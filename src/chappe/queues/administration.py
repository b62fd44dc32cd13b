"""Administration: what is taken back, looked into, or sent again (Q2, Q9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chappe.errors import BadRequest, Unreachable
from chappe.hub.permission import permit
from chappe.queues.check import number_of
from chappe.queues.inspection import browse, figures
from chappe.queues.queue import Queue
from chappe.queues.replies import Replies
from chappe.wire.ops import Cancel, Inspect, Letters

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session
    from chappe.queues.ops import Queues


class Administration:
    """What sessions ask of a queue besides sending and taking."""

    def __init__(self, queues: Queues, hub: Hub, replies: Replies) -> None:
        self._queues = queues
        self._hub = hub
        self._replies = replies

    def cancel(self, session: Session, op: Cancel) -> None:
        """Take back a delayed message; raises Unreachable for one that is not held any more."""
        message = number_of(op.message)
        queue = self._delaying(session.app.name, message) if not op.to else None
        if queue is None:
            if not op.to:
                raise Unreachable(
                    f"message: {message} is not delayed here; name its queue with `to`"
                )
            queue = self._queues.find(session.app.name, op.to)
        permit(session.grant.send, "cancel what was sent to", queue.address)
        told, refused = self._replies.teller(session, op), self._replies.refuser(session, op)
        queue.delays.cancel(message, told, refused)
        self._queues.settle()

    def _delaying(self, app: str, message: int) -> Queue | None:
        for broker in self._queues.brokers():
            for (owner, _), queue in broker.queues.items():
                if owner == app and message in queue.state.delayed_seqs:
                    return queue
        return None

    def inspect(self, session: Session, op: Inspect) -> None:
        """Show figures or messages of a queue; raises RequestError."""
        permit(session.grant.administer, "inspect", op.to)
        queue = self._queues.find(session.app.name, op.to)
        if op.n == 0:
            self._replies.show(session, op, {**figures(queue), "node": self._hub.node})
        else:
            refused = self._replies.refuser(session, op)
            browse(queue, op, lambda found: self._replies.show(session, op, found), refused)

    def letters(self, session: Session, op: Letters) -> None:
        """Replay or purge dead letters; raises RequestError."""
        permit(session.grant.administer, "deal with dead letters of", op.to)
        queue = self._queues.find(session.app.name, op.to)
        ids = None if op.messages is None else [number_of(one) for one in op.messages]
        told, refused = self._replies.counter(session, op), self._replies.refuser(session, op)
        if op.do == "replay":
            queue.letters.replay(ids, told, refused)
        elif op.do == "purge":
            queue.letters.purge(ids, told, refused)
        else:
            raise BadRequest("do: replay or purge")
        self._queues.settle()
