"""The proxy: the entry for messages, which it carries to a broker of the room's partition (R7).

It goes by the number of partitions that the registry has. When that doubles it goes on as before
until a broker answers in each new partition, so that nothing is sent to nobody; not for ever, as
brokers wait for it.
"""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

import msgspec

from chappe.clock import Clock
from chappe.events.recorder import Recorder
from chappe.rooms.balance import Balance
from chappe.rooms.hops import Hops
from chappe.rooms.options import RoomsOptions
from chappe.rooms.partition import partition_of, replica_of
from chappe.rooms.pulse import Pulses, Tally, answer
from chappe.rooms.role import Post, Source
from chappe.rooms.roll import EMPTY, Roll, Seat
from chappe.rooms.stamp import stamp
from chappe.wire.rooms import Carry, Count, Probe, Pulse, Pulsed, RoleKind, RoomOp, State, Submit


class _Lane(NamedTuple):
    """Where messages of a partition go: to these replicas, which are of that partition."""

    partition: int
    seats: list[Seat]
    balance: Balance


class Proxy:
    """One per process that has the role."""

    kind = RoleKind.PROXY

    def __init__(
        self,
        *,
        options: RoomsOptions,
        post: Post,
        clock: Clock,
        name: str,
        recorder: Recorder,
        rng: Random,
    ) -> None:
        # Which the registry gave it.
        self.id = 0
        self._options = options
        self._post = post
        self._clock = clock
        self._name = name
        self._hops = Hops(recorder, name, self.kind)
        self._rng = rng
        self.pulses = Pulses(
            sender=self.kind, role=RoleKind.BROKER, options=options, post=post, clock=clock
        )
        self._by_weight = options.balance == "weights"
        # The number of partitions that it goes by; 0: none is known.
        self.partitions = 0
        # Whether it is able to forward to all of them.
        self.state = State.INIT
        # Whether it is about to end: what still comes it forwards, but nobody is to send more.
        self.leaving = False
        self._roll: Roll = EMPTY
        self._brokers: dict[int, Seat] = {}
        self._since = math.inf
        self._lanes: list[_Lane | None] = []
        self._balances: dict[int, Balance] = {}
        self._version = -1
        self._taken = Tally(options.peers_max)
        self.messages = 0
        self.dropped = 0

    @property
    def due(self) -> float:
        """When to tick next."""
        return self.pulses.due

    @property
    def served(self) -> int:
        """How many partitions it is able to forward to."""
        return sum(lane is not None for lane in self._lanes)

    @property
    def counts(self) -> dict[str, int]:
        """What it has done, and has."""
        return {
            "messages": self.messages,
            "dropped_no_broker": self.dropped,
            "partitions": self.partitions,
            "served": self.served,
        }

    def see(self, roll: Roll, now: float) -> None:
        """Take note of the brokers, and of how many partitions there are."""
        if roll.partitions > max(self._roll.partitions, self.partitions):
            self._since = now
        self._roll = roll
        self.pulses.sender_id = self.id
        self._brokers = {seat.id: seat for seats in roll.brokers.values() for seat in seats}
        self.pulses.watch(self._brokers.values(), now)
        for balance in self._balances.values():
            balance.see(roll.weights.brokers)
        self._look(now)

    def receive(self, op: RoomOp, source: Source, now: float) -> None:
        """Forward something, or answer; what is not for a proxy is ignored."""
        if isinstance(op, Submit):
            self._submit(op, source)
        elif isinstance(op, Pulsed):
            self.pulses.hear(op, now)
            if self._version != self.pulses.version:
                self._look(now)
        elif isinstance(op, Pulse):
            taken = self._taken.of(source.endpoint)
            answer(
                self,
                op,
                source,
                self._post,
                self._clock,
                state=State.INIT if self.leaving else self.state,
                taken=taken,
                number=self.served,
            )
        elif isinstance(op, Count):
            self._count(op)
        elif isinstance(op, Probe):
            self._probe(op)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.pulses.sender_id = self.id
        self.pulses.tick(now)
        if self._version != self.pulses.version or self.partitions < self._roll.partitions:
            self._look(now)

    def _submit(self, op: Submit, source: Source) -> None:
        self.messages += 1
        self._taken.count(source.endpoint)
        lane = self._lane(op.number)
        if lane is None:
            self.dropped += 1
            self._hops.dropped(op.app, op.message, "no_broker")
            return
        seat = self._replica(lane, op.number, op.reliable)
        came_from = self._hops.came_from(source.name, "")
        giver = self._hops.passed(op.app, op.message, came_from, (seat.name,))
        carry = Carry(
            op.app, op.number, op.message, op.reliable, self.id, lane.partition, giver=giver
        )
        if self._post.send(seat.endpoint, carry):
            self.pulses.sent(seat.id)

    def _lane(self, number: int) -> _Lane | None:
        return self._lanes[partition_of(number, self.partitions)] if self.partitions else None

    def _replica(self, lane: _Lane, number: int, reliable: bool) -> Seat:
        """A room's own replica; one of them by chance for a reliable message (R13)."""
        seats = lane.seats
        if reliable:
            return seats[self._rng.randrange(len(seats))]
        if self._by_weight:
            return lane.balance.choose(seats)
        return seats[replica_of(number, self.partitions, len(seats))]

    def _count(self, op: Count) -> None:
        lane = self._lane(op.number)
        if lane is not None:
            seat = self._replica(lane, op.number, reliable=False)
            asked = msgspec.structs.replace(op, partition=lane.partition)
            self._post.send(seat.endpoint, asked)

    def _probe(self, op: Probe) -> None:
        """Send a probe to the very broker that it is for, whether that answers or not."""
        seat = self._brokers.get(op.broker)
        if seat is not None:
            known, came = self.pulses.get(seat.id), self._clock.wall_us()
            ahead_us = 0 if known is None else known.ahead_us
            stamp(op, self._name, self.kind, came, self._clock.wall_us(), ahead_us)
            self._post.send(seat.endpoint, op)

    def _look(self, now: float) -> None:
        """See which brokers take messages, and how many partitions to go by."""
        self._version = self.pulses.version
        wanted = self._roll.partitions
        if wanted > self.partitions:
            waited = now - self._since >= self._options.confirm_s / 2
            if not self.partitions or waited or all(map(self._running, range(wanted))):
                self.partitions = self.pulses.number = wanted
        self._lanes = [
            self._find_lane(partition, self.partitions) for partition in range(self.partitions)
        ]
        able = self.partitions > 0 and self.served == self.partitions
        self.state = State.RUNNING if able else State.INIT

    def _find_lane(self, partition: int, partitions: int) -> _Lane | None:
        """The replicas of a partition; or, if there is none, those of the one beside it that have
        not given up its rooms yet."""
        seats = self._running(partition)
        if not seats and partitions > 1:
            beside = partition ^ (partitions // 2)
            partition, seats = beside, self._running(beside, partitions // 2)
        if not seats:
            return None
        balance = self._balance(partition)
        return _Lane(partition, list(balance.open(seats)), balance)

    def _running(self, partition: int, modulus: int = 0) -> list[Seat]:
        """The replicas that take messages; with a modulus, those that go by it still."""
        return [
            seat
            for seat in self._roll.brokers.get(partition, ())
            if seat.running
            and (known := self.pulses.get(seat.id)) is not None
            and known.alive
            and known.state is State.RUNNING
            and (not modulus or 0 < known.number <= modulus)
        ]

    def _balance(self, partition: int) -> Balance:
        balance = self._balances.get(partition)
        if balance is None:
            balance = self._balances[partition] = Balance(self._options.balance, self.pulses)
            balance.see(self._roll.weights.brokers)
        return balance
