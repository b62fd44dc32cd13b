"""Runs: what one read of a connection brought for one queue, taken together.

Clients that pipeline send one message after the other to the same queue, and acknowledge one after
the other. Such a run costs one look at permissions, room and the storage, one entry among those
who wait for the commit, and one frame of replies, instead of one of each for every message. Only
what is plain is taken so; the rest, and whatever is to be refused, goes the ordinary way behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from chappe.errors import Overload, RequestError
from chappe.hub.grant import EVERYTHING
from chappe.queues.check import check_message, number_of
from chappe.queues.consumer import Item, Loans
from chappe.queues.options import QueueLimits
from chappe.queues.queue import Queue
from chappe.queues.record import MessageType, Stored, extra_bytes
from chappe.queues.sending import giver_of
from chappe.wire.payload import take_payload

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session

_ONE_WAY = int(MessageType.ONE_WAY)
_REPLY_EXPECTED = int(MessageType.REPLY_EXPECTED)


class Runs:
    """Takes the sends and acknowledgements of sessions, many at once."""

    def __init__(self, hub: Hub, limits: QueueLimits, loans: Loans) -> None:
        self._hub = hub
        self._limits = limits
        self._loans = loans
        self._bytes_max = hub.limits.message_bytes_max

    def send(self, session: Session, queue: Queue, ops: list[Any], at: int) -> int:
        """Store a run of messages; answered when they are stored. How many ops that were."""
        scope, to = session.grant.send, queue.address
        if (scope is not EVERYTHING and to not in scope) or session.allowances is not None:
            return 0
        try:
            messages, accepted = self._gather(session, queue, ops, at)
        except Overload:
            return 0  # no more ids, for now
        if not messages:
            return 0
        size = sum([len(message.payload) + message.extra for message in messages])
        answers = _Answers(self._hub, session, accepted, to, messages)
        if queue.send_all(messages, size, answers.told, answers.refused):
            self._hub.recorder.queued(session.app.name, to, messages)
        else:
            # Perhaps there is room for some of them.
            for op in islice(ops, at, at + len(messages)):
                if not session.closed:
                    self._hub.receive(session, op)
        return len(messages)

    def _gather(
        self, session: Session, queue: Queue, ops: list[Any], at: int
    ) -> tuple[list[Stored], list[tuple[int, int]]]:
        """The messages of a run, and which request each answers."""
        messages: list[Stored] = []
        accepted: list[tuple[int, int]] = []
        kind, to, new_id = ops[at].__class__, queue.address, self._hub.ids.next
        now_ms, sender = self._hub.now_ms, session.address
        producers = queue.state.producers
        numbered: dict[str, int] = {}
        for op in islice(ops, at, None):
            if op.__class__ is not kind or op.to != to or not self._is_plain(op):
                break
            taken = (op.data, True) if op.data64 is True else _payload(op)
            if taken is None or taken[0] is None or len(taken[0]) > self._bytes_max:
                break
            (payload, binary), request = taken, op.id
            message = Stored(
                0,
                0,
                0,
                new_id(),
                now_ms,
                sender,
                payload,
                binary,
                _ONE_WAY if request is None else _REPLY_EXPECTED,
                None,
                op.key,
                op.headers,
                op.tags,
            )
            if op.key is not None or op.headers is not None or op.tags is not None:
                message.extra = extra_bytes(op.key, op.headers, op.tags)
            if op.producer is not None:
                # Another sender's numbers are its own.
                message.producer, message.producer_seq = f"{sender}/{op.producer}", op.seq
                if numbered.get(op.producer, -1) >= op.seq or producers.may_know(message):
                    break
                numbered[op.producer] = op.seq
            messages.append(message)
            if request is not None:
                accepted.append((request, message.id))
        return messages, accepted

    def _is_plain(self, op: Any) -> bool:
        """Whether a send is one of many: nothing has to be known or kept of it by itself."""
        if (
            op.delay_ms is not None
            or op.num is not None
            or op.consumers is not None
            or op.type is not None
        ):
            return False
        if (
            op.key is None
            and op.headers is None
            and op.tags is None
            and op.producer is None
            and op.seq is None
        ):
            return True
        try:
            check_message(op, self._limits)
        except RequestError:
            return False
        return True

    def ack(self, session: Session, ops: list[Any], at: int, now: float) -> int:
        """Take it that a session is done with messages of one group; how many ops that were."""
        items: list[Item] = []
        requests: list[int] = []
        kind, lent, group = ops[at].__class__, self._loans.lent, None
        for op in islice(ops, at, None):
            if op.__class__ is not kind:
                break
            message = op.message
            if message.__class__ is not int:
                try:
                    message = number_of(message)
                except RequestError:
                    break
            item = lent.get((session, message))
            if item is None or (group is not None and item.group is not group):
                break
            if group is None:
                group = item.group
                try:
                    group.queue.storage.check(freeing=True)
                except Overload:
                    return 0
            # At once: who acknowledges twice is told so.
            del lent[session, message]
            items.append(item)
            if op.id is not None:
                requests.append(op.id)
        if group is None:
            return 0
        group.ack_all(items, now)
        if requests:
            done = _Done(self._hub, session, requests)
            group.queue.after(done.told, done.refused)
        return len(items)


def _payload(op: Any) -> tuple[bytes, bool] | None:
    try:
        return take_payload(op)
    except RequestError:
        return None


class _Answers:
    """Tells a sender that its messages are stored, or are not."""

    __slots__ = ("_accepted", "_came", "_hub", "_messages", "_session", "_to")

    def __init__(
        self,
        hub: Hub,
        session: Session,
        accepted: list[tuple[int, int]],
        to: str,
        messages: list[Stored],
    ) -> None:
        self._hub = hub
        self._session = session
        self._accepted = accepted
        self._to = to
        self._messages = messages
        self._came = hub.recorder.came

    def told(self) -> None:
        session = self._session
        giver = giver_of(session)
        self._hub.recorder.stored(session.app.name, self._to, self._messages, self._came, giver)
        if self._accepted and not session.closed:
            self._hub.outboxes.put(session, session.encoding.all_accepted(self._accepted))
            self._hub.ensure_tick()

    def refused(self, error: RequestError) -> None:
        requests: list[int | None] = [request for request, _ in self._accepted]
        # Others asked for no answer.
        silent = len(self._messages) - len(requests)
        _refuse(self._hub, self._session, requests + [None] * silent, error)


class _Done:
    """Tells a consumer that its acknowledgements hold, or do not."""

    __slots__ = ("_hub", "_requests", "_session")

    def __init__(self, hub: Hub, session: Session, requests: list[int]) -> None:
        self._hub = hub
        self._session = session
        self._requests = requests

    def told(self) -> None:
        session = self._session
        if not session.closed:
            self._hub.outboxes.put(session, session.encoding.all_ok(self._requests))
            self._hub.ensure_tick()

    def refused(self, error: RequestError) -> None:
        _refuse(self._hub, self._session, self._requests, error)


def _refuse(
    hub: Hub, session: Session, requests: Sequence[int | None], error: RequestError
) -> None:
    if session.closed:
        return
    for request in requests:
        hub.refuse(session, request, error)
    hub.ensure_tick()
