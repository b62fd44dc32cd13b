"""The switch to twice as many partitions, by proxies and brokers that learn of it at any time (R9).

Nothing is lost: each message comes to the gateway of its room, whoever is late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.events.counting import CountingRecorder
from chappe.rooms.broker import Broker
from chappe.rooms.options import RoomsOptions
from chappe.rooms.proxy import Proxy
from chappe.rooms.role import Endpoint, Source
from chappe.rooms.roll import Roll
from chappe.wire.rooms import (
    Deliver,
    Entry,
    Login,
    Pulse,
    RoleKind,
    RoomOp,
    State,
    Submit,
)
from tests.rooms.rig import APP, HandClock, card, endpoint, message, pulsed, seats, source

ROOMS = range(16)
GATEWAY = card(600, 600)
PROXIES = (501, 502, 503)
# Brokers of partition p have the ids 10 * p + 1 and + 2.
BROKERS = {partition: (10 * partition + 1, 10 * partition + 2) for partition in range(4)}
BEFORE = Roll(
    proxies=seats(*PROXIES),
    brokers={partition: seats(*ids) for partition, ids in BROKERS.items()},
    partitions=2,
    wanted=4,
)
AFTER = Roll(proxies=BEFORE.proxies, brokers=BEFORE.brokers, partitions=4, wanted=4)


class Town:
    """Proxies and brokers with a network in between that takes its time, and changes order."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.clock = HandClock()
        self.recorder = CountingRecorder()
        self.roles: dict[Endpoint, Proxy | Broker] = {}
        self.arrived: set[int] = set()
        # How many the gateway had of each broker.
        self._taken: Counter[Endpoint] = Counter()
        self._mail: list[tuple[float, int, Endpoint, RoomOp, Source]] = []
        self._posted = 0
        for id_ in PROXIES:
            self._add(id_, self._proxy(id_))
        for partition, ids in BROKERS.items():
            for id_ in ids:
                self.start_broker(id_, partition, BEFORE)

    def _add(self, id_: int, role: Proxy | Broker) -> None:
        role.id = id_
        self.roles[endpoint(id_)] = role
        role.see(BEFORE, self.clock.now)

    def _proxy(self, id_: int) -> Proxy:
        return Proxy(
            options=RoomsOptions(),
            post=Outbox(self, id_),
            clock=self.clock,
            name=f"n{id_}",
            recorder=self.recorder,
            rng=self.rng,
        )

    def start_broker(self, id_: int, partition: int, roll: Roll) -> None:
        broker = Broker(
            options=RoomsOptions(),
            post=Outbox(self, id_),
            clock=self.clock,
            name=f"n{id_}",
            recorder=self.recorder,
            partition=partition,
        )
        broker.id = id_
        self.roles[endpoint(id_)] = broker
        broker.see(roll, self.clock.now)
        entries = [Entry(APP, str(room), room, room + 1, 1) for room in ROOMS]
        broker.receive(Login(partition, GATEWAY, entries), source(900), self.clock.now)
        broker.loaded(self.clock.now)

    def mail(self, sender: int, to: Endpoint, op: RoomOp) -> None:
        self._posted += 1
        at = self.clock.now + self.rng.uniform(0.001, 0.3)
        heappush(self._mail, (at, self._posted, to, op, source(sender)))

    def run(self, until: float) -> None:
        while True:
            role = min(self.roles.values(), key=lambda role: role.due)
            at = min(role.due, self._mail[0][0] if self._mail else until)
            if at >= until:
                break
            self.clock.now = max(self.clock.now, at)
            if self._mail and self._mail[0][0] <= self.clock.now:
                _, _, to, op, sender = heappop(self._mail)
                self._deliver(to, op, sender)
            else:
                role.tick(self.clock.now)
        self.clock.now = until

    def _deliver(self, to: Endpoint, op: RoomOp, sender: Source) -> None:
        if to in self.roles:
            self.roles[to].receive(op, sender, self.clock.now)
        elif isinstance(op, Deliver):
            self.arrived.add(op.message.id)
            self._taken[sender.endpoint] += 1
        elif isinstance(op, Pulse) and op.role is RoleKind.GATEWAY:
            taken = self._taken[sender.endpoint]
            self.mail(600, sender.endpoint, pulsed(op, self.clock, taken=taken))


class Outbox:
    """The post of one of them."""

    def __init__(self, town: Town, id_: int) -> None:
        self._town = town
        self._id = id_

    def send(self, to: Endpoint, op: RoomOp) -> None:
        self._town.mail(self._id, to, op)

    def send_all(self, to: Iterable[Endpoint], op: RoomOp) -> None:
        for one in to:
            self.send(one, op)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_nothing_is_lost_whoever_learns_of_the_switch_when(seed: int, restart: bool):
    rng = Random(seed)
    town = Town(rng)
    start = town.clock.now + 3.0
    town.run(start)
    learns = {to: start + rng.uniform(0, 8.0) for to in town.roles}
    restarted = start + rng.uniform(0, 4.0)
    sent, now = 0, start
    while now < start + 16.0:
        now += 0.1
        town.run(now)
        for to in [to for to, at in learns.items() if at <= now]:
            del learns[to]
            town.roles[to].see(AFTER, now)
        if restart and now >= restarted:
            # A replica of an old partition that knows of nothing but the new number.
            restart = False
            town.start_broker(BROKERS[1][0], 1, AFTER)
            learns.pop(endpoint(BROKERS[1][0]), None)
        for id_ in PROXIES:
            sent += 1
            room = rng.choice(ROOMS)
            op = Submit(APP, room, message(sent, str(room)))
            town.roles[endpoint(id_)].receive(op, source(700), now)
    town.run(now + 14.0)
    assert town.recorder.drops == {}
    assert town.arrived == set(range(1, sent + 1))
    for role in town.roles.values():
        assert role.state is State.RUNNING
        if isinstance(role, Broker):
            assert (role.modulus, role.counts["rooms"]) == (4, 4)
