"""The broker: knows which gateways have members of a room, and sends each of them one copy (R8).

    INIT     what routers say is queued, while rows of the store are loaded: entries that are later
             count more, so what was queued is taken last
    RUNNING  takes messages

It has the rooms of its partition by the modulus it goes by, which after a doubling is the old one
until all proxies go by the new one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from chappe.clock import Clock
from chappe.errors import StorageError
from chappe.events.recorder import Recorder
from chappe.rooms.gateways import Gateway, Gateways
from chappe.rooms.heat import Heat
from chappe.rooms.hops import Hops
from chappe.rooms.modulus import Modulus
from chappe.rooms.options import RoomsOptions
from chappe.rooms.pulse import Pulses, Tally, answer
from chappe.rooms.role import Endpoint, Post, Source
from chappe.rooms.roll import EMPTY, Roll, Seat
from chappe.rooms.row import read_row
from chappe.rooms.stamp import stamp
from chappe.rooms.subscription import Subscription
from chappe.rooms.table import Table, Verdict, key_of
from chappe.wire.rooms import (
    Card,
    Carry,
    Count,
    Counted,
    Deliver,
    Entry,
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
# Rooms of which it is remembered where their messages go.
_TARGETS_MAX = 4096
_ROOM = len("room:")
PSEUDO_APP = "~"


class _Targets:
    """Where the messages of a room go."""

    __slots__ = ("endpoints", "names")

    def __init__(self, gateways: list[Gateway]) -> None:
        self.endpoints: tuple[Endpoint, ...] = tuple(each.endpoint for each in gateways)
        self.names: tuple[str, ...] = tuple(each.name for each in gateways)


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
        self._options = options
        self._post = post
        self._clock = clock
        self._name = name
        self._recorder = recorder
        self._hops = Hops(recorder, name, self.kind)
        self._modulus = Modulus(partition, confirm_s=options.confirm_s, grace_s=options.beat_s)
        self._gateways = Gateways(
            options.peers_max, hush_s=2 * options.beat_s, remember_s=options.expire_s
        )
        self.table = Table(
            self._gateways, entries_max=options.entries_max, expire_s=options.expire_s
        )
        self.pulses = Pulses(
            sender=self.kind,
            role=RoleKind.GATEWAY,
            options=options,
            post=post,
            clock=clock,
            trust=True,
            asked=self._epoch_of,
        )
        self.subscription = Subscription(
            partition=partition, options=options, post=post, clock=clock
        )
        self._roll: Roll = EMPTY
        self._queue: deque[tuple[Login | Goodbye, float]] = deque()
        self._queued = 0
        self._carried = Tally(options.peers_max)
        self._told = Tally(options.peers_max)
        self._targets: dict[str, _Targets] = {}
        self._version = -1
        self._heat = Heat()
        self.messages = 0
        self.copies = 0
        self.drops: Counter[str] = Counter()
        self._reported = (0, 0)
        self._report_at = clock.monotonic() + REPORT_S
        self._expire_at = clock.monotonic() + options.beat_s

    @property
    def modulus(self) -> int:
        """It keeps the rooms with room % modulus == partition % modulus."""
        return self._modulus.number

    @property
    def cleaning(self) -> bool:
        """Whether it may still have rooms that another partition has now."""
        return not self._modulus.settled or self.table.cleaning

    @property
    def due(self) -> float:
        """When to tick next."""
        return min(
            self.pulses.due,
            self.subscription.due,
            self.table.due,
            self._report_at,
            self._expire_at,
        )

    @property
    def counts(self) -> dict[str, int]:
        """What it has done, and has."""
        return {
            "messages": self.messages,
            "copies": self.copies,
            "rooms": self.table.rooms,
            "members": self.table.members,
            "entries": self.table.entries,
            "gateways": len(self._gateways),
            "queued": self._queued,
            **{f"dropped_{reason}": count for reason, count in sorted(self.drops.items())},
        }

    def _epoch_of(self, seat: Seat) -> int:
        return self._gateways.by_number[seat.id].card.epoch

    def load(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take a page of what the store knows; rows that nobody can read are counted."""
        now = self._clock.monotonic()
        for key, value in rows:
            try:
                card, entry = read_row(key, value)
            except StorageError:
                self.drops["row_unreadable"] += 1
                continue
            if self._modulus.keeps(entry.number):
                gateway = self._maybe_gateway(card, now)
                if gateway is not None:
                    self._put(gateway, entry, now)

    def loaded(self, now: float) -> None:
        """Take what was queued meanwhile as well, and run."""
        while self._queue:
            op, came = self._queue.popleft()
            if isinstance(op, Login):
                self._log_in(op.card, op.entries, came)
            else:
                self._part(op.card, came)
        self._queued = 0
        self.state = State.RUNNING

    def see(self, roll: Roll, now: float) -> None:
        """Take note of the number of partitions, of proxies and of routers."""
        self._roll = roll
        if self._modulus.see(roll.partitions, (seat.id for seat in roll.proxies), now):
            self.table.clean(self._modulus.keeps, now)
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
            self._goodbye(op, now)
        elif isinstance(op, Count):
            self._count(op)
        elif isinstance(op, Probe):
            self._probe(op)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.pulses.sender_id = self.id
        self.pulses.tick(now)
        self.subscription.tick(now)
        if self._modulus.settle(now):
            self.table.clean(self._modulus.keeps, now)
            self.subscription.see(self._roll, self.id, self.modulus, now)
        if self.table.sweep(now):
            self._targets.clear()
        if now >= self._expire_at:
            self._expire_at = now + self._options.beat_s
            self._expire(now)
        if now >= self._report_at:
            self._report_at = now + REPORT_S
            self._report()

    def _pulse(self, op: Pulse, source: Source, now: float) -> None:
        taken = self._told
        if op.sender is RoleKind.PROXY:
            taken = self._carried
            if op.sender_id:
                self._modulus.hear(op.sender_id, op.number, now)
        answer(
            self,
            op,
            source,
            self._post,
            self._clock,
            state=self.state,
            taken=taken.of(source.endpoint),
            number=self.modulus,
            partition=self.partition,
        )

    def _carry(self, op: Carry, source: Source) -> None:
        """Send a message on, once to each gateway that has members and answers."""
        self._carried.count(source.endpoint)
        if self.state is not State.RUNNING or not self._modulus.keeps(op.number):
            self._drop(op, "misrouted" if self.state is State.RUNNING else "not_running")
            return
        key = f"{op.app}\0{op.message.to[_ROOM:]}"
        targets = self._targets_of(key, op.app, op.message.to, op.number)
        came_from = self._hops.came_from(source.name, op.giver)
        giver = self._hops.passed(op.app, op.message, came_from, targets.names)
        self.messages += 1
        count = len(targets.endpoints)
        self._heat.count(key, count)
        if count:
            self.copies += count
            copy = Deliver(op.app, op.message, op.reliable, op.proxy, self.id, giver)
            self._post.send_all(targets.endpoints, copy)

    def _drop(self, op: Carry, reason: str) -> None:
        self.drops[reason] += 1
        self._hops.dropped(op.app, op.message, reason)

    def _targets_of(self, key: str, app: str, to: str, number: int) -> _Targets:
        if self._version != self.pulses.version:
            self._version = self.pulses.version
            self._targets.clear()
        targets = self._targets.get(key)
        if targets is None:
            if len(self._targets) >= _TARGETS_MAX:
                self._targets.clear()
            found = self._answering(app, to[_ROOM:], number)
            targets = self._targets[key] = _Targets([gateway for gateway, _ in found])
        return targets

    def _answering(self, app: str, room: str, number: int) -> list[tuple[Gateway, int]]:
        found = self.table.find(app, room, number)
        return [each for each in found if self.pulses.alive(each[0].number)]

    def _login(self, op: Login, source: Source, now: float) -> None:
        """Take entries to heart, and say which; routers tell gateways."""
        self._told.count(source.endpoint)
        if self.state is State.RUNNING:
            seqs = self._log_in(op.card, op.entries, now)
        else:
            seqs = self._wait(op, len(op.entries), now)
        if seqs:
            noted = Noted(self.id, self.partition, op.card.name, op.card.epoch, seqs)
            self._post.send(source.endpoint, noted)

    def _wait(self, op: Login | Goodbye, count: int, now: float) -> list[int]:
        """Queue something until all is loaded; the seqs of entries that will be kept."""
        if self._queued + count > self._options.init_queue_max:
            self.drops["queue_full"] += count
            return []
        self._queue.append((op, now))
        self._queued += count
        entries = op.entries if isinstance(op, Login) else []
        return [entry.seq for entry in entries if self._modulus.keeps(entry.number)]

    def _log_in(self, card: Card, entries: list[Entry], now: float) -> list[int]:
        gateway = self._maybe_gateway(card, now)
        if gateway is None:
            self.drops["card_refused"] += 1
            return []
        keeps = self._modulus.keeps
        return [
            entry.seq for entry in entries if keeps(entry.number) and self._put(gateway, entry, now)
        ]

    def _put(self, gateway: Gateway, entry: Entry, now: float) -> bool:
        verdict = self.table.put(gateway, entry, now)
        if verdict is Verdict.CHANGED:
            self._targets.pop(key_of(entry.app, entry.room), None)
        elif verdict is Verdict.REFUSED:
            self.drops["table_full"] += 1
        return verdict is not Verdict.REFUSED

    def _maybe_gateway(self, card: Card, now: float) -> Gateway | None:
        before = self._gateways.get(card.name)
        gateway = self._gateways.maybe_admit(card, now)
        if self._gateways.get(card.name) is not before:
            self._watch(now)
        return gateway

    def _goodbye(self, op: Goodbye, now: float) -> None:
        if self.state is State.RUNNING:
            self._part(op.card, now)
        else:
            self._wait(op, 1, now)

    def _part(self, card: Card, now: float) -> None:
        if self._gateways.leave(card, now) is not None:
            self._watch(now)

    def _watch(self, now: float) -> None:
        self.pulses.sender_id = self.id
        self.pulses.watch(self._gateways.seats(), now)

    def _expire(self, now: float) -> None:
        """Forget gateways that have answered nothing, or have been in no room, for long."""
        before = now - self._options.expire_s
        gone = [
            gateway
            for gateway in self._gateways.by_number.values()
            if (not gateway.entries and gateway.seen <= before)
            or ((known := self.pulses.get(gateway.number)) is not None and known.heard <= before)
        ]
        for gateway in gone:
            self._gateways.give_up(gateway)
        if gone:
            self._watch(now)

    def _count(self, op: Count) -> None:
        """Say how many are in a room; and let its gateways say who, if they are few."""
        if self.state is not State.RUNNING or not self._modulus.keeps(op.number):
            return
        found = self._answering(op.app, op.room, op.number)
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
        for gateway, _ in self.table.find(PSEUDO_APP, str(op.room), op.number):
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
            self._tell_heat(hot.key, hot.messages, hot.copies)

    def _tell_heat(self, key: str, messages: int, copies: int) -> None:
        app, _, room = key.partition("\0")
        found = self.table.find_key(key)
        self._recorder.tell(
            "room_heat",
            app,
            target=f"room:{room}",
            partition=self.partition,
            n=messages,
            copies=copies,
            members=sum(members for _, members in found),
            gateways=len(found),
        )
