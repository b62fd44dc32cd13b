"""The recorder that writes events down, and counts as the other does.

It is called on the path of every message, so it takes from messages what is to be kept, at once and
for a whole run: to hold on to the messages would hold their payloads. What becomes of queues is
recorded of every message, and so are requests to services; what becomes of all others of the share
that is sampled. Of kinds that have no words of their own here, the schema says which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chappe.events.eventlog import EventLog
from chappe.events.queuerecorder import QueueRecorder
from chappe.events.record import (
    AHEAD,
    APP,
    AT,
    BYTES,
    CAME,
    CAME_FROM,
    EDGE,
    LABEL,
    MESSAGE,
    PEER,
    REASON,
    ROLE,
    ROUND_TRIP,
    SENDER,
    SESSION,
    SHARE,
    TAKEN_AS,
    TARGET,
    WENT_TO,
    N,
)
from chappe.events.run import NONE, mark_of, run_of_messages
from chappe.events.sampling import Sampling
from chappe.events.schema import KINDS, NAMES
from chappe.message import Message

# Columns by their names: to look for one among all of them takes longer than all else.
_PLACES = {name: place for place, name in enumerate(NAMES)}


class EventRecorder(QueueRecorder):
    """Counts what happens, and tells the event log of it."""

    def __init__(self, log: EventLog, share: float, wall_us: Callable[[], int]) -> None:
        super().__init__(log, wall_us)
        self._add = log.add
        self._put = log.put
        self._sampling = Sampling(share) if share < 1 else None
        log.share = 1.0 if self._sampling is None else self._sampling.share
        # All that lies in between is not chosen, and needs no more than this look; but for runs of
        # other nodes, whose ids need not lie between the first and the last.
        self._quiet_from = self._quiet_until = 0
        self.came = wall_us()

    def tell(self, kind: str, app: str, **columns: Any) -> None:
        schema, sampling, message = KINDS[kind], self._sampling, columns.get("message")
        share = None
        if sampling is not None and message is not None and schema.told == "sampled":
            if not sampling.takes(message):
                return
            share = sampling.share
        assert columns.keys() <= set(schema.columns), "a kind has the columns it says"
        shared: dict[int, Any] = {AT: self._wall_us(), APP: app or None}
        shared |= {_PLACES[name]: value for name, value in columns.items()}
        if share is not None:
            shared[SHARE] = share
        (self._keep if schema.told == "exact" else self._add)((kind, 1, shared, NONE))

    def tell_each(
        self,
        kind: str,
        app: str,
        count: int,
        each: Mapping[str, Sequence[Any]],
        **columns: Any,
    ) -> None:
        schema = KINDS[kind]
        assert schema.told != "sampled", "which of them are recorded is decided one by one"
        assert columns.keys() | each.keys() <= set(schema.columns), "a kind has the columns it says"
        assert all(len(values) == count for values in each.values()), "there is one for each"
        shared: dict[int, Any] = {AT: self._wall_us(), APP: app or None}
        shared |= {_PLACES[name]: value for name, value in columns.items()}
        singly = {_PLACES[name]: values for name, values in each.items()}
        if count:
            (self._keep if schema.told == "exact" else self._add)((kind, count, shared, singly))

    def session_opened(self, app: str, address: str, session: str, edge: str) -> None:
        self.opened[edge] += 1
        self._tell("session_opened", app, {TARGET: address, SESSION: mark_of(session), EDGE: edge})

    def session_closed(
        self, app: str, address: str, session: str, edge: str, code: int, opened: int
    ) -> None:
        self.closed[code] += 1
        told = {
            TARGET: address,
            SESSION: mark_of(session),
            EDGE: edge,
            CAME: opened,
            REASON: str(code),
        }
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
        if (
            messages[0].id < self._quiet_from
            or messages[-1].id >= self._quiet_until
            or (came_from and len(messages) > 1)
        ):
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
        if (
            messages[0].id < self._quiet_from
            or messages[-1].id >= self._quiet_until
            or (came_from and len(messages) > 1)
        ):
            self._pass("published", app, messages, receivers, came_from, went_to)

    def forwarded(
        self,
        app: str,
        messages: Sequence[Message],
        came_from: str,
        went_to: Sequence[str],
        *,
        promised: bool,
        role: str = "",
        taken_as: str = "",
    ) -> None:
        if role and not self._takes(messages[0].id):
            # Rooms tell of one at a time, and of most of them nothing is kept.
            return
        kind = "sent" if promised else "published"
        self._pass(kind, app, messages, 0, came_from, went_to, role, taken_as)

    def copied(self, app: str, message: Message, came_from: str, taken_as: str = "") -> None:
        if self._takes(message.id):
            self._pass("copied", app, (message,), 0, came_from, (), "gateway", taken_as)

    def _takes(self, id: int) -> bool:
        return self._sampling is None or self._sampling.takes(id)

    def _pass(
        self,
        kind: str,
        app: str,
        messages: Sequence[Message],
        receivers: int,
        came_from: str,
        went_to: Sequence[str],
        role: str = "",
        taken_as: str = "",
    ) -> None:
        """Tell of messages to one address that left this node: those of them that are chosen."""
        sampling, share = self._sampling, 1.0
        if sampling is not None:
            share = sampling.share
            messages = sampling.of(messages, growing=not came_from)
            self._quiet_from, self._quiet_until = sampling.quiet_from, sampling.quiet_until
            if not messages:
                return
        first, at, came = messages[0], self._wall_us(), self.came
        if len(messages) == 1 and not came_from and not went_to and not role:
            row = (at, app, first.id, first.sender, first.to, came, receivers, len(first.payload))
            self._put(kind, row)
            return
        shared = {AT: at, APP: app, TARGET: first.to, CAME: came, N: receivers, SHARE: share}
        if came_from:
            shared[CAME_FROM] = came_from
        if went_to:
            shared[WENT_TO] = went_to
        if role:
            shared[ROLE] = role
        if taken_as:
            shared[TAKEN_AS] = taken_as
        if len(messages) > 1:
            self._add(run_of_messages(kind, messages, shared, own=not came_from))
            return
        shared[MESSAGE], shared[SENDER], shared[BYTES] = first.id, first.sender, len(first.payload)
        self._add((kind, 1, shared, NONE))

    def declined(self, app: str, messages: Sequence[Message], reason: str) -> None:
        self._lose(app, reason, messages[0].to, [message.id for message in messages])

    def refused(self, app: str, error: str) -> None:
        self.refusals[error] += 1
        self.log.refuse(app, error)

    def dropped(
        self,
        app: str,
        reason: str,
        messages: int,
        target: str = "",
        ids: Sequence[int] = (),
        role: str = "",
    ) -> None:
        self.drops[reason] += messages
        if ids:
            self._lose(app, reason, target, ids, role)
        else:
            self._tell("dropped", app, {TARGET: target or None, N: messages, REASON: reason})

    def _lose(self, app: str, reason: str, target: str, ids: Sequence[int], role: str = "") -> None:
        shared = {AT: self._wall_us(), APP: app, TARGET: target, N: 1, REASON: reason}
        if role:
            shared[ROLE] = role
        sampling = self._sampling
        if sampling is not None:
            ids = [one for one in ids if sampling.takes(one)]
            shared[SHARE] = sampling.share
        if ids:
            self._add(("dropped", len(ids), shared, {MESSAGE: ids}))

    def asked(
        self,
        app: str,
        request: str,
        sender: str,
        service: str,
        session: str,
        size: int,
        came: int,
        came_from: str = "",
        went_to: Sequence[str] = (),
    ) -> None:
        told = {AT: came, SENDER: sender, TARGET: service, SESSION: mark_of(session), BYTES: size}
        if went_to:
            told[WENT_TO] = went_to
        self._request("asked", app, request, came_from, told)

    def answered(
        self, app: str, request: str, came: int, reason: str = "", came_from: str = ""
    ) -> None:
        told = {AT: self._wall_us(), CAME: came, REASON: reason or None}
        self._request("answered", app, request, came_from, told)

    def _request(
        self, kind: str, app: str, request: str, came_from: str, told: dict[int, Any]
    ) -> None:
        if came_from:
            told[CAME_FROM] = came_from
        self._keep((kind, 1, {APP: app, LABEL: request, **told}, NONE))

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
        self._add((kind, 1, {AT: self._wall_us(), APP: app, **told}, NONE))
