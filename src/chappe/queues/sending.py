"""Sending: stores what sessions send to queues, one message at a time (Q5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chappe.hub.permission import permit
from chappe.queues.check import check_message
from chappe.queues.record import MessageType, Stored, extra_bytes
from chappe.queues.replies import Replies
from chappe.wire.ops import Reply, Send

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session
    from chappe.queues.ops import Queues

# Where sessions come in that stand for those of other nodes.
LINK = "link"
_ONE_WAY = int(MessageType.ONE_WAY)
_REPLY_EXPECTED = int(MessageType.REPLY_EXPECTED)


class Sending:
    """What sessions send."""

    def __init__(self, queues: Queues, hub: Hub, replies: Replies) -> None:
        self._queues = queues
        self._hub = hub
        self._replies = replies

    def send(self, session: Session, op: Send) -> None:
        """Store a message; answered when it is stored; raises RequestError."""
        to = op.to
        assert isinstance(to, str), "each receiver of a list is sent to on its own"
        permit(session.grant.send, "send to", to)
        queue = self._queues.find(session.app.name, to)
        check_message(op, self._queues.limits)
        payload, binary = self._hub.take(session, op)
        hub, request = self._hub, op.id
        kind = op.type
        if kind is None:
            kind = _ONE_WAY if request is None else _REPLY_EXPECTED
        else:
            kind = int(MessageType(kind))
        message = Stored(
            0,
            0,
            0,
            hub.ids.next(),
            hub.now_ms,
            session.address,
            payload,
            binary,
            kind,
            op.num,
            op.key,
            op.headers,
            op.tags,
            op.consumers,
            # Another sender's numbers are its own.
            None if op.producer is None else f"{session.address}/{op.producer}",
            op.seq,
            None if op.delay_ms is None else hub.now_ms + op.delay_ms,
            extra=extra_bytes(op.key, op.headers, op.tags, op.consumers),
        )

        app, came, came_from = session.app.name, hub.recorder.came, giver_of(session)

        def stored(id: int) -> None:
            if id == message.id:  # else it came before
                hub.recorder.stored(app, to, (message,), came, came_from)
            if request is None or session.closed:
                return
            if op.num is None:
                hub.outboxes.put(session, session.encoding.accepted(request, id))
            else:
                shown = session.encoding.message_id(id)
                hub.answer(session, Reply(id=request, ok=True, message=shown, num=op.num))
            hub.ensure_tick()

        queue.send(message, stored, self._replies.refuser(session, op))
        hub.recorder.queued(session.app.name, to, (message,))
        self._queues.volatile.settle()


def giver_of(session: Session) -> str:
    """The node that a session's messages come from; none: this one."""
    return session.peer if session.edge == LINK else ""
