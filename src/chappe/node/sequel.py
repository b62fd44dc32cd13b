"""The sequel: what a node tells of queues when it goes on with them, after a start or a promotion.

First what became durable in an earlier life of it which had no time to tell; then, of each queue,
that it is there, and how many messages it has. So of a message that waited when its broker was
killed it is known whether it still does. Queues in Redis are told of by their broker alone, as each
is opened: nobody knows up to where they were told of.
"""

from __future__ import annotations

import structlog

from chappe.errors import StorageError
from chappe.events.recorder import Recorder
from chappe.events.tail import Tail
from chappe.queues.broker import Broker
from chappe.queues.local import LocalStorage

log = structlog.get_logger()


class Sequel:
    """Tells what a life before said last, and what came after that."""

    def __init__(self, tail: Tail, recorder: Recorder) -> None:
        self._tail = tail
        self._recorder = recorder
        # A broker that comes back to this node later was told of by whoever had it meanwhile.
        self._told: set[str] = set()

    def tell(self, broker: str, storage: LocalStorage, queues: Broker) -> None:
        """This node serves a broker from now on."""
        position = self._tail.position(broker)
        if position is not None and broker not in self._told:
            self._told.add(broker)
            if position > storage.journal.end:
                log.error("queues.shorter", broker=broker, told=position, end=storage.journal.end)
            try:
                self._retell(storage, position)
            except (StorageError, OSError) as error:
                log.warning("queues.untold", broker=broker, reason=str(error))
        for queue in queues.queues.values():
            queues.tell_on(queue)
        self._recorder.caught_up()

    def _retell(self, storage: LocalStorage, position: int) -> None:
        if position >= storage.journal.end:
            return
        tail, count = self._tail, 0
        for one in storage.untold(position, tail.until_ms):
            if (one.kind, one.message.id, one.group) not in tail.heard:
                at, message = one.at_ms * 1000, one.message
                fate = (one.group, one.attempts, one.reason)
                self._recorder.retold(one.kind, one.app, one.queue, message, at, *fate)
                count += 1
        if count:
            log.info("queues.retold", events=count)
