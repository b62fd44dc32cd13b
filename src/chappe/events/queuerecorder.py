"""The recorder of queues: what becomes of their messages, told of every one, and at once.

All of it is to be known even if the node is killed in the next moment (slate.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chappe.events.counting import CountingRecorder
from chappe.events.eventlog import EventLog
from chappe.events.record import (
    ATTEMPT,
    BYTES,
    CAME,
    CAME_FROM,
    GROUP,
    MESSAGE,
    REASON,
    SENDER,
    SESSION,
    WENT_TO,
    N,
)
from chappe.events.recorder import Lent, Queued
from chappe.events.run import (
    NONE,
    mark_of,
    queue_event,
    retold_run,
    run_of_lent,
    run_of_stored,
)

# Why a queue's event is told: a life before had no time to.
RECOVERED = "recovered"
# Why a message is passed over that is lost to nobody.
NOBODY = "nobody"


class QueueRecorder(CountingRecorder):
    """Counts what happens, and tells the event log what becomes of queues."""

    def __init__(self, log: EventLog, wall_us: Callable[[], int]) -> None:
        super().__init__()
        self.log = log
        self._keep = log.keep
        self._wall_us = wall_us

    def handed(
        self,
        app: str,
        queue: str,
        message: int,
        sender: str,
        size: int,
        came: int,
        at: int,
        home: str,
    ) -> None:
        told = {MESSAGE: message, SENDER: sender, BYTES: size, CAME: came, WENT_TO: (home,), N: 0}
        # Not for the slate: what became of it is told by its home.
        self.log.add(("sent", 1, queue_event(at, app, queue, told), NONE))

    def stored(
        self, app: str, queue: str, messages: Sequence[Queued], came: int, came_from: str = ""
    ) -> None:
        shared = queue_event(self._wall_us(), app, queue, {CAME: came})
        if came_from:
            shared[CAME_FROM] = came_from
        self._keep(run_of_stored(messages, shared))

    def lent(self, app: str, queue: str, group: str, session: str, items: Sequence[Lent]) -> None:
        shared = queue_event(self._wall_us(), app, queue, {GROUP: group, SESSION: mark_of(session)})
        self._keep(run_of_lent("lent", items, shared))

    def acked(self, app: str, queue: str, group: str, items: Sequence[Lent]) -> None:
        shared = queue_event(self._wall_us(), app, queue, {GROUP: group})
        self._keep(run_of_lent("acked", items, shared))

    def unwanted(self, app: str, queue: str, group: str, message: int) -> None:
        told = {MESSAGE: message, GROUP: group, N: 1, REASON: NOBODY}
        self._queue_event("dropped", app, queue, told)

    def returned(self, app: str, queue: str, group: str, item: Lent, reason: str) -> None:
        shared = queue_event(self._wall_us(), app, queue, {GROUP: group, REASON: reason})
        self._keep(run_of_lent("returned", (item,), shared))

    def died(
        self, app: str, queue: str, message: int, group: str, attempts: int, reason: str
    ) -> None:
        self.drops["dead_letter"] += 1
        told = {MESSAGE: message, GROUP: group, ATTEMPT: attempts, REASON: reason}
        self._queue_event("died", app, queue, told)

    def cancelled(self, app: str, queue: str, message: int) -> None:
        self._queue_event("cancelled", app, queue, {MESSAGE: message})

    def replayed(self, app: str, queue: str, message: int) -> None:
        self._queue_event("replayed", app, queue, {MESSAGE: message})

    def purged(self, app: str, queue: str, message: int | None, count: int = 1) -> None:
        self._queue_event("purged", app, queue, {MESSAGE: message, N: count})

    def recovered(self, app: str, queue: str, count: int) -> None:
        self._queue_event("recovered", app, queue, {N: count})

    def retold(
        self,
        kind: str,
        app: str,
        queue: str,
        message: Queued,
        at: int,
        group: str,
        attempts: int,
        reason: str,
    ) -> None:
        shared = queue_event(at, app, queue, {REASON: reason or RECOVERED})
        if kind in ("acked", "died"):
            shared |= {GROUP: group, ATTEMPT: attempts or None}
        self._keep(retold_run(kind, message, shared))

    def caught_up(self) -> None:
        self.log.caught_up()

    def _queue_event(self, kind: str, app: str, queue: str, told: dict[int, Any]) -> None:
        self._keep((kind, 1, queue_event(self._wall_us(), app, queue, told), NONE))
