"""The independent router: partitions and replicas of its own, for several systems of rooms (R12).

    gateway --Announce--> router --Pass--> the other replicas of its partition --Login--> theirs
                                 --Login-> the brokers that have subscribed to it
            <-Confirmed--        <--Noted-- and <--Confirmed-- (so many of mine, none is enough)

It does not look for brokers: to ask it for a sign of life is to subscribe, and who asks no more is
given no more. What was passed to it, it passes no further. It starts as a broker does, and keeps
the rooms of its partition; after a doubling those of both halves, until all gateways go by the new
number.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.events.recorder import Recorder
from chappe.rooms.confirming import Confirming, Done, together
from chappe.rooms.modulus import Modulus
from chappe.rooms.options import RoomsOptions
from chappe.rooms.outlets import Outlet
from chappe.rooms.partition import router_of, sibling_of
from chappe.rooms.pulse import Pulses, Tally, answer
from chappe.rooms.role import Endpoint, Post, Source
from chappe.rooms.roll import Roll, Seat
from chappe.rooms.router import Router
from chappe.rooms.row import number_of
from chappe.wire.rooms import (
    Announce,
    Card,
    Confirmed,
    Entry,
    Pass,
    Pulse,
    RoleKind,
    RoomOp,
    State,
)


class IndependentRouter(Router):
    """One replica of a partition of routers."""

    def __init__(
        self,
        *,
        options: RoomsOptions,
        post: Post,
        clock: Clock,
        name: str,
        recorder: Recorder,
        partition: int,
    ) -> None:
        super().__init__(options=options, post=post, clock=clock, name=name, recorder=recorder)
        self.partition = partition
        self._modulus = Modulus(partition, confirm_s=options.confirm_s, grace_s=options.beat_s)
        # Who subscribed, and when it was heard; who was heard longest ago is first.
        self._subscribers: OrderedDict[Hashable, tuple[Outlet, float]] = OrderedDict()
        self._peers: tuple[Seat, ...] = ()
        self._living: frozenset[Hashable] = frozenset()
        # For other routers, whose own brokers are enough, if there are any.
        self._passing = Confirming(least=0)
        self._passed = Tally(options.peers_max)
        self._settle_at = math.inf

    def _make_pulses(self) -> Pulses:
        return Pulses(
            sender=self.kind,
            role=RoleKind.ROUTER,
            options=self._options,
            post=self._post,
            clock=self._clock,
        )

    @property
    def modulus(self) -> int:
        """It keeps the rooms with room % modulus == partition % modulus."""
        return self._modulus.number

    @property
    def due(self) -> float:
        """When it wants to be told the time next."""
        return min(super().due, self._passing.due, self._settle_at, self._silent_at)

    @property
    def _silent_at(self) -> float:
        """When the next subscriber is gone, if it stays silent."""
        if not self._subscribers:
            return math.inf
        return next(iter(self._subscribers.values()))[1] + self._options.silence_s

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take a page of what the store knows, so far as it is this partition's."""
        super().load(row for row in rows if self._may_keep(row[0]))

    def _may_keep(self, key: str) -> bool:
        try:
            return self._modulus.keeps(number_of(key))
        except StorageError:
            # The book counts what cannot be read.
            return True

    def see(self, roll: Roll, now: float) -> None:
        """Take note of the number of partitions, and of the other replicas of this one."""
        self._roll = roll
        if self._modulus.see(roll.router_partitions, self._gateways(), now):
            self.book.clean(self.partition, self.modulus, now)
        self._settle_at = math.inf if self._modulus.settled else now
        seats = roll.independent.get(self.partition, ())
        self._peers = tuple(seat for seat in seats if seat.id != self.id)
        self.audit.see((roll.router_partitions, *((seat.id, seat.running) for seat in seats)), now)
        self._pulses.sender_id = self.id
        self._pulses.number, self._pulses.partition = roll.router_partitions, self.partition
        self._pulses.watch((*self._peers, *self._heirs(roll)), now)
        self._version = -1
        self._look(now)

    def _heirs(self, roll: Roll) -> Iterable[Seat]:
        """Who is to have some of its rooms after a doubling: they load what it has written, and
        learn by its signs of life that it has."""
        number = max(roll.router_partitions, 1)
        for partition, seats in roll.independent.items():
            if partition >= number and sibling_of(partition, number) == self.partition:
                yield from seats

    def tick(self, now: float) -> None:
        """Do what is due."""
        if now >= self._settle_at:
            self._settle(now)
        self._forget_silent(now)
        self._passing.tick(now)
        super().tick(now)

    def _settle(self, now: float) -> None:
        """Keep the rooms of one half only, once all gateways go by the new number.

        Who still loads does not know yet whom to wait for.
        """
        self._modulus.see(self._modulus.partitions, self._gateways(), now)
        if self.state is State.RUNNING and self._modulus.settle(now):
            self.book.clean(self.partition, self.modulus, now)
        self._settle_at = math.inf if self._modulus.settled else now + self._options.pulse_s

    def _gateways(self) -> Iterable[Hashable]:
        """Who may announce something here; of several gateways epochs may be the same."""
        return (
            (known.card.name, known.card.epoch)
            for known in self.book.gateways.values()
            if not known.gone
        )

    def _forget_silent(self, now: float) -> None:
        gone = False
        while self._silent_at <= now:
            self._subscribers.popitem(last=False)
            gone = True
        if gone:
            self._resubscribe(now)

    def _receive_more(self, op: RoomOp, source: Source, now: float) -> None:
        if isinstance(op, Pass):
            if op.partition == self.partition:
                self._take_passed(op, source, now)
        elif isinstance(op, Confirmed) and op.router:
            who = _peer(op.router)
            self._confirm(self._confirming.note(who, op.gateway, op.epoch, op.seqs, op.brokers))

    def _announced(self, op: Announce, now: float) -> None:
        known = self._hear(op.card, now)
        if known is None:
            return
        known.taken += 1
        entries = self._kept(op.entries)
        if not entries:
            return
        card, to = op.card, (op.card.host, op.card.port)
        if self._peers:
            self._pass(card, entries)
        awaited = self.outlets.give(card, entries)
        self._confirm(
            together(
                self._confirming.expect(card, entry.seq, whom | self._living, to, now)
                for entry, whom in zip(entries, awaited, strict=True)
            )
        )
        self.book.take(known, entries, now, write=True)

    def _kept(self, entries: list[Entry]) -> list[Entry]:
        """Those of this partition; others of this process may be for the rest."""
        keeps = self._modulus.keeps
        kept = [entry for entry in entries if keeps(entry.number)]
        self.dropped["elsewhere"] += len(entries) - len(kept)
        return kept

    def _pass(self, card: Card, entries: list[Entry]) -> None:
        op = Pass(card, entries, self.partition)
        if self._post.send_all([peer.endpoint for peer in self._peers], op):
            for peer in self._peers:
                self._pulses.sent(peer.id)

    def _take_passed(self, op: Pass, source: Source, now: float) -> None:
        """Tell this router's own brokers, and nobody else, what another one was told."""
        self._passed.count(source.endpoint)
        known = self._hear(op.card, now)
        if known is None:
            return
        card, entries = op.card, self._kept(op.entries)
        awaited = self.outlets.give(card, entries)
        self._answer_passed(
            together(
                self._passing.expect(card, entry.seq, whom, source.endpoint, now)
                for entry, whom in zip(entries, awaited, strict=True)
            )
        )
        self.book.take(known, entries, now, write=False)

    def _answer_passed(self, done: Iterable[Done]) -> None:
        for to, gateway, epoch, seqs, brokers in done:
            self._post.send(to, Confirmed(gateway, epoch, seqs, brokers, self.id))

    def _note(self, who: Hashable, gateway: str, epoch: int, seqs: list[int]) -> None:
        super()._note(who, gateway, epoch, seqs)
        self._answer_passed(self._passing.note(who, gateway, epoch, seqs))

    def _key(self, broker: int, source: Source) -> Hashable:
        # Systems of rooms have registries of their own, and may give the same ids.
        return (source.endpoint, broker)

    def _pulse(self, op: Pulse, source: Source, now: float) -> None:
        taken = 0
        if op.card is not None:
            known = self._hear(op.card, now)
            if known is not None:
                self._modulus.hear((op.card.name, op.card.epoch), op.number, now)
                taken = known.taken
        elif op.sender is RoleKind.BROKER:
            self._subscribe(op, source.endpoint, now)
        else:
            taken = self._passed.of(source.endpoint)
        answer(
            self,
            op,
            source,
            self._post,
            self._clock,
            state=self._shown,
            taken=taken,
            number=self.modulus,
            partition=self.partition,
            news=int(self._retelling.due < math.inf),
        )

    def _subscribe(self, op: Pulse, endpoint: Endpoint, now: float) -> None:
        """A broker asks to be told of the rooms that it keeps, by its own modulus."""
        key = (endpoint, op.sender_id)
        before = self._subscribers.pop(key, None)
        if before is None and len(self._subscribers) >= self._options.peers_max:
            self.dropped["subscribers"] += 1
            return
        outlet = Outlet(key, endpoint, op.partition, max(op.number, 1), ready=op.number > 0)
        self._subscribers[key] = (outlet, now)
        if before is None or before[0] != outlet:
            self._resubscribe(now)

    def _resubscribe(self, now: float) -> None:
        self._replace([outlet for outlet, _ in self._subscribers.values()], now)

    def _look(self, now: float) -> None:
        """Find out anew which of the other replicas live, if anything about them has changed."""
        if self._pulses.version == self._version:
            return
        self._version = self._pulses.version
        living = self._pulses.living(self._peers)
        before, self._living = self._living, frozenset(_peer(seat.id) for seat in living)
        if before - self._living:
            self._forget(before - self._living)
        for seat in living:
            if _peer(seat.id) not in before:
                self._retell_to_peer(seat, now)

    def _forget(self, gone: Collection[Hashable]) -> None:
        super()._forget(gone)
        self._answer_passed(self._passing.forget(gone))

    def _retell_to_peer(self, peer: Seat, now: float) -> None:
        def tell(card: Card, entries: list[Entry]) -> None:
            self._post.send(peer.endpoint, Pass(card, entries, self.partition))

        self._retelling.begin(self._modulus.keeps, tell, now, own=True)

    def _owns(self, number: int) -> bool:
        seats = [seat for seat in self._roll.independent.get(self.partition, ()) if seat.running]
        if not seats or not self._modulus.keeps(number):
            return False
        return seats[router_of(number, len(seats))].id == self.id


def _peer(router: int) -> Hashable:
    """Another router, among those that have to note something."""
    return ("router", router)
