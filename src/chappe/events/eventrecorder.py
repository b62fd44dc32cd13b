"""The recorder that writes events down, and counts as the other does.

It is called on the path of every message, so it takes from messages what is to be kept, at once and
for a whole run: to hold on to the messages would hold their payloads. What becomes of queues is
recorded of every message, what becomes of all others of the share that is sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from chappe.events.eventlog import EventLog
from chappe.events.record import (
    AHEAD,
    APP,
    AT,
    ATTEMPT,
    BYTES,
    CAME,
    CAME_FROM,
    DUE,
    EDGE,
    FOLLOWING,
    GROUP,
    LABEL,
    MESSAGE,
    PEER,
    REASON,
    ROUND_TRIP,
    SENDER,
    SESSION,
    SHARE,
    TARGET,
    WENT_TO,
    N,
    Run,
)
from chappe.events.recorder import CountingRecorder, Lent, Queued
from chappe.events.sampling import Sampling
from chappe.message import Message


class EventRecorder(CountingRecorder):
    """Counts what happens, and tells the event log of it."""

    def __init__(self, log: EventLog, share: float, wall_us: Callable[[], int]) -> None:
        super().__init__()
        self.log = log
        self._add = log.add
        # For what no other log has, and is to be exact: a queue's journal has the rest.
        self._keep = log.keep
        self._wall_us = wall_us
        self._sampling = Sampling(share) if share < 1 else None
        # Asked about every message, hence without a way around.
        self._choose: Callable[[Sequence[Message]], Sequence[Message]] | None = None
        if self._sampling is not None:
            self._choose = self._sampling.of
        self.came = wall_us()

    def session_opened(self, app: str, address: str, session: str, edge: str) -> None:
        self.opened[edge] += 1
        self._tell("session_opened", app, {TARGET: address, SESSION: session, EDGE: edge})

    def session_closed(
        self, app: str, address: str, session: str, edge: str, code: int, opened: int
    ) -> None:
        self.closed[code] += 1
        told = {TARGET: address, SESSION: session, EDGE: edge, CAME: opened, REASON: str(code)}
        self._tell("session_closed", app, told)

    def sent(
        self,
        app: str,
        messages: Sequence[Message],
        receivers: int,
        came_from: str = "",
        went_to: Sequence[str] = (),
    ) -> None:
        self.sends += len(messages)
        if self._choose is not None and not (messages := self._choose(messages)):
            return
        self._pass("sent", app, messages, receivers, came_from, went_to)

    def published(
        self,
        app: str,
        messages: Sequence[Message],
        receivers: int,
        came_from: str = "",
        went_to: Sequence[str] = (),
    ) -> None:
        self.publishes += len(messages)
        self.published_deliveries += len(messages) * receivers
        if self._choose is not None and not (messages := self._choose(messages)):
            return
        self._pass("published", app, messages, receivers, came_from, went_to)

    def forwarded(
        self,
        app: str,
        messages: Sequence[Message],
        came_from: str,
        went_to: Sequence[str],
        *,
        promised: bool,
    ) -> None:
        if self._choose is not None and not (messages := self._choose(messages)):
            return
        self._pass("sent" if promised else "published", app, messages, 0, came_from, went_to)

    def _pass(
        self,
        kind: str,
        app: str,
        messages: Sequence[Message],
        receivers: int,
        came_from: str,
        went_to: Sequence[str],
    ) -> None:
        """Tell of messages to one address that were chosen, and left this node."""
        first = messages[0]
        shared: dict[int, Any] = {
            AT: self._wall_us(),
            APP: app,
            TARGET: first.to,
            CAME: self.came,
            N: receivers,
        }
        if self._sampling is not None:
            shared[SHARE] = self._sampling.share
        if came_from:
            shared[CAME_FROM] = came_from
        if went_to:
            shared[WENT_TO] = went_to
        count = len(messages)
        if count == 1:
            shared[MESSAGE], shared[SENDER] = first.id, first.sender
            shared[BYTES] = len(first.payload)
            self._add((kind, 1, shared, _NONE))
            return
        each: dict[int, Sequence[Any]] = {}
        if not came_from and _follow(messages):
            shared[FOLLOWING] = first.id
        else:
            _put_ids(messages, shared, each)
        senders, sizes = list(map(_SENDER, messages)), list(map(len, map(_PAYLOAD, messages)))
        _put(SENDER, senders, shared, each)
        _put(BYTES, sizes, shared, each)
        self._add((kind, count, shared, each))

    def declined(self, app: str, messages: Sequence[Message], reason: str) -> None:
        self._lose(app, reason, messages[0].to, [message.id for message in messages])

    def refused(self, app: str, error: str) -> None:
        self.refusals[error] += 1
        self.log.refuse(app, error)

    def dropped(
        self, app: str, reason: str, messages: int, target: str = "", ids: Sequence[int] = ()
    ) -> None:
        self.drops[reason] += messages
        if ids:
            self._lose(app, reason, target, ids)
        else:
            self._tell("dropped", app, {TARGET: target or None, N: messages, REASON: reason})

    def _lose(self, app: str, reason: str, target: str, ids: Sequence[int]) -> None:
        shared = {AT: self._wall_us(), APP: app, TARGET: target, N: 1, REASON: reason}
        sampling = self._sampling
        if sampling is not None:
            ids = [one for one in ids if sampling.takes(one)]
            shared[SHARE] = sampling.share
        if ids:
            self._add(("dropped", len(ids), shared, {MESSAGE: ids}))

    def stored(self, app: str, queue: str, messages: Sequence[Queued], came: int) -> None:
        shared = {AT: self._wall_us(), APP: app, TARGET: queue, CAME: came}
        each: dict[int, Sequence[Any]] = {}
        _put_ids(messages, shared, each)
        _put(SENDER, [message.sender for message in messages], shared, each)
        _put(BYTES, [len(message.payload) for message in messages], shared, each)
        if any(message.due_ms is not None for message in messages):
            due = [None if one.due_ms is None else one.due_ms * 1000 for one in messages]
            _put(DUE, due, shared, each)
        self._add(("stored", len(messages), shared, each))

    def lent(self, app: str, queue: str, group: str, session: str, items: Sequence[Lent]) -> None:
        told = {GROUP: group, SESSION: session}
        self._keep(_items("lent", self._wall_us(), app, queue, items, told))

    def acked(self, app: str, queue: str, group: str, items: Sequence[Lent]) -> None:
        self._add(_items("acked", self._wall_us(), app, queue, items, {GROUP: group}))

    def returned(self, app: str, queue: str, group: str, item: Lent, reason: str) -> None:
        told = {GROUP: group, REASON: reason}
        self._keep(_items("returned", self._wall_us(), app, queue, (item,), told))

    def died(
        self, app: str, queue: str, message: int, group: str, attempts: int, reason: str
    ) -> None:
        self.drops["dead_letter"] += 1
        told = {MESSAGE: message, TARGET: queue, GROUP: group, ATTEMPT: attempts, REASON: reason}
        self._tell("died", app, told)

    def cancelled(self, app: str, queue: str, message: int) -> None:
        self._tell("cancelled", app, {MESSAGE: message, TARGET: queue})

    def replayed(self, app: str, queue: str, message: int) -> None:
        self._tell("replayed", app, {MESSAGE: message, TARGET: queue})

    def purged(self, app: str, queue: str, message: int | None, count: int = 1) -> None:
        self._tell("purged", app, {MESSAGE: message, TARGET: queue, N: count})

    def asked(
        self, app: str, request: str, sender: str, service: str, session: str, size: int, came: int
    ) -> None:
        told = {SENDER: sender, TARGET: service, SESSION: session, BYTES: size}
        self._request("asked", app, request, {AT: came, **told})

    def answered(self, app: str, request: str, came: int, reason: str = "") -> None:
        told = {AT: self._wall_us(), CAME: came, REASON: reason or None}
        self._request("answered", app, request, told)

    def _request(self, kind: str, app: str, request: str, told: dict[int, Any]) -> None:
        shared = {APP: app, LABEL: request, **told}
        sampling = self._sampling
        if sampling is not None:
            # A request's id ends with a number that is a message's as any.
            if not sampling.takes(int(request.rpartition(".")[2])):
                return
            shared[SHARE] = sampling.share
        self._keep((kind, 1, shared, _NONE))

    def user_gone(self, app: str, address: str) -> None:
        self.users["gone"] += 1
        self._tell("user_gone", app, {TARGET: address})

    def user_came(self, app: str, address: str) -> None:
        self.users["came"] += 1
        self._tell("user_came", app, {TARGET: address})

    def hooked(self, app: str, outcome: str) -> None:
        self.hooks[outcome] += 1
        self._tell("hooked", app, {REASON: str(outcome)})

    def link_up(self, peer: str) -> None:
        self._tell("link_up", None, {PEER: peer})

    def link_down(self, peer: str, reason: str) -> None:
        self._tell("link_down", None, {PEER: peer, REASON: reason})

    def link_beat(self, peer: str, ahead_us: int, round_trip_us: int) -> None:
        self._tell("link", None, {PEER: peer, AHEAD: ahead_us, ROUND_TRIP: round_trip_us})

    def _tell(self, kind: str, app: str | None, told: dict[int, Any]) -> None:
        """Tell of a single thing, which is no matter of sampling."""
        self._add((kind, 1, {AT: self._wall_us(), APP: app, **told}, _NONE))


_NONE: dict[int, Sequence[Any]] = {}
_SENDER, _PAYLOAD = attrgetter("sender"), attrgetter("payload")


def _items(
    kind: str, at: int, app: str, queue: str, items: Sequence[Lent], told: dict[int, Any]
) -> Run:
    shared = {AT: at, APP: app, TARGET: queue, **told}
    each: dict[int, Sequence[Any]] = {}
    _put_ids([item.record for item in items], shared, each)
    _put(ATTEMPT, [item.attempts for item in items], shared, each)
    return kind, len(items), shared, each


def _follow(messages: Sequence[Message]) -> bool:
    """Whether messages of this node, whose ids grow, follow each other without a gap: seen from
    three of them, since to look at all would cost as much as the rest of it."""
    first, ahead = messages[0].id, len(messages) - 1
    half = ahead // 2
    return messages[-1].id - first == ahead and messages[half].id - first == half


def _put_ids(
    messages: Sequence[Any], shared: dict[int, Any], each: dict[int, Sequence[Any]]
) -> None:
    first, last, count = messages[0].id, messages[-1].id, len(messages)
    if count == 1:
        shared[MESSAGE] = first
        return
    ids = [message.id for message in messages]
    if last - first == count - 1 and ids == list(range(first, last + 1)):
        shared[FOLLOWING] = first
    else:
        each[MESSAGE] = ids


def _put(
    column: int, values: list[Any], shared: dict[int, Any], each: dict[int, Sequence[Any]]
) -> None:
    """Say what is the same for all of them once."""
    if values.count(values[0]) == len(values):
        shared[column] = values[0]
    else:
        each[column] = values
