"""The broker: knows which gateways have members of a room, and sends each of them one copy (R8).

    INIT     what routers say is queued, while rows of the store are loaded: entries that are later
             count more, so what was queued is taken last
    RUNNING  takes messages

It has the rooms of its partition by the modulus it goes by, which after a doubling is the old one
until all proxies go by the new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from chappe.clock import Clock
from chappe.events.recorder import Recorder
from chappe.rooms.heat import Heat, Hot
from chappe.rooms.hops import Hops
from chappe.rooms.membership import Membership
from chappe.rooms.options import RoomsOptions
from chappe.rooms.pulse import Pulses, Tally, answer
from chappe.rooms.role import Post, Source
from chappe.rooms.roll import EMPTY, Roll
from chappe.rooms.stamp import stamp
from chappe.rooms.subscription import Subscription
from chappe.rooms.table import Table
from chappe.wire.rooms import (
    PSEUDO_APP,
    Carry,
    Count,
    Counted,
    Deliver,
    Goodbye,
    Login,
    Noted,
    Probe,
    Pulse,
    Pulsed,
    RoleKind,
    RoomOp,
    State,
    Who,
)

# How often it is told what a broker does, and which rooms keep it busy.
REPORT_S = 10.0
_ROOM = len("room:")


class Broker:
    """One replica of a partition."""

    kind = RoleKind.BROKER

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
        # Which the registry gave it.
        self.id = 0
        self.partition = partition
        self.state = State.INIT
        # Whether it is about to end: what still comes it sends on, but nobody is to send more.
        self.leaving = False
        self._options = options
        self._post = post
        self._clock = clock
        self._name = name
        self._recorder = recorder
        self._hops = Hops(recorder, name, self.kind)
        self.drops: Counter[str] = Counter()
        self._membership = Membership(
            options=options, post=post, clock=clock, partition=partition, drops=self.drops
        )
        self.subscription = Subscription(
            partition=partition, options=options, post=post, clock=clock
        )
        self._roll: Roll = EMPTY
        # Of proxies, and of routers.
        self._carried = Tally(options.peers_max)
        self._told = Tally(options.peers_max)
        self._heat = Heat()
        self.messages = 0
        self.copies = 0
        self._reported = (0, 0)
        self._report_at = clock.monotonic() + REPORT_S

    @property
    def modulus(self) -> int:
        """It keeps the rooms with room % modulus == partition % modulus."""
        return self._membership.modulus.number

    @property
    def table(self) -> Table:
        """Its rooms."""
        return self._membership.table

    @property
    def pulses(self) -> Pulses:
        """What it knows of gateways by their answers."""
        return self._membership.pulses

    @property
    def cleaning(self) -> bool:
        """Whether it may still have rooms that another partition has now."""
        return not self._membership.modulus.settled or self.table.cleaning

    @property
    def due(self) -> float:
        """When to tick next."""
        return min(self._membership.due, self.subscription.due, self._report_at)

    @property
    def counts(self) -> dict[str, int]:
        """What it has done, and has."""
        return {
            "messages": self.messages,
            "copies": self.copies,
            "rooms": self.table.rooms,
            "members": self.table.members,
            "entries": self.table.entries,
            "gateways": len(self._membership.gateways),
            "queued": self._membership.queued,
            **{f"dropped_{reason}": count for reason, count in sorted(self.drops.items())},
        }

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take a page of what the store knows."""
        self._follow()
        self._membership.load(rows, self._clock.monotonic())

    def loaded(self, now: float) -> None:
        """Take what was queued meanwhile as well, and run."""
        self._follow()
        self._membership.loaded(now)
        self.state = State.RUNNING

    def _follow(self) -> None:
        """Say by which id it is registered, when it asks next."""
        self.pulses.sender_id = self.id

    def see(self, roll: Roll, now: float) -> None:
        """Take note of the number of partitions, of proxies and of routers."""
        self._roll = roll
        senders = [seat.id for seat in roll.proxies]
        if self._membership.modulus.see(roll.partitions, senders, now):
            self._membership.clean(now)
        self.subscription.see(roll, self.id, self.modulus, now)

    def receive(self, op: RoomOp, source: Source, now: float) -> None:
        """Take what another role says; what is not for a broker is ignored."""
        if isinstance(op, Carry):
            self._carry(op, source)
        elif isinstance(op, Login):
            self._login(op, source, now)
        elif isinstance(op, Pulse):
            self._pulse(op, source, now)
        elif isinstance(op, Pulsed):
            (self.pulses if op.role is RoleKind.GATEWAY else self.subscription).hear(op, now)
        elif isinstance(op, Goodbye):
            self._membership.part(op, now)
        elif isinstance(op, Count):
            self._count(op)
        elif isinstance(op, Probe):
            self._probe(op)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._follow()
        self._membership.tick(now)
        self.subscription.tick(now)
        settled = self._membership.modulus.settle(now)
        if settled:
            self._membership.clean(now)
        if settled or self.subscription.id != self.id:
            self.subscription.see(self._roll, self.id, self.modulus, now)
        if now >= self._report_at:
            self._report_at = now + REPORT_S
            self._report()

    def _pulse(self, op: Pulse, source: Source, now: float) -> None:
        taken = self._told
        if op.sender is RoleKind.PROXY:
            taken = self._carried
            if op.sender_id:
                self._membership.modulus.hear(op.sender_id, op.number, now)
        answer(
            self,
            op,
            source,
            self._post,
            self._clock,
            state=State.INIT if self.leaving else self.state,
            taken=taken.of(source.endpoint),
            number=self.modulus,
            partition=self.partition,
        )

    def _carry(self, op: Carry, source: Source) -> None:
        """Send a message on, once to each gateway that has members and answers."""
        self._carried.count(source.endpoint)
        if self.state is not State.RUNNING or not self._membership.modulus.keeps(op.number):
            self._drop(op, "misrouted" if self.state is State.RUNNING else "not_running")
            return
        room = op.message.to[_ROOM:]
        key = f"{op.app}\0{room}"
        targets = self._membership.targets(key, op.app, room, op.number)
        came_from = self._hops.came_from(source.name, op.giver)
        giver = self._hops.passed(op.app, op.message, came_from, targets.names)
        self.messages += 1
        count = len(targets.endpoints)
        self._heat.count(key, count)
        if count:
            self.copies += count
            copy = Deliver(op.app, op.message, op.reliable, op.proxy, self.id, giver)
            if self._post.send_all(targets.endpoints, copy):
                targets.sent()

    def _drop(self, op: Carry, reason: str) -> None:
        self.drops[reason] += 1
        self._hops.dropped(op.app, op.message, reason)

    def _login(self, op: Login, source: Source, now: float) -> None:
        """Take entries to heart, and say which; routers tell gateways."""
        self._told.count(source.endpoint)
        self._follow()
        seqs = self._membership.log_in(op, now)
        if seqs:
            noted = Noted(self.id, self.partition, op.card.name, op.card.epoch, seqs)
            self._post.send(source.endpoint, noted)

    def _count(self, op: Count) -> None:
        """Say how many are in a room; and let its gateways say who, if they are few."""
        if self.state is not State.RUNNING or not self._membership.modulus.keeps(op.number):
            return
        found = self._membership.find(op.app, op.room, op.number)
        members = sum(count for _, count in found)
        asked = found if members <= min(op.limit, self._options.who_max) else []
        to = (op.card.host, op.card.port)
        self._post.send(to, Counted(op.ask, members, len(found), len(asked)))
        if asked:
            who = Who(op.app, op.room, op.ask, op.limit, op.card)
            self._post.send_all([gateway.endpoint for gateway, _ in asked], who)

    def _probe(self, op: Probe) -> None:
        """Send a probe back to its gateway, if that is known to be in its room."""
        came = self._clock.wall_us()
        for gateway, _ in self.table.find(PSEUDO_APP, str(op.room), op.room):
            if gateway.card == op.card:
                known = self.pulses.get(gateway.number)
                ahead_us = 0 if known is None else known.ahead_us
                stamp(op, self._name, self.kind, came, self._clock.wall_us(), ahead_us)
                self._post.send(gateway.endpoint, op)
                return
        self.drops["probe_unknown"] += 1

    def _report(self) -> None:
        """Tell what it did since it told last, and its hottest rooms."""
        if self.state is not State.RUNNING:
            return
        messages, copies = self._reported
        self._reported = (self.messages, self.copies)
        self._recorder.tell(
            "room_load",
            "",
            partition=self.partition,
            n=self.messages - messages,
            copies=self.copies - copies,
            rooms=self.table.rooms,
            members=self.table.members,
        )
        for hot in self._heat.take():
            self._tell_heat(hot)
        self._hops.beats(self.pulses.answering())

    def _tell_heat(self, hot: Hot) -> None:
        app, _, room = hot.key.partition("\0")
        found = self.table.find_key(hot.key)
        self._recorder.tell(
            "room_heat",
            app,
            target=f"room:{room}",
            partition=self.partition,
            n=hot.messages,
            copies=hot.copies,
            members=sum(members for _, members in found),
            gateways=len(found),
        )
