"""A broker's subscription to independent routers (R12)."""

from __future__ import annotations

from chappe.rooms.options import RoomsOptions
from chappe.rooms.role import Source
from chappe.rooms.roll import Roll, Seats
from chappe.rooms.subscription import Subscription
from chappe.wire.rooms import Pulse, Pulsed, RoleKind, RoomOp
from tests.rooms.rig import Bench, endpoint, seat, seats


def routers(partitions: int, replicas: int = 3) -> dict[int, Seats]:
    """Routers whose ids are 10 * partition + 1, + 2, .."""
    return {
        partition: seats(*(10 * partition + number + 1 for number in range(replicas)))
        for partition in range(partitions)
    }


class Subscriber(Bench):
    """A broker that only subscribes."""

    kind = RoleKind.BROKER

    def __init__(self, partition: int, id: int) -> None:
        super().__init__()
        self.id = id
        self.subscription = Subscription(
            partition=partition, options=RoomsOptions(), post=self.post, clock=self.clock
        )

    @property
    def due(self) -> float:
        return self.subscription.due

    def receive(self, op: RoomOp, source: Source, now: float) -> None:
        assert isinstance(op, Pulsed)
        self.subscription.hear(op, now)

    def see(self, roll: Roll, now: float, modulus: int = 1) -> None:
        self.subscription.see(roll, self.id, modulus, now)

    def tick(self, now: float) -> None:
        self.subscription.tick(now)

    def asked(self, seconds: float = 3.0) -> set[int]:
        """Whom it asks for a while from now on."""
        self.pass_time(self, seconds)
        self.post.said.clear()
        self.pass_time(self, 1.0)
        return {op.id for _, op in self.post.of(Pulse)}


def test_with_fewer_router_partitions_it_subscribes_to_one():  # R12: B=4, R=2: 3 -> 1
    broker = Subscriber(3, id=7)
    broker.see(Roll(independent=routers(2), router_partitions=2), broker.now, 4)
    assert broker.asked() == {12}
    assert broker.subscription.routers == [12]


def test_with_more_router_partitions_it_subscribes_to_several():  # R12: B=4, R=8: 3 -> 3, 7
    broker = Subscriber(3, id=6)
    broker.see(Roll(independent=routers(8), router_partitions=8), broker.now, 4)
    assert broker.asked() == {31, 71}


def test_a_subscription_says_who_it_is_for():  # R12
    broker = Subscriber(3, id=6)
    broker.see(Roll(independent=routers(2), router_partitions=2), broker.now, 4)
    ((to, op),) = broker.post.of(Pulse)
    assert to == endpoint(11)
    assert (op.sender, op.sender_id, op.role, op.id) == (RoleKind.BROKER, 6, RoleKind.ROUTER, 11)
    assert (op.number, op.partition) == (4, 3)


def test_a_router_that_is_dead_is_replaced_by_another_of_its_partition_until_it_answers():
    broker = Subscriber(0, id=7)
    broker.see(Roll(independent=routers(1), router_partitions=1), broker.now)
    assert broker.asked() == {2}
    broker.silent = {2}
    assert broker.asked(2.0) == {2, 3}
    broker.silent = {2, 3}
    assert broker.asked(2.0) == {1, 2, 3}
    assert broker.subscription.routers == [1, 2, 3]
    broker.silent = {3}
    assert broker.asked() == {2}


def test_it_picks_again_when_the_count_changes_and_both_are_asked_for_a_while():
    broker = Subscriber(0, id=7)
    broker.see(Roll(independent=routers(1, 3), router_partitions=1), broker.now)
    assert broker.asked() == {2}
    broker.see(Roll(independent=routers(1, 4), router_partitions=1), broker.now)
    assert broker.subscription.routers == [4]
    broker.post.said.clear()
    broker.pass_time(broker, 0.5)
    assert {op.id for _, op in broker.post.of(Pulse)} == {2, 4}
    assert broker.asked() == {4}


def test_a_router_that_only_makes_ready_is_not_subscribed_to():
    broker = Subscriber(0, id=7)
    partition = (seat(1), seat(2, running=False))
    broker.see(Roll(independent={0: partition}, router_partitions=1), broker.now)
    assert broker.asked() == {1}


def test_while_routers_double_it_subscribes_to_old_and_new():
    broker = Subscriber(7, id=6)
    roll = Roll(independent=routers(4), router_partitions=2, router_wanted=4)
    broker.see(roll, broker.now, 8)
    assert broker.asked() == {11, 31}
    broker.see(Roll(independent=routers(4), router_partitions=4, router_wanted=4), broker.now, 8)
    assert broker.asked() == {31}


def test_without_independent_routers_nobody_is_asked():
    broker = Subscriber(0, id=7)
    broker.see(Roll(routers=seats(1, 2)), broker.now)
    assert broker.due == float("inf")
    assert not broker.post.said
