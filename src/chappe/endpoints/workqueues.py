"""The work queues of a node: carries out what sessions ask of them, on a hub (H17).

The answer to a `fetch` comes behind the messages it brought and says how many those are: at once
if there are any or it does not wait; else with the first that come, or when the wait is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chappe.endpoints.consumer import Item, Loans
from chappe.endpoints.deadline import Alarm, Timer
from chappe.endpoints.limits import QueueLimits, QueueOptions
from chappe.endpoints.permission import check_kind, permit
from chappe.endpoints.workqueue import WorkQueue
from chappe.errors import BadRequest, Overload, RequestError, Unreachable
from chappe.message import Message
from chappe.wire.ops import Ack, ClientOp, Consume, Fetch, Nack, Op, Reply, Send

if TYPE_CHECKING:
    from chappe.hub.hub import Hub
    from chappe.hub.session import Session

# What only a durable queue does with a message, and with who takes it.
_DURABLE_SEND = ("key", "headers", "tags", "delay_ms", "producer", "seq", "num")
_DURABLE_TAKE = ("group", "tags")
_DIGITS_MAX = 19


class WorkQueues:
    """All work queues of a hub, those of each app apart."""

    def __init__(self, hub: Hub, timer: Timer, limits: QueueLimits | None = None) -> None:
        self._hub = hub
        self._timer = timer
        self._limits = limits or QueueLimits()
        self._loans = Loans()
        self._alarm = Alarm(timer, self._loans.deadlines)
        self._queues: dict[tuple[str, str], WorkQueue] = {}
        self._visited: dict[Session, dict[WorkQueue, None]] = {}
        hub.on_left.append(self.session_closed)

    def handlers(self) -> dict[type[Op], Callable[[Session, Any], None]]:
        """What sessions may say of queues; a `send` to one comes to `send`."""
        return {
            Fetch: self.fetch,
            Consume: self.consume,
            Ack: self.ack,
            Nack: self.nack,
        }

    def get(self, app: str, address: str) -> WorkQueue | None:
        """The queue at an address, if one was made."""
        return self._queues.get((app, address))

    def addresses(self) -> list[tuple[str, str]]:
        """The queues there are, as (app, address)."""
        return list(self._queues)

    def create(self, app: str, address: str, options: QueueOptions) -> None:
        """Make a queue, or change the options of one; what it holds stays.

        Raises BadRequest for an address that is no queue's, Overload when there are too many.
        """
        check_kind(address, "queue")
        queue = self._queues.get((app, address))
        if queue is not None:
            queue.options = options
            return
        self.check_room()
        outlet = _HubOutlet(self._hub, app)
        self._queues[app, address] = WorkQueue(address, options, self._limits, self._loans, outlet)

    def check_room(self) -> None:
        """Raise Overload when this node holds as many queues as it may."""
        if len(self._queues) >= self._limits.queues_max:
            raise Overload(f"this node holds {self._limits.queues_max} queues already")

    def delete(self, app: str, address: str) -> bool:
        """Remove a queue with all it holds; who waits there is answered. False if there is none."""
        queue = self._queues.pop((app, address), None)
        if queue is None:
            return False
        for session in queue.close(Unreachable(f"{address} was removed")):
            visited = self._visited[session]
            del visited[queue]
            if not visited:
                del self._visited[session]
        return True

    def give_up(self, app: str, address: str) -> list[Message]:
        """Remove a queue that lives elsewhere now; what it held, in order. Who waits here is
        answered, and may ask again."""
        queue = self._queues.get((app, address))
        if queue is None:
            return []
        messages = queue.give_up()
        self.delete(app, address)
        return messages

    def take_on(self, app: str, messages: list[Message]) -> int:
        """Keep messages that another node held; how many there was no room for."""
        refused = 0
        for message in messages:
            queue = self._queues.get((app, message.to))
            try:
                if queue is None:
                    raise _unmade(message.to)
                queue.send(message, self._timer.time())
            except RequestError:
                refused += 1
        self._alarm.set()
        return refused

    def send(self, session: Session, op: Send) -> None:
        """Keep a message, or hand it to who waits; raises RequestError."""
        to = op.to
        assert isinstance(to, str), "each receiver of a list is sent to on its own"
        permit(session.grant.send, "send to", to)
        _refuse_fields(op, _DURABLE_SEND)
        queue = self._queue(session, to)
        payload, binary = self._hub.take(session, op)
        hub = self._hub
        message = Message(hub.ids.next(), session.address, to, hub.now_ms, payload, binary)
        queue.send(message, self._timer.time())
        self._alarm.set()
        hub.recorder.sent(session.app.name, (message,))
        if op.id is not None:
            hub.outboxes.put(session, session.encoding.accepted(op.id, message.id))

    def fetch(self, session: Session, op: Fetch) -> None:
        """Give a session what there is, or let it wait; raises RequestError."""
        queue = self._source(session, op, "fetch from")
        _check_range("n", op.n, 1, self._limits.unacked_max)
        _check_range("wait_ms", op.wait_ms, 0, self._limits.wait_ms_max)
        self._visit(session, queue)
        queue.fetch(session, op.id, op.n, op.wait_ms / 1000, self._timer.time())
        self._alarm.set()

    def consume(self, session: Session, op: Consume) -> None:
        """Push a session messages while it has fewer than its credit; raises RequestError."""
        queue = self._source(session, op, "consume from")
        _check_range("credit", op.credit, 0, self._limits.unacked_max)
        self._visit(session, queue)
        self._ok(session, op)
        queue.consume(session, op.credit, self._timer.time())
        self._alarm.set()

    def ack(self, session: Session, op: Ack) -> None:
        """Take it that a session is done with a message; raises BadRequest if it has it not."""
        item = self._lent(session, op)
        self._ok(session, op)
        item.queue.ack(item, self._timer.time())
        self._alarm.set()

    def nack(self, session: Session, op: Nack) -> None:
        """Hand a message to the next; raises BadRequest if the session has it not."""
        item = self._lent(session, op)
        self._ok(session, op)
        item.queue.give_back(item, self._timer.time())
        self._alarm.set()

    def session_closed(self, session: Session) -> None:
        """Give what a session had not acknowledged to the next."""
        visited = self._visited.pop(session, None)
        if visited is None:
            return
        now = self._timer.time()
        for queue in visited:
            queue.leave(session, now)
        self._alarm.set()

    def stop(self) -> None:
        """Let no deadline pass any more."""
        self._alarm.stop()

    def _queue(self, session: Session, to: str) -> WorkQueue:
        queue = self._queues.get((session.app.name, to))
        if queue is None:
            check_kind(to, "queue")
            raise _unmade(to)
        return queue

    def _source(self, session: Session, op: Fetch | Consume, verb: str) -> WorkQueue:
        permit(session.grant.subscribe, verb, op.to)
        queue = self._queue(session, op.to)
        _refuse_fields(op, _DURABLE_TAKE)
        return queue

    def _visit(self, session: Session, queue: WorkQueue) -> None:
        self._visited.setdefault(session, {})[queue] = None

    def _lent(self, session: Session, op: Ack | Nack) -> Item:
        message = op.message
        if isinstance(message, str):
            # Prefixed ids are not a queue's, and int() would read more than digits.
            if not (message.isascii() and message.isdigit() and len(message) <= _DIGITS_MAX):
                raise BadRequest("message: not the id of a queue's message")
            message = int(message)
        item = self._loans.lent.get(message)
        if item is None or item.consumer is None or item.consumer.session is not session:
            raise BadRequest(
                f"message: {message} is not with this session: it was acknowledged or handed back "
                "already, its time ran out, its queue was removed, or it was never delivered here"
            )
        return item

    def _ok(self, session: Session, op: ClientOp) -> None:
        if op.id is not None:
            self._hub.answer(session, Reply(id=op.id, ok=True))


class _HubOutlet:
    """Carries out on a hub what the queues of an app decide."""

    __slots__ = ("_app", "_hub")

    def __init__(self, hub: Hub, app: str) -> None:
        self._hub = hub
        self._app = app

    def deliver(self, session: Session, message: Message) -> bool:
        return self._hub.outboxes.put_promised(session, session.encoding.message(message))

    def fetched(self, session: Session, request: int | None, n: int) -> None:
        if request is not None:
            self._hub.answer(session, Reply(id=request, ok=True, n=n))

    def refused(self, session: Session, request: int | None, error: RequestError) -> None:
        self._hub.refuse(session, request, error)

    def dropped(self, reason: str, messages: int) -> None:
        self._hub.recorder.dropped(self._app, reason, messages)


def _unmade(to: str) -> Unreachable:
    return Unreachable(f"{to} does not exist: an administrator makes a queue with create")


def _refuse_fields(op: Op, names: tuple[str, ...]) -> None:
    """Nothing that was asked for is ignored silently."""
    for name in names:
        if getattr(op, name) is not None:
            raise BadRequest(f"{name}: not for a volatile queue")


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadRequest(f"{name}: must be between {least} and {most}")
