"""The router: carries logins and logouts from gateways to brokers (R10).

    gateway --Announce--> router --Login--> all replicas of the room's partition
            <-Confirmed--        <--Noted--

It finds brokers in the registry, and by their answers which of them live and which rooms each has.
Then it writes down what is news, behind: the store is never waited for. While it loads what the
store knows it carries all the same; what it is told counts more than what it loads.

A gateway that is silent is forgotten, and its rooms go from the store. Brokers are not told: each
finds out for itself, and a router that cannot hear a gateway may be the only one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable

from chappe.clock import Clock
from chappe.events.recorder import Recorder
from chappe.rooms.audit import Audit
from chappe.rooms.book import Book, Known
from chappe.rooms.confirming import Confirming, Done, together
from chappe.rooms.options import RoomsOptions
from chappe.rooms.outlets import Outlet, Outlets
from chappe.rooms.partition import router_of
from chappe.rooms.pulse import Pulses, answer
from chappe.rooms.retelling import Retelling
from chappe.rooms.role import Post, Source
from chappe.rooms.roll import EMPTY, Roll
from chappe.wire.rooms import (
    Announce,
    Card,
    Confirmed,
    Entry,
    Goodbye,
    Login,
    Noted,
    Pulse,
    Pulsed,
    RoleKind,
    RoomOp,
    State,
)


class Router:
    """A router that finds its brokers in the registry."""

    kind = RoleKind.ROUTER

    def __init__(
        self, *, options: RoomsOptions, post: Post, clock: Clock, name: str, recorder: Recorder
    ) -> None:
        self.id = 0
        self.name = name
        self.state = State.INIT
        # Whether it is about to end: what still comes it carries, but nobody is to say more.
        self.leaving = False
        # What was left out, by cause.
        self.dropped: Counter[str] = Counter()
        self.book = Book(options)
        self.book.owns = self._owns
        self.audit = Audit(self.book, options)
        self._options = options
        self._post = post
        self._clock = clock
        self._roll = EMPTY
        self._confirming = Confirming(least=1)
        self._retelling = Retelling(self.book, options.datagram_bytes)
        self._pulses = self._make_pulses()
        self.outlets = Outlets(post, self._sent)
        self._version = -1

    def _make_pulses(self) -> Pulses:
        return Pulses(
            sender=self.kind,
            role=RoleKind.BROKER,
            options=self._options,
            post=self._post,
            clock=self._clock,
        )

    @property
    def pulses(self) -> Pulses:
        """What it knows of brokers by their answers; an independent one, of its peers."""
        return self._pulses

    @property
    def counts(self) -> dict[str, int]:
        """What it has done, and has."""
        return {
            "rows": self.book.rows,
            "gateways": len(self.book.gateways),
            "pending": len(self._confirming),
            "dropped_full": self.book.refused,
            "dropped_row_unreadable": self.book.unreadable,
            **{f"dropped_{reason}": count for reason, count in sorted(self.dropped.items())},
        }

    @property
    def due(self) -> float:
        """When it wants to be told the time next."""
        return min(self._pulses.due, self.book.due, self._confirming.due, self._retelling.due)

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take a page of what the store knows."""
        self.book.load(rows, self._clock.monotonic())

    def loaded(self, now: float) -> None:
        """The store has been read: it runs."""
        self.state = State.RUNNING

    def changes(self) -> tuple[dict[str, bytes], list[str]]:
        """News for the store, some of it: what to put and what to remove; handed out once."""
        return self.book.changes()

    def see(self, roll: Roll, now: float) -> None:
        """Take note of who is in the registry."""
        self._roll = roll
        self._pulses.sender_id = self.id
        self._pulses.number = roll.partitions
        self._pulses.watch((seat for seats in roll.brokers.values() for seat in seats), now)
        self.audit.see(tuple(seat.id for seat in roll.routers), now)
        self._version = -1
        self._look(now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._pulses.tick(now)
        self._look(now)
        self.book.tick(now)
        self._confirming.tick(now)
        self._retelling.tick(now)

    def receive(self, op: RoomOp, source: Source, now: float) -> None:
        """Take what another role says."""
        match op:
            case Announce():
                self._announced(op, now)
            case Noted():
                self._noted(op, source)
            case Pulse():
                self._pulse(op, source, now)
            case Pulsed():
                self._pulses.hear(op, now)
                self._look(now)
            case Goodbye():
                self._part(op, now)
            case _:
                self._receive_more(op, source, now)

    def _receive_more(self, op: RoomOp, source: Source, now: float) -> None:
        """Nothing else is for a router of this kind."""

    def _announced(self, op: Announce, now: float) -> None:
        known = self._hear(op.card, now)
        if known is None:
            return
        known.taken += 1
        card, entries = op.card, op.entries
        awaited = self.outlets.give(card, entries)
        to = (card.host, card.port)
        self._confirm(
            together(
                self._confirming.expect(card, entry.seq, whom, to, now)
                for entry, whom in zip(entries, awaited, strict=True)
            )
        )
        self.book.take(known, entries, now, write=True)

    def _hear(self, card: Card, now: float) -> Known | None:
        known = self.book.hear(card, now)
        if known is None:
            self.dropped["outdated"] += 1
        return known

    def _sent(self, key: Hashable) -> None:
        """A broker was given a login, which its answers are to account for (R5)."""
        if isinstance(key, int):
            self._pulses.sent(key)

    def _noted(self, op: Noted, source: Source) -> None:
        self._note(self._key(op.broker, source), op.gateway, op.epoch, op.seqs)

    def _note(self, who: Hashable, gateway: str, epoch: int, seqs: list[int]) -> None:
        self._confirm(self._confirming.note(who, gateway, epoch, seqs))

    def _key(self, broker: int, source: Source) -> Hashable:
        """Who has noted something, as `Outlet.key` has it."""
        return broker

    def _confirm(self, done: Iterable[Done]) -> None:
        for to, gateway, epoch, seqs, brokers in done:
            self._post.send(to, Confirmed(gateway, epoch, seqs, brokers))

    def _pulse(self, op: Pulse, source: Source, now: float) -> None:
        taken = 0
        if op.card is not None:
            known = self._hear(op.card, now)
            if known is not None:
                taken = known.taken
        answer(self, op, source, self._post, self._clock, state=self._shown, taken=taken)

    @property
    def _shown(self) -> State:
        return State.INIT if self.leaving else self.state

    def _part(self, op: Goodbye, now: float) -> None:
        # Several roles of one process hear it, so a router may be told by a router.
        if self.book.part(op.card, now):
            self._post.send_all(self.outlets.endpoints, op)

    def _look(self, now: float) -> None:
        """Find out anew which brokers there are, if anything about them has changed."""
        if self._pulses.version != self._version:
            self._version = self._pulses.version
            self._replace(self._seated(), now)

    def _seated(self) -> Iterable[Outlet]:
        for partition, seats in self._roll.brokers.items():
            for seat in seats:
                found = self._pulses.get(seat.id)
                alive = found is not None and found.alive
                number = found.number if found is not None else 0
                ready = alive and found is not None and found.state is State.RUNNING and number > 0
                yield Outlet(seat.id, seat.endpoint, partition, max(number, 1), ready)

    def _replace(self, outlets: Iterable[Outlet], now: float) -> None:
        came, gone = self.outlets.replace(outlets)
        if gone:
            self._forget(gone)
        for outlet in came:
            self._retell(outlet, now)

    def _forget(self, gone: Collection[Hashable]) -> None:
        """Wait for these no longer."""
        self._confirm(self._confirming.forget(gone))

    def _retell(self, outlet: Outlet, now: float) -> None:
        def tell(card: Card, entries: list[Entry]) -> None:
            self._post.send(outlet.endpoint, Login(outlet.partition, card, entries))

        self._retelling.begin(outlet.keeps, tell, now)

    def _owns(self, number: int) -> bool:
        """Whether gateways tell this router of a room, so far as the registry knows."""
        routers = self._roll.routers
        return bool(routers) and routers[router_of(number, len(routers))].id == self.id
