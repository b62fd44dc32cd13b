"""Independent routers: partitions and replicas of their own, to which brokers subscribe (R12)."""

from __future__ import annotations

from chappe.events.counting import CountingRecorder
from chappe.rooms.independent import IndependentRouter
from chappe.rooms.options import RoomsOptions
from chappe.rooms.roll import Roll
from chappe.rooms.row import row_key, write_row
from chappe.wire.rooms import (
    Announce,
    Card,
    Confirmed,
    Entry,
    Goodbye,
    Login,
    Noted,
    Pass,
    Pulse,
    Pulsed,
    RoleKind,
    RoomOp,
    State,
)
from tests.rooms.rig import APP, Bench, card, endpoint, seats, source

OPTIONS = RoomsOptions()
GATEWAY = card(90)
ME, PEER, PEER_2 = 70, 71, 72


def entry(room: int, seq: int = 1, members: int = 1) -> Entry:
    return Entry(APP, str(room), room, seq, members)


def key(room: int) -> str:
    return row_key(room, APP, str(room), "g90")


class Rig(Bench):
    """A replica of a partition of routers, with others that answer."""

    def __init__(
        self,
        *peers: int,
        partition: int = 0,
        partitions: int = 1,
        loaded: bool = True,
        options: RoomsOptions = OPTIONS,
    ) -> None:
        super().__init__()
        self.router = IndependentRouter(
            options=options,
            post=self.post,
            clock=self.clock,
            name="r1",
            recorder=CountingRecorder(),
            partition=partition,
        )
        self.router.id = ME
        if loaded:
            self.router.loaded(self.now)
        self.peers = peers
        self.gateways = [GATEWAY]
        self.number = partitions
        self.brokers: dict[int, tuple[int, int]] = {}
        self.look(partitions)
        self.run(2.0)

    def look(self, partitions: int) -> None:
        independent = {self.router.partition: seats(ME, *self.peers)}
        roll = Roll(independent=independent, router_partitions=partitions)
        self.router.see(roll, self.now)
        self.answer(self.router)

    def subscribe(self, broker: int, partition: int = 0, modulus: int = 1) -> None:
        """Have a broker ask for signs of life from now on, four times a beat."""
        self.brokers[broker] = (partition, modulus)
        self._subscribe(broker)

    def _subscribe(self, broker: int) -> None:
        partition, modulus = self.brokers[broker]
        pulse = Pulse(
            RoleKind.BROKER, broker, RoleKind.ROUTER, ME, 1, self.now, modulus, None, partition
        )
        self.say(pulse, broker)

    def say(self, op: RoomOp, by: int) -> None:
        self.router.receive(op, source(by), self.now)

    def pulse(self, by: Card, number: int) -> None:
        self.say(Pulse(RoleKind.GATEWAY, by.epoch, RoleKind.ROUTER, ME, 1, 0.0, number, by), 90)

    def run(self, seconds: float) -> None:
        """Let time pass; brokers and gateways give their signs of life."""
        end = self.now + seconds
        while self.now < end:
            for broker in self.brokers:
                self._subscribe(broker)
            for each in self.gateways:
                self.pulse(each, self.number)
            self.pass_time(self.router, min(0.25, end - self.now))

    def announce(self, *entries: Entry, by: Card = GATEWAY) -> None:
        self.post.said.clear()
        self.say(Announce(by, list(entries)), 90)

    def pass_(self, *entries: Entry, partition: int = 0) -> None:
        self.post.said.clear()
        self.say(Pass(GATEWAY, list(entries), partition), PEER)

    def note(self, broker: int, *seqs: int) -> list[tuple[object, Confirmed]]:
        self.post.said.clear()
        self.say(Noted(broker, 0, "g90", 1, list(seqs)), broker)
        return list(self.post.of(Confirmed))

    def peer_confirms(self, peer: int, brokers: int, *seqs: int) -> list[Confirmed]:
        self.post.said.clear()
        self.say(Confirmed("g90", 1, list(seqs), brokers, peer), peer)
        return [op for _, op in self.post.of(Confirmed)]

    def logins(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for (_, port), op in self.post.of(Login):
            found.setdefault(port - 10_000, []).extend(each.number for each in op.entries)
        return found


def test_brokers_subscribe_by_signs_of_life_and_get_the_rooms_of_their_modulus() -> None:
    rig = Rig()
    rig.subscribe(1, 0, 4)
    rig.subscribe(2, 1, 4)
    rig.subscribe(3, 5, 4)  # as its sibling 1, by the old number
    rig.announce(*(entry(room, room) for room in range(1, 9)))
    assert rig.logins() == {1: [4, 8], 2: [1, 5], 3: [1, 5]}


def test_a_broker_that_goes_by_another_number_gets_other_rooms() -> None:
    rig = Rig()
    rig.subscribe(1, 1, 2)
    rig.announce(entry(3))
    assert rig.logins() == {1: [3]}
    rig.subscribe(1, 1, 4)
    rig.announce(entry(3, 2), entry(5, 3))
    assert rig.logins() == {1: [5]}


def test_who_asks_no_more_is_given_no_more() -> None:
    rig = Rig()
    rig.subscribe(1)
    rig.subscribe(2)
    rig.run(1.0)
    del rig.brokers[1]
    rig.run(2 * OPTIONS.beat_s)
    rig.announce(entry(6))
    assert rig.logins() == {2: [6]}
    assert [op for _, op in rig.note(2, 1)] == [Confirmed("g90", 1, [1], 1)]


def test_brokers_of_several_systems_may_have_one_id() -> None:
    rig = Rig()
    rig.subscribe(1)
    other = Pulse(RoleKind.BROKER, 1, RoleKind.ROUTER, ME, 1, 0.0, 1)
    rig.say(other, 55)
    rig.announce(entry(6))
    assert rig.logins() == {1: [6], 55: [6]}
    assert rig.note(1, 1) == []
    rig.say(Noted(1, 0, "g90", 1, [1]), 55)
    assert [op.brokers for _, op in rig.post.of(Confirmed)] == [2]


def test_a_sign_of_life_is_answered_with_what_the_router_is() -> None:
    rig = Rig(partition=1, partitions=2)
    rig.post.said.clear()
    rig.subscribe(1)
    ((to, said),) = rig.post.of(Pulsed)
    assert to == endpoint(1)
    assert (said.partition, said.number, said.state) == (1, 2, State.RUNNING)


def test_an_announcement_goes_to_the_peers_first_and_then_to_its_own_brokers() -> None:
    rig = Rig(PEER, PEER_2)
    rig.subscribe(1)
    rig.announce(entry(6))
    told = [(to, type(op)) for to, op in rig.post.said]
    assert told == [(endpoint(PEER), Pass), (endpoint(PEER_2), Pass), (endpoint(1), Login)]


def test_what_was_passed_goes_to_its_own_brokers_and_no_further() -> None:
    rig = Rig(PEER, PEER_2)
    rig.subscribe(1)
    rig.pass_(entry(6))
    assert rig.logins() == {1: [6]}
    assert rig.post.of(Pass) == []
    assert rig.post.of(Confirmed) == []
    assert rig.note(1, 1) == [(endpoint(PEER), Confirmed("g90", 1, [1], 1, ME))]


def test_without_brokers_of_its_own_what_was_passed_is_confirmed_at_once() -> None:
    rig = Rig(PEER)
    rig.pass_(entry(6))
    assert rig.post.of(Confirmed) == [(endpoint(PEER), Confirmed("g90", 1, [1], 0, ME))]


def test_what_was_passed_in_another_partition_is_not_taken() -> None:
    rig = Rig(PEER)
    rig.subscribe(1)
    rig.pass_(entry(6), partition=1)
    assert rig.post.said == []


def test_a_gateway_is_told_when_peers_and_own_brokers_all_know() -> None:
    rig = Rig(PEER, PEER_2)
    rig.subscribe(1)
    rig.announce(entry(6))
    assert rig.note(1, 1) == []
    assert rig.peer_confirms(PEER, 2, 1) == []
    assert rig.peer_confirms(PEER_2, 0, 1) == [Confirmed("g90", 1, [1], 3)]
    assert rig.post.of(Confirmed)[0][0] == endpoint(90)


def test_brokers_of_a_peer_are_enough_and_none_at_all_are_not() -> None:
    rig = Rig(PEER)
    rig.announce(entry(6))
    assert rig.peer_confirms(PEER, 0, 1) == []
    rig.announce(entry(8, 2))
    assert rig.peer_confirms(PEER, 1, 2) == [Confirmed("g90", 1, [2], 1)]


def test_a_confirmation_for_a_gateway_of_the_same_process_is_not_a_peers() -> None:
    rig = Rig(PEER)
    rig.announce(entry(6))
    rig.say(Confirmed("g90", 1, [1], 3), PEER)
    assert rig.post.of(Confirmed) == []
    # Nor do those brokers count.
    assert rig.peer_confirms(PEER, 0, 1) == []


def test_a_silent_peer_is_passed_to_but_not_waited_for() -> None:
    rig = Rig(PEER)
    rig.subscribe(1)
    rig.silent = {PEER}
    rig.run(2.0)
    rig.announce(entry(6))
    assert [to for to, _ in rig.post.of(Pass)] == [endpoint(PEER)]
    assert [op for _, op in rig.note(1, 1)] == [Confirmed("g90", 1, [1], 1)]


def test_a_peer_that_comes_back_is_told_what_gateways_said_here() -> None:
    rig = Rig(PEER, PEER_2)
    rig.silent = {PEER}
    rig.run(2.0)
    rig.announce(entry(6, 1))
    rig.pass_(entry(8, 2))  # its own router will tell it
    rig.silent = set()
    rig.post.said.clear()
    rig.run(1.0)
    assert [(to, op.entries) for to, op in rig.post.of(Pass)] == [(endpoint(PEER), [entry(6, 1)])]


def test_a_new_subscriber_is_told_what_was_said_before() -> None:
    rig = Rig(PEER)
    rig.announce(entry(6, 1), entry(7, 2))
    rig.pass_(entry(8, 3))
    rig.post.said.clear()
    rig.subscribe(1, 0, 2)
    rig.run(0.1)
    assert rig.logins() == {1: [6, 8]}


def test_only_who_was_announced_to_writes_the_store() -> None:
    rig = Rig(PEER)
    rig.pass_(entry(6, 1))
    assert rig.router.changes() == ({}, [])
    rig.announce(entry(8, 2))
    assert rig.router.changes() == ({key(8): write_row(GATEWAY, entry(8, 2))}, [])
    # The other one may have died before it wrote.
    rig.announce(entry(6, 3))
    assert set(rig.router.changes()[0]) == {key(6)}


def test_rooms_of_other_partitions_are_left_to_others() -> None:
    rig = Rig(PEER, partition=1, partitions=2)
    rig.subscribe(1)
    rig.announce(entry(6), entry(7, 2))
    assert rig.logins() == {1: [7]}
    assert [op.entries for _, op in rig.post.of(Pass)] == [[entry(7, 2)]]
    rig.announce(entry(6, 3))
    assert rig.post.said == []


def test_a_new_partition_has_what_its_sibling_has() -> None:  # R8
    rig = Rig(partition=3, partitions=2, loaded=False)
    rig.subscribe(1)
    rows = [(key(room), write_row(GATEWAY, entry(room))) for room in range(8)]
    rig.router.load([*rows, ("nonsense", b"")])
    assert rig.router.book.rows == 4
    assert rig.router.book.unreadable == 1
    assert rig.router.state is State.INIT
    rig.announce(*(entry(room, room + 10) for room in range(8)))
    assert rig.logins() == {1: [1, 3, 5, 7]}
    rig.router.loaded(rig.now)
    assert rig.router.state is State.RUNNING


def test_after_a_doubling_both_halves_are_kept_until_all_gateways_have_confirmed() -> None:
    rig = Rig(partition=1, partitions=2)
    rig.gateways.append(card(91, epoch=2))
    rig.announce(*(entry(room, room) for room in (1, 3, 5, 7)))
    rig.run(1.0)
    rig.look(4)
    rig.run(5.0)
    assert rig.router.modulus == 2
    assert rig.router.book.rows == 4
    # One goes by the new number, the other does not.
    rig.gateways.pop()
    for _ in range(20):
        rig.pulse(card(91, epoch=2), 4)
        rig.run(0.25)
    assert rig.router.modulus == 2
    rig.number = 4
    rig.run(3.0)
    assert rig.router.modulus == 4
    assert rig.router.book.rows == 2
    assert rig.router.changes()[1] == []  # the store is the other partition's business


def test_many_rooms_are_cleaned_a_share_at_a_time_though_others_come_and_go() -> None:
    rig = Rig(partition=1, partitions=2)
    rooms = range(1, 40_000, 2)
    for start in range(0, len(rooms), 1000):
        rig.announce(*(entry(room, room) for room in rooms[start : start + 1000]))
    book = rig.router.book
    book.clean(1, 4, rig.now)
    (known,) = book.gateways.values()
    # None of what is copied at once is large.
    assert max(map(len, known.rows.shelves())) < len(rooms) / 40
    ticks = 0
    while book.rows > len(rooms) / 2 + 100:
        before = book.rows
        book.tick(rig.now)
        assert before - book.rows <= 2000
        # Some are told of again, and some are new.
        new = 100_001 + 4 * ticks
        book.take(known, [entry(rooms[2 * ticks], 10**6), entry(new, 1)], rig.now, write=False)
        rig.clock.now += 0.011
        ticks += 1
    rig.run(1.0)
    assert ticks >= 10
    kept = {int(name) for (_, name), _ in known.rows.walk()}
    assert kept == {room for room in rooms if room % 4 == 1} | {
        100_001 + 4 * tick for tick in range(ticks)
    }
    assert book.rows == len(kept)


def test_a_gateway_that_is_silent_does_not_hold_up_a_doubling() -> None:
    rig = Rig(partition=1, partitions=2)
    rig.run(1.0)
    rig.look(4)
    rig.gateways.clear()
    rig.run(OPTIONS.confirm_s - 2)
    assert rig.router.modulus == 2
    rig.run(5.0)
    assert rig.router.modulus == 4


def test_after_the_switch_rooms_of_the_other_half_are_not_carried() -> None:
    rig = Rig(partition=1, partitions=2)
    rig.subscribe(1)
    rig.run(1.0)
    rig.look(4)
    rig.number = 4
    rig.run(3.0)
    rig.announce(entry(1), entry(3, 2))
    assert rig.logins() == {1: [1]}


def test_a_goodbye_goes_to_its_own_brokers_and_not_to_peers() -> None:
    rig = Rig(PEER)
    rig.subscribe(1)
    rig.announce(entry(6))
    rig.router.changes()
    rig.post.said.clear()
    rig.gateways.clear()
    rig.say(Goodbye(GATEWAY), 90)
    assert [to for to, _ in rig.post.of(Goodbye)] == [endpoint(1)]
    rig.run(0.25)
    assert rig.router.changes() == ({}, [key(6)])


def test_of_a_dead_gateway_each_row_is_removed_by_the_replica_whose_it_is() -> None:
    rig = Rig(PEER)
    rig.pass_(entry(6, 1), entry(7, 2))
    rig.gateways.clear()
    rig.run(OPTIONS.expire_s + 2)
    assert rig.router.changes() == ({}, [key(6)])


def test_gateways_with_one_epoch_are_each_waited_for() -> None:
    rig = Rig(partition=1, partitions=2)
    rig.run(1.0)
    rig.look(4)
    for _ in range(20):
        rig.pulse(card(91, epoch=GATEWAY.epoch), 4)  # the other one goes by the old number
        rig.run(0.25)
        rig.pulse(card(91, epoch=GATEWAY.epoch), 4)
        rig.pass_time(rig.router, 0.25)
    assert rig.router.modulus == 2


def test_who_starts_waits_for_gateways_that_the_store_knows_of() -> None:
    fresh = Rig(partition=1, partitions=4, loaded=False)
    fresh.gateways.clear()
    fresh.run(2.0)
    assert fresh.router.modulus == 2
    fresh.say(Goodbye(GATEWAY), 90)
    other = card(92, epoch=3)
    fresh.router.load([(row_key(1, APP, "1", "g92"), write_row(other, entry(1)))])
    fresh.router.loaded(fresh.now)
    fresh.run(OPTIONS.confirm_s - 2)
    assert fresh.router.modulus == 2
    fresh.run(5.0)
    assert fresh.router.modulus == 4


def test_a_peer_that_answers_but_takes_nothing_is_not_waited_for() -> None:  # R5
    rig = Rig(PEER, PEER_2)
    rig.subscribe(1)
    for seq in range(1, 60):
        rig.says[PEER] = {"taken": 0}
        rig.says[PEER_2] = {"taken": seq}
        rig.announce(entry(6, seq))
        rig.run(0.1)
    rig.announce(entry(6, 100))
    rig.note(1, 100)
    assert rig.peer_confirms(PEER_2, 0, 100) == [Confirmed("g90", 1, [100], 1)]


def test_a_peer_is_told_how_much_was_taken_of_it() -> None:  # R5
    rig = Rig(PEER)
    for seq in (1, 2, 3):
        rig.pass_(entry(6, seq))
    rig.post.said.clear()
    rig.say(Pulse(RoleKind.ROUTER, PEER, RoleKind.ROUTER, ME, 1, 0.0, 1), PEER)
    assert [said.taken for _, said in rig.post.of(Pulsed)] == [3]


def test_subscribers_are_bounded_and_who_subscribed_stays() -> None:
    rig = Rig(options=RoomsOptions(peers_max=2))
    for broker in (1, 2, 3):
        rig.subscribe(broker)
    rig.subscribe(1)
    rig.announce(entry(6))
    assert rig.logins() == {1: [6], 2: [6]}
    assert rig.router.dropped["subscribers"] == 1
