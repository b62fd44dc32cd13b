"""Definitions: topics and queues that administrators make, kept in the directory (H16, H17, Q3).

A queue in memory, or on Redis, lives on the node that its record names, and moves when that goes.
One in a journal lives wherever that journal's master is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
import structlog

from chappe.address import parse_address
from chappe.endpoints.directory import Directory
from chappe.endpoints.history import TopicOptions
from chappe.endpoints.record import Record
from chappe.endpoints.topic import Topics
from chappe.errors import BadRequest, Overload, RequestError, Unreachable
from chappe.hub.hub import Hub
from chappe.hub.permission import permit
from chappe.hub.requests import Handler
from chappe.hub.session import Session
from chappe.queues.broker import Broker
from chappe.queues.ops import REDIS, Queues
from chappe.queues.options import QueueOptions
from chappe.queues.record import Stored
from chappe.queues.storage import Key
from chappe.wire.ops import Create, Delete, Op, Reply

log = structlog.get_logger()

_TOPIC_FIELDS = TopicOptions.__struct_fields__
_QUEUE_FIELDS = QueueOptions.__struct_fields__

# What may wait for one queue to be made or removed: milliseconds, as long as its storage answers.
_WAITING_MAX = 10_000
# What all of that may have of payloads.
_WAITING_BYTES_MAX = 16 * 1024 * 1024

T = TypeVar("T")

_encode = msgspec.msgpack.encode


class QueueRecord(msgspec.Struct, frozen=True):
    """A queue, and the node it lives on; or the journal it lives in."""

    owner: str
    options: QueueOptions
    broker: str = ""


class Definitions:
    """Makes and removes topics with options and queues, and follows what other nodes do."""

    def __init__(
        self, hub: Hub, directory: Directory, topics: Topics, queues: Queues, node: str
    ) -> None:
        self._hub = hub
        self._directory = directory
        self._topics = topics
        self._queues = queues
        self.node = node
        self._owners: dict[Key, QueueRecord] = {}
        # Queues that are being made or removed, and what was asked of them since: it waits.
        self.changing: dict[Key, deque[tuple[Callable[[], None], int]]] = {}
        self._waiting_bytes = 0
        # Where durable queues that are made here live: a journal of that name, or "redis".
        self.engine = ""
        # The node that is the master of a journal.
        self.master_of: Callable[[str], str | None] = lambda broker: broker
        # Takes messages of a queue to the node that it lives on now.
        self.hand_over: Callable[[str, list[tuple[str, Stored]]], None] | None = None
        # Why a journal's queues are served by nobody.
        self.refusal: Callable[[str], str] = lambda broker: "its journal is not open"
        queues.why_away = self._why_away
        directory.subscribe("topic", self._topic_changed)
        directory.subscribe("queue", self._queue_changed)

    def handlers(self) -> dict[type[Op], Handler]:
        """The ops served here."""
        return {Create: self.create, Delete: self.delete}

    def create(self, session: Session, op: Create) -> None:
        """Make what an administrator asks for; raises RequestError."""
        permit(session.grant.administer, "administer", op.to)
        kind = parse_address(op.to).kind
        if kind == "topic":
            self._directory.put(session.app.name, op.to, _encode(_topic_options(op)))
            self._answer(session, op.id)
        elif kind == "queue":
            known = self._owners.get((session.app.name, op.to))
            self._create_queue(session, op, _queue_options(op, known))
        else:
            raise BadRequest(f"to: topics and queues are made so, a {kind} is not")

    def _create_queue(self, session: Session, op: Create, options: QueueOptions) -> None:
        key = (session.app.name, op.to)
        known = self._owners.get(key)
        if known is None:
            self._queues.check_room()
        elif known.options.volatile != options.volatile:
            kind = "volatile" if known.options.volatile else "durable"
            raise BadRequest(f"volatile: {op.to} was made {kind}; remove it first")
        record = self._record(known, options)
        broker = self._broker(record)

        def made(error: RequestError | None) -> None:
            if error is None:
                # Also when nobody waits for the answer any more: the queue is there.
                self._directory.put(*key, _encode(record))
            if error is not None and not session.closed:
                self._hub.refuse(session, op.id, error)
            elif not session.closed:
                queue = broker.queues.get(key)
                self._answer(session, op.id, None if queue is None else queue.state.lanes)
            self._hub.ensure_tick()
            self._changed(key)

        with self._change(key):
            broker.make(key, options, made)
        self._queues.volatile.settle()

    @contextmanager
    def _change(self, key: Key) -> Iterator[None]:
        """Begin to make or to remove a queue; it is over with `_changed`, or if that is refused."""
        self.changing[key] = deque()
        try:
            yield
        except RequestError:
            self._changed(key)
            raise

    def _changed(self, key: Key) -> None:
        """A queue was made or removed: go on with what waited for that, until another does."""
        waiting = self.changing.pop(key, deque())
        while waiting and key not in self.changing:
            action, size = waiting.popleft()
            self._waiting_bytes -= size
            action()
        if waiting:
            self.changing[key].extend(waiting)

    def wait(self, key: Key, action: Callable[[], None], size: int = 0) -> None:
        """Do something, with so many bytes, once a queue is made or removed; raises Overload when
        too much waits."""
        waiting = self.changing[key]
        if len(waiting) >= _WAITING_MAX or self._waiting_bytes + size > _WAITING_BYTES_MAX:
            raise Overload(f"to: {key[1]} is being made or removed, and {len(waiting)} ops wait")
        self._waiting_bytes += size
        waiting.append((action, size))

    def _record(self, known: QueueRecord | None, options: QueueOptions) -> QueueRecord:
        if known is not None:
            return QueueRecord(known.owner, options, known.broker)
        if options.volatile or self.engine == REDIS:
            return QueueRecord(self.node, options)
        led = self._queues.durable
        # A node that does not lead its own journal makes queues in one that it leads.
        return QueueRecord(
            self.node, options, self.engine if self.engine in led else next(iter(led), self.engine)
        )

    def _broker(self, record: QueueRecord) -> Broker:
        """The broker that a queue lives in; raises Overload or BadRequest when it is not here."""
        if record.options.volatile:
            return self._queues.volatile
        broker = self._queues.durable.get(record.broker or REDIS)
        if broker is None and record.broker:
            raise Overload(f"to: its journal {record.broker} is on another node")
        if broker is None:
            raise BadRequest(
                "volatile: this node keeps queues in memory only; say volatile: true to have one"
            )
        return broker

    def delete(self, session: Session, op: Delete) -> None:
        """Remove what an administrator made; raises RequestError."""
        permit(session.grant.administer, "administer", op.to)
        if parse_address(op.to).kind not in ("topic", "queue"):
            raise BadRequest("to: topics and queues are removed so")
        known = self._owners.get((session.app.name, op.to))
        if known is None:
            self._forget(session, op)
            return

        def removed(error: RequestError | None) -> None:
            if error is not None:
                self._hub.refuse(session, op.id, error)
            else:
                self._forget(session, op)
            self._hub.ensure_tick()
            self._changed(key)

        broker, key = self._broker(known), (session.app.name, op.to)
        with self._change(key):
            broker.remove(key, Unreachable(f"{op.to} was removed"), removed)

    def _forget(self, session: Session, op: Delete) -> None:
        if self._directory.remove(session.app.name, op.to):
            self._answer(session, op.id)
        else:
            error = Unreachable(f"to: {op.to} was not made, or is removed already")
            self._hub.refuse(session, op.id, error)

    def _answer(
        self, session: Session, request: int | None, lanes: list[int] | None = None
    ) -> None:
        if request is not None:
            self._hub.answer(session, Reply(id=request, ok=True, lanes=lanes))

    def queues(self, app: str) -> dict[str, QueueRecord]:
        """The queues of an app, wherever they live."""
        return {address: record for (name, address), record in self._owners.items() if name == app}

    def owner_of(self, app: str, queue: str) -> str | None:
        """The node that a queue lives on, if it was made."""
        known = self._owners.get((app, queue))
        if known is None:
            return None
        return self.master_of(known.broker) or known.broker if known.broker else known.owner

    def _why_away(self, app: str, queue: str) -> str | None:
        known = self._owners.get((app, queue))
        return self.refusal(known.broker) if known is not None and known.broker else None

    def stays(self, app: str, queue: str) -> bool:
        """Whether a queue waits for its node, instead of moving to another."""
        known = self._owners.get((app, queue))
        return known is not None and bool(known.broker)

    def take_over(self, app: str, queue: str) -> None:
        """A queue lives on this node now, because its owner is gone: it begins with what is stored
        of it, nothing if it is volatile."""
        self.move(app, queue, self.node)

    def move(self, app: str, queue: str, node: str) -> None:
        """Let a queue, if it was made and may move, live on that node from now on."""
        known = self._owners.get((app, queue))
        if known is not None and not known.broker and known.owner != node:
            self._directory.put(app, queue, _encode(QueueRecord(node, known.options)))

    def keep(self) -> None:
        """An engine is there: open the queues that were known to live here before it was."""
        for key, known in self._owners.items():
            if not known.broker and not known.options.volatile and known.owner == self.node:
                self._keep(key, known)

    def announce(self, broker: Broker, formerly: str = "") -> None:
        """Tell of queues that were found in a journal, which may have had another name."""
        for (app, address), queue in broker.queues.items():
            known = self._owners.get((app, address))
            if known is not None and known.broker not in (broker.name, formerly):
                log.error(
                    "queue.twice", app=app, queue=address, here=broker.name, there=known.broker
                )
            elif known is None or known.broker != broker.name:
                record = QueueRecord(self.node, queue.state.options, broker.name)
                self._directory.put(app, address, _encode(record))

    def _topic_changed(self, record: Record) -> None:
        options = None if record.value is None else _read(record.value, TopicOptions)
        self._topics.define(record.app, record.address, options)

    def _queue_changed(self, record: Record) -> None:
        key = (record.app, record.address)
        queue = None if record.value is None else _read(record.value, QueueRecord)
        if queue is None and record.value is not None:
            # Made, or changed, by a later release: what is here of it stays.
            log.warning("queue.unreadable", app=record.app, queue=record.address)
            return
        if queue is None:
            self._owners.pop(key, None)
            for broker in self._queues.brokers():
                broker.remove(key, Unreachable(f"{record.address} was removed"))
            return
        self._owners[key] = queue
        if queue.broker:
            self._follow(key, queue)
        elif queue.owner == self.node:
            self._keep(key, queue)
        else:
            self._give_up(key, queue)

    def _follow(self, key: Key, queue: QueueRecord) -> None:
        """A queue in a journal has other options; if that is mastered here, it is to have them."""
        broker = self._queues.durable.get(queue.broker)
        here = None if broker is None else broker.queues.get(key)
        if broker is not None and (here is None or here.state.options != queue.options):
            broker.make(key, queue.options, lambda error: None)

    def _keep(self, key: Key, queue: QueueRecord) -> None:
        def made(error: RequestError | None) -> None:
            if error is not None:
                self._hub.recorder.refused(key[0], error.code)

        try:
            if self._queues.get(*key) is None:
                self._queues.check_room()
            self._broker(queue).make(key, queue.options, made)
            self._queues.volatile.settle()
        except RequestError as error:  # made elsewhere for here, or before a bound was lowered
            self._hub.recorder.refused(key[0], error.code)

    def _give_up(self, key: Key, queue: QueueRecord) -> None:
        """A queue lives elsewhere: what was in memory goes there, what is on Redis is there."""
        error = Unreachable(f"{key[1]} lives on another node now")
        for broker in self._queues.durable.values():
            broker.release(key, error)
        messages = self._queues.volatile.give_up(key, error)
        if messages and self.hand_over is not None:
            self.hand_over(key[0], [(key[1], message) for message in messages])


def _topic_options(op: Create) -> TopicOptions:
    for name in _QUEUE_FIELDS:
        if getattr(op, name) is not None:
            raise BadRequest(f"{name}: a topic has none")
    named = {name: getattr(op, name) for name in _TOPIC_FIELDS}
    return TopicOptions(**{name: value for name, value in named.items() if value is not None})


def _queue_options(op: Create, known: QueueRecord | None) -> QueueOptions:
    for name in _TOPIC_FIELDS:
        if getattr(op, name) is not None:
            raise BadRequest(f"{name}: a queue has none")
    said = {name: getattr(op, name) for name in _QUEUE_FIELDS}
    if known is not None:
        # What is not said stays as it was: a producer that requests a queue changes nothing else.
        before = msgspec.structs.asdict(known.options)
        said = {name: before[name] if value is None else value for name, value in said.items()}
    return QueueOptions.of(said)


def _read(value: bytes, kind: type[T]) -> T | None:
    """What a record says; None for one that a later release wrote in another way."""
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.MsgspecError, BadRequest):
        return None
