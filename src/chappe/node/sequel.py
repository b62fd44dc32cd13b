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
from chappe.queues.untold import Untold

log = structlog.get_logger()


# More than a node stores from one of its words to the next; held until its broker is served.
RETOLD_MAX = 100_000


class Sequel:
    """Tells what a life before said last, and what came after that."""

    def __init__(self, tail: Tail, recorder: Recorder) -> None:
        self._tail = tail
        self._recorder = recorder
        # A broker that comes back to this node later was told of by whoever had it meanwhile.
        self._told: set[str] = set()
        self._found: dict[str, list[Untold]] = {}

    def read(self, broker: str, storage: LocalStorage) -> None:
        """Read what is to be told of a journal that this node is about to serve, blocking."""
        position = self._tail.position(broker)
        if position is None or broker in self._told:
            return
        found = self._found[broker] = []
        end = storage.journal.end
        if position > end:
            log.error("queues.shorter", broker=broker, told=position, end=end)
        if position >= end:
            return
        try:
            self._gather(found, storage, position, self._tail.epochs.get(broker))
        except (StorageError, OSError) as error:
            log.warning("queues.untold", broker=broker, reason=str(error))
        if len(found) > RETOLD_MAX:
            found.pop()
            log.warning("queues.untold", broker=broker, reason=f"more than {RETOLD_MAX} events")

    def _gather(
        self, found: list[Untold], storage: LocalStorage, position: int, epoch: int | None
    ) -> None:
        """Take one more than may be told, if there are as many."""
        for one in storage.untold(position, self._tail.until_ms, epoch):
            if (one.kind, one.message.id, one.group) not in self._tail.heard:
                found.append(one)
                if len(found) > RETOLD_MAX:
                    return

    def tell(self, broker: str, queues: Broker) -> None:
        """This node serves a broker from now on."""
        self._told.add(broker)
        found = self._found.pop(broker, [])
        for one in found:
            at, message = one.at_ms * 1000, one.message
            fate = (one.group, one.attempts, one.reason)
            self._recorder.retold(one.kind, one.app, one.queue, message, at, *fate)
        if found:
            log.info("queues.retold", events=len(found))
        for queue in queues.queues.values():
            queues.tell_on(queue)
        self._recorder.caught_up()
