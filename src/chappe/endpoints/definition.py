"""Definitions: topics and queues that administrators make, kept in the directory (H16, H17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from chappe.address import parse_address
from chappe.endpoints.directory import Directory
from chappe.endpoints.history import TopicOptions
from chappe.endpoints.limits import QueueOptions
from chappe.endpoints.permission import permit
from chappe.endpoints.record import Record
from chappe.endpoints.topic import Topics
from chappe.endpoints.workqueues import WorkQueues
from chappe.errors import BadRequest, Overload, Unreachable
from chappe.hub.hub import Hub
from chappe.hub.requests import Handler
from chappe.hub.session import Session
from chappe.message import Message
from chappe.wire.ops import Create, Delete, Op, Reply

_QUEUE_FIELDS = ("volatile", "depth_max", "bytes_max", "ack_timeout_s", "attempts_max")

T = TypeVar("T")

_encode = msgspec.msgpack.encode


class QueueRecord(msgspec.Struct, frozen=True):
    """A queue, and the node it lives on."""

    owner: str
    options: QueueOptions


class Definitions:
    """Makes and removes topics with options and queues, and follows what other nodes do."""

    def __init__(
        self, hub: Hub, directory: Directory, topics: Topics, queues: WorkQueues, node: str
    ) -> None:
        self._hub = hub
        self._directory = directory
        self._topics = topics
        self._queues = queues
        self._node = node
        self._owners: dict[tuple[str, str], QueueRecord] = {}
        # Takes messages of a queue to the node that it lives on now.
        self.hand_over: Callable[[str, list[Message]], None] | None = None
        directory.subscribe("topic", self._topic_changed)
        directory.subscribe("queue", self._queue_changed)

    def handlers(self) -> dict[type[Op], Handler]:
        """The ops served here."""
        return {Create: self.create, Delete: self.delete}

    def create(self, session: Session, op: Create) -> None:
        """Make what an administrator asks for; raises RequestError."""
        permit(session.grant.administer, "administer", op.to)
        kind = parse_address(op.to).kind
        app = session.app.name
        if kind == "topic":
            self._directory.put(app, op.to, _encode(_topic_options(op)))
        elif kind == "queue":
            known = self._owners.get((app, op.to))
            if known is None:
                self._queues.check_room()
            owner = known.owner if known is not None else self._node
            self._directory.put(app, op.to, _encode(QueueRecord(owner, QueueOptions.of(op))))
        else:
            raise BadRequest(f"to: topics and queues are made so, a {kind} is not")
        self._answer(session, op.id)

    def delete(self, session: Session, op: Delete) -> None:
        """Remove what an administrator made; raises RequestError."""
        permit(session.grant.administer, "administer", op.to)
        if parse_address(op.to).kind not in ("topic", "queue"):
            raise BadRequest("to: topics and queues are removed so")
        if not self._directory.remove(session.app.name, op.to):
            raise Unreachable(f"to: {op.to} was not made, or is removed already")
        self._answer(session, op.id)

    def _answer(self, session: Session, request: int | None) -> None:
        if request is not None:
            self._hub.answer(session, Reply(id=request, ok=True))

    def owner_of(self, app: str, queue: str) -> str | None:
        """The node that a queue lives on, if it was made."""
        known = self._owners.get((app, queue))
        return None if known is None else known.owner

    def take_over(self, app: str, queue: str) -> None:
        """A queue lives on this node now, because its owner is gone: it begins empty."""
        self.move(app, queue, self._node)

    def move(self, app: str, queue: str, node: str) -> None:
        """Let a queue, if it was made, live on that node from now on."""
        known = self._owners.get((app, queue))
        if known is not None and known.owner != node:
            self._directory.put(app, queue, _encode(QueueRecord(node, known.options)))

    def _topic_changed(self, record: Record) -> None:
        options = None if record.value is None else _read(record.value, TopicOptions)
        self._topics.define(record.app, record.address, options)

    def _queue_changed(self, record: Record) -> None:
        key = (record.app, record.address)
        queue = None if record.value is None else _read(record.value, QueueRecord)
        if queue is None:
            self._owners.pop(key, None)
            self._queues.delete(*key)
            return
        self._owners[key] = queue
        if queue.owner == self._node:
            try:
                self._queues.create(*key, queue.options)
            except Overload as error:  # made elsewhere for here, or before a bound was lowered
                self._hub.recorder.refused(record.app, error.code)
        elif (messages := self._queues.give_up(*key)) and self.hand_over is not None:
            self.hand_over(record.app, messages)


def _topic_options(op: Create) -> TopicOptions:
    for name in _QUEUE_FIELDS:
        if getattr(op, name) is not None:
            raise BadRequest(f"{name}: a topic has none")
    named = {name: getattr(op, name) for name in TopicOptions.__struct_fields__}
    return TopicOptions(**{name: value for name, value in named.items() if value is not None})


def _read(value: bytes, kind: type[T]) -> T | None:
    """What a record says; None for one that a later release wrote in another way."""
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.MsgspecError, BadRequest):
        return None
