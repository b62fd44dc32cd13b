"""Membership: what a broker knows of rooms and gateways, and where it has that from (R8).

While a broker loads, what routers say is queued, and taken after all rows of the store: of two
entries about a room on a gateway the later one counts, but a goodbye has no place in that order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.rooms.gateways import Gateway, Gateways
from chappe.rooms.modulus import Modulus
from chappe.rooms.options import RoomsOptions
from chappe.rooms.pulse import TRIAL_BEATS, Neighbour, Pulses
from chappe.rooms.role import Endpoint, Post
from chappe.rooms.roll import Seat
from chappe.rooms.row import read_row
from chappe.rooms.table import Table, Verdict, key_of
from chappe.wire.rooms import Card, Entry, Goodbye, Login, RoleKind

# Rooms of which it is remembered where their messages go.
_TARGETS_MAX = 4096


class Targets:
    """Where the messages of a room go."""

    __slots__ = ("_neighbours", "endpoints", "names")

    def __init__(self, gateways: list[Gateway], neighbours: list[Neighbour]) -> None:
        self.endpoints: tuple[Endpoint, ...] = tuple(each.endpoint for each in gateways)
        self.names: tuple[str, ...] = tuple(each.name for each in gateways)
        self._neighbours = neighbours

    def sent(self) -> None:
        """Each of them was given a message, which its answers are to account for (R5)."""
        for neighbour in self._neighbours:
            neighbour.sent += 1


class Membership:
    """The rooms of one broker."""

    def __init__(
        self,
        *,
        options: RoomsOptions,
        post: Post,
        clock: Clock,
        partition: int,
        drops: Counter[str],
    ) -> None:
        self._options = options
        self._drops = drops
        self.modulus = Modulus(partition, confirm_s=options.confirm_s, grace_s=options.beat_s)
        self.gateways = Gateways(
            options.peers_max, hush_s=2 * options.beat_s, remember_s=options.expire_s
        )
        self.table = Table(
            self.gateways, entries_max=options.entries_max, expire_s=options.expire_s
        )
        # A gateway that is new was just heard of by a router. One that is silent gets no copies.
        self.pulses = Pulses(
            sender=RoleKind.BROKER,
            role=RoleKind.GATEWAY,
            options=options,
            post=post,
            clock=clock,
            trust=True,
            asked=self._epoch_of,
            # Nobody else has its clients: to wait longer and longer would help nobody.
            trial_beats_max=TRIAL_BEATS,
        )
        self._loading = True
        self._queue: deque[Login | Goodbye] = deque()
        self.queued = 0
        self._targets: dict[str, Targets] = {}
        self._version = -1
        self._expire_at = clock.monotonic() + options.beat_s

    @property
    def due(self) -> float:
        """When to tick next."""
        return min(self.pulses.due, self.table.due, self._expire_at)

    def _epoch_of(self, seat: Seat) -> int:
        return self.gateways.by_number[seat.id].card.epoch

    def load(self, rows: Iterable[tuple[str, bytes]], now: float) -> None:
        """Take a page of what the store knows; rows that nobody can read are counted."""
        for key, value in rows:
            try:
                card, entry = read_row(key, value)
            except StorageError:
                self._drops["row_unreadable"] += 1
                continue
            if self.modulus.keeps(entry.number):
                gateway = self._maybe_gateway(card, now)
                if gateway is not None:
                    self._put(gateway, entry, now)

    def loaded(self, now: float) -> None:
        """Take what was queued meanwhile, in the order in which it came."""
        self._loading = False
        while self._queue:
            op = self._queue.popleft()
            if isinstance(op, Login):
                self.log_in(op, now)
            else:
                self.part(op, now)
        self.queued = 0

    def log_in(self, op: Login, now: float) -> list[int]:
        """Take entries of a gateway; the seqs of those that are known from now on."""
        keeps = self.modulus.keeps
        if self._loading:
            queued = self._wait(op, len(op.entries))
            return [entry.seq for entry in op.entries if keeps(entry.number)] if queued else []
        gateway = self._maybe_gateway(op.card, now)
        if gateway is None:
            self._drops["card_refused"] += 1
            return []
        return [
            entry.seq
            for entry in op.entries
            if keeps(entry.number) and self._put(gateway, entry, now)
        ]

    def part(self, op: Goodbye, now: float) -> None:
        """Forget a gateway."""
        if self._loading:
            self._wait(op, 1)
        elif self.gateways.leave(op.card, now) is not None:
            self._watch(now)

    def _wait(self, op: Login | Goodbye, count: int) -> bool:
        """Queue something until all is loaded."""
        if self.queued + count > self._options.init_queue_max:
            self._drops["queue_full"] += count
            return False
        self._queue.append(op)
        self.queued += count
        return True

    def _put(self, gateway: Gateway, entry: Entry, now: float) -> bool:
        verdict = self.table.put(gateway, entry, now)
        if verdict is Verdict.CHANGED:
            self._targets.pop(key_of(entry.app, entry.room), None)
        elif verdict is Verdict.REFUSED:
            self._drops["table_full"] += 1
        return verdict is not Verdict.REFUSED

    def _maybe_gateway(self, card: Card, now: float) -> Gateway | None:
        before = self.gateways.get(card.name)
        gateway = self.gateways.maybe_admit(card, now)
        if self.gateways.get(card.name) is not before:
            self._watch(now)
        return gateway

    def _watch(self, now: float) -> None:
        self.pulses.watch(self.gateways.seats(), now)

    def find(self, app: str, room: str, number: int) -> list[tuple[Gateway, int]]:
        """The gateways that have members of a room and answer, and how many each has."""
        alive = self.pulses.alive
        return [each for each in self.table.find(app, room, number) if alive(each[0].number)]

    def targets(self, key: str, app: str, room: str, number: int) -> Targets:
        """Where the messages of a room go; it is remembered for the rooms that have many."""
        if self._version != self.pulses.version:
            self._version = self.pulses.version
            self._targets.clear()
        targets = self._targets.get(key)
        if targets is None:
            if len(self._targets) >= _TARGETS_MAX:
                self._targets.clear()
            found = [gateway for gateway, _ in self.find(app, room, number)]
            known = [self.pulses.get(gateway.number) for gateway in found]
            targets = Targets(found, [each for each in known if each is not None])
            self._targets[key] = targets
        return targets

    def clean(self, now: float) -> None:
        """Take out the rooms that the modulus does not keep any more."""
        self.table.clean(self.modulus.keeps, now)

    def tick(self, now: float) -> None:
        """Ask gateways for signs of life, and forget what is over."""
        self.pulses.tick(now)
        if self.table.sweep(now):
            self._targets.clear()
        if now >= self._expire_at:
            self._expire_at = now + self._options.beat_s
            self._expire(now)

    def _expire(self, now: float) -> None:
        """Forget gateways that have answered nothing, or have been in no room, for long."""
        before = now - self._options.expire_s
        gone = [
            gateway
            for gateway in self.gateways.by_number.values()
            if (not gateway.entries and gateway.seen <= before)
            or ((known := self.pulses.get(gateway.number)) is not None and known.heard <= before)
        ]
        for gateway in gone:
            self.gateways.give_up(gateway)
        if gone:
            self._watch(now)
