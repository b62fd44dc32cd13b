"""Probes (R15): a pseudo user sends to pseudo rooms by every proxy and every broker.

They run wherever a gateway does, which is in the pseudo rooms: one for each partition, of the app
`~`, that no other app can be. A round is one probe by each way, spread over `every_s`; with more
ways than `round_max`, some each round, in turns. What is not back by `timeout_s` is lost. When all
of a round are back or lost, the links that lost them are blamed.

Who is new is tried after two beats, when others have seen it too. Who has left is tried no more,
and what was on its way there was not lost on a link.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from chappe.clock import Clock
from chappe.events.recorder import Recorder
from chappe.rooms.blame import Path
from chappe.rooms.linkstats import LinkRow
from chappe.rooms.options import RoomsOptions
from chappe.rooms.role import Post, Source
from chappe.rooms.roll import EMPTY, Roll
from chappe.rooms.stamp import maybe_delays, stamp
from chappe.rooms.survey import Quality, Survey
from chappe.rooms.ways import Way, Ways
from chappe.wire.rooms import PSEUDO_APP, Card, Probe, RoleKind, RoomOp

# Nobody is asked for signs of life by this id.
_NOBODY = -1
# Probes closer together than that go out together.
_GAP_S = 0.02
# Probes on their way, where timeouts are much longer than rounds.
_PENDING_MAX = 16_384


class PseudoRooms(Protocol):
    """The gateway that is in the pseudo rooms."""

    def pseudo(self, rooms: Iterable[int]) -> None:
        """Be in these, and in no others."""
        ...

    def confirmed(self, app: str, room: str) -> bool:
        """Whether all brokers that have to know that it is in a room."""
        ...


class _Round:
    """Probes whose fates are looked at together."""

    __slots__ = ("arrived", "left", "lost")

    def __init__(self, ways: int) -> None:
        self.left = ways
        self.arrived: list[Path] = []
        self.lost: list[Path] = []


class _Pending(NamedTuple):
    """A probe that is on its way."""

    path: Path
    round: _Round
    sent: float


class Prober:
    """Sends probes and surveys links. Without a gateway somebody else has to see to it that the
    pseudo rooms are known."""

    # A pseudo user's.
    kind = RoleKind.PUBLISHER
    id = _NOBODY

    def __init__(
        self,
        *,
        options: RoomsOptions,
        post: Post,
        clock: Clock,
        name: str,
        card: Card,
        recorder: Recorder,
        gateway: PseudoRooms | None = None,
    ) -> None:
        self._options = options.probe
        self._post = post
        self._clock = clock
        self._name = name
        self._card = card
        self._gateway = gateway
        self._roll = EMPTY
        self._rooms = 0
        self._ways = Ways(options, name, card.epoch)
        self._round = _Round(0)
        self._waiting: deque[Way] = deque()
        # The oldest first; all have the same time.
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        self._next_round = self._next_send = math.inf
        self._gap_s = 0.0
        self._batch = 0
        self.survey = Survey(options=options.probe, name=name, clock=clock, recorder=recorder)
        # Probes by what became of them.
        self.counts: Counter[str] = Counter()
        # Told after each round how good each proxy is.
        self.on_quality: Callable[[Mapping[int, Quality]], None] | None = None

    @property
    def due(self) -> float:
        """When to tick next."""
        oldest = next(iter(self._pending.values()), None)
        lost = math.inf if oldest is None else oldest.sent + self._options.timeout_s
        return min(self._next_round, self._next_send, lost)

    def links(self) -> list[LinkRow]:
        """The links that probes went over."""
        return self.survey.rows()

    def quality(self) -> Mapping[int, Quality]:
        """How good each proxy is to publish by, by its id (R6)."""
        return self.survey.quality()

    def see(self, roll: Roll, now: float) -> None:
        """Take note of who is there."""
        if roll == self._roll or not self._options.every_s:
            return
        self._roll = roll
        rooms = max(roll.partitions, roll.wanted)
        if rooms != self._rooms and self._gateway is not None:
            self._rooms = rooms
            self._gateway.pseudo(range(rooms))
        self._ways.see(roll, now)
        self._call_back(now)
        self.survey.keep(self._ways.has, {seat.id for seat in roll.proxies})
        if self._next_round == math.inf:
            self._next_round = now

    def tick(self, now: float) -> None:
        """Give up what is not back in time, and send what is due."""
        self._give_up(now)
        if now >= self._next_round:
            self._begin(now)
        if now >= self._next_send:
            self._send_some(now)

    def receive(self, op: RoomOp, source: Source, now: float) -> None:
        """Take a probe that came back."""
        if not isinstance(op, Probe) or op.card != self._card:
            return
        pending = self._pending.get(op.number)
        if pending is None:
            self.counts["late"] += 1
            return
        way_us = max(0, int((now - pending.sent) * 1_000_000))
        delays = maybe_delays(op, self._clock.wall_us(), way_us)
        if delays is None:
            self.counts["odd"] += 1
            return
        del self._pending[op.number]
        self.counts["arrived"] += 1
        self.survey.arrive(pending.path, delays, way_us, now)
        pending.round.arrived.append(pending.path)
        self._settle(pending.round, now)

    def _begin(self, now: float) -> None:
        """Start a round. One that is not all sent yet, as this process slept, is cut short: what
        is left of it comes first."""
        every_s = self._options.every_s
        self._next_round = now + every_s
        self._ways.give_back(len(self._waiting))
        self._void(len(self._waiting), now)
        self._waiting = deque(self._ways.take(now, self._is_known))
        count = len(self._waiting)
        self._round = _Round(count)
        if count:
            self._gap_s = max(every_s / count, _GAP_S)
            self._batch = math.ceil(count * self._gap_s / every_s)
            self._next_send = now

    def _send_some(self, now: float) -> None:
        for _ in range(min(self._batch, len(self._waiting))):
            way = self._waiting.popleft()
            if len(self._pending) >= _PENDING_MAX:
                self.counts["unsent"] += 1
                self._void(1, now)
            elif self._ways.leads(way.path):
                self._send(way, now)
            else:
                self._void(1, now)
        # Who is late by a little makes up for it, who is late by much makes no burst of it.
        following = max(self._next_send + self._gap_s, now + self._gap_s / 2)
        self._next_send = following if self._waiting else math.inf

    def _send(self, way: Way, now: float) -> None:
        self._number += 1
        broker = way.broker
        partition = broker.partition or 0
        op = Probe(self._number, partition, partition, broker.id, self._card, [])
        wall_us = self._clock.wall_us()
        stamp(op, self._name, RoleKind.PUBLISHER, wall_us, wall_us)
        self._pending[self._number] = _Pending(way.path, self._round, now)
        self.counts["sent"] += 1
        self._post.send(way.proxy, op)

    def _give_up(self, now: float) -> None:
        timeout_s = self._options.timeout_s
        # What came while this process slept is not read yet, and nobody else's fault.
        slept = now - self.due > timeout_s / 2
        while self._pending:
            number, pending = next(iter(self._pending.items()))
            if pending.sent + timeout_s > now:
                return
            del self._pending[number]
            if slept:
                self.counts["void"] += 1
            else:
                self.counts["lost"] += 1
                pending.round.lost.append(pending.path)
            self._settle(pending.round, now)

    def _call_back(self, now: float) -> None:
        """Expect nothing any more that was on its way by who has left."""
        for number, pending in list(self._pending.items()):
            if not self._ways.leads(pending.path):
                del self._pending[number]
                self.counts["void"] += 1
                self._settle(pending.round, now)

    def _settle(self, round_: _Round, now: float, count: int = 1) -> None:
        round_.left -= count
        if round_.left == 0:
            # Who has left since a probe came, or was lost, is not looked at any more.
            lost = [path for path in round_.lost if self._ways.leads(path)]
            self.survey.settle(round_.arrived, lost, now, self._ways.has)
            if self.on_quality is not None:
                self.on_quality(self.quality())

    def _void(self, count: int, now: float) -> None:
        """Some of the round are not sent, and count for nothing."""
        if count:
            self._settle(self._round, now, count)

    def _is_known(self, partition: int) -> bool:
        gateway = self._gateway
        return gateway is None or gateway.confirmed(PSEUDO_APP, str(partition))
