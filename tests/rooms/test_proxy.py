"""The proxy: where it carries messages, and what it goes by while partitions double (R3, R7)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from chappe.events.counting import CountingRecorder
from chappe.rooms.options import RoomsOptions
from chappe.rooms.proxy import Proxy
from chappe.rooms.role import Endpoint
from chappe.rooms.roll import Roll, Seats, Weights
from chappe.wire.rooms import Carry, Count, Probe, Pulse, Pulsed, RoleKind, Stamp, State, Submit
from tests.rooms.rig import APP, Bench, card, endpoint, message, seat, seats, source


def brokers(partitions: int, replicas: int = 2) -> dict[int, Seats]:
    """Brokers whose ids are 10 * partition + 1, + 2, .."""
    return {
        partition: seats(*(10 * partition + number + 1 for number in range(replicas)))
        for partition in range(partitions)
    }


class Entry(Bench):
    """A proxy whose brokers answer."""

    def __init__(self, roll: Roll, options: RoomsOptions | None = None) -> None:
        super().__init__()
        self.recorder = CountingRecorder()
        self.proxy = Proxy(
            options=options or RoomsOptions(),
            post=self.post,
            clock=self.clock,
            name="me",
            recorder=self.recorder,
            rng=Random(1),
        )
        self.proxy.id = 77
        self.see(roll)
        self.settle()

    def see(self, roll: Roll) -> None:
        self.proxy.see(roll, self.now)

    def settle(self, seconds: float = 0.0) -> None:
        self.pass_time(self.proxy, seconds)

    def submit(self, room: int = 7, *, reliable: bool = False) -> Endpoint | None:
        """Submit a message; where it went."""
        self.post.said.clear()
        op = Submit(APP, room, message(1, str(room)), reliable)
        self.proxy.receive(op, source(500), self.now)
        carried = self.post.of(Carry)
        assert len(carried) <= 1
        return carried[0][0] if carried else None

    def state(self) -> tuple[State, int, int]:
        """What it answers: its state, how many partitions it serves, what it took."""
        self.post.said.clear()
        self.proxy.receive(
            Pulse(RoleKind.PUBLISHER, 0, RoleKind.PROXY, 77, 1, 0.0), source(500), self.now
        )
        told = self.post.of(Pulsed)[0][1]
        return told.state, told.number, told.taken


FOUR = Roll(brokers=brokers(4, 4), partitions=4)


def test_a_message_goes_to_its_rooms_replica_of_its_partition():
    entry = Entry(FOUR)
    assert entry.submit(7) == endpoint(10 * 3 + 1 + (7 // 4) % 4)
    op = entry.post.of(Carry)[0][1]
    assert (op.app, op.number, op.message) == (APP, 7, message(1, "7"))
    assert (op.proxy, op.partition, op.reliable) == (77, 3, False)


def test_all_sixteen_of_four_times_four_work():  # R3
    entry = Entry(FOUR)
    went = Counter(entry.submit(room) for room in range(1600))
    assert len(went) == 16
    assert set(went.values()) == {100}


def test_it_runs_when_a_broker_answers_in_every_partition():  # R7
    entry = Entry(Roll())
    assert entry.state()[:2] == (State.INIT, 0)
    entry.silent = {31, 32, 33, 34}
    entry.see(FOUR)
    entry.settle(1.0)
    assert entry.state()[:2] == (State.INIT, 3)
    entry.silent = {31, 32, 33}
    entry.settle(0.5)
    assert entry.state()[:2] == (State.RUNNING, 4)
    entry.silent = {31, 32, 33, 34}
    entry.settle(2.0)
    assert entry.state()[:2] == (State.INIT, 3)


def test_only_running_replicas_that_answer_get_messages():  # R7
    roll = Roll(brokers={0: (seat(1), seat(2, running=False), seat(3), seat(4))}, partitions=1)
    entry = Entry(roll)
    entry.says[4] = {"state": State.INIT}
    entry.silent = {3}
    entry.settle(2.0)
    assert {entry.submit(room) for room in range(20)} == {endpoint(1)}
    entry.silent = set()
    entry.settle(1.0)
    assert {entry.submit(room) for room in range(20)} == {endpoint(1), endpoint(3)}


def test_a_room_stays_on_its_replica_while_the_set_stays():  # R14
    entry = Entry(FOUR)
    before = [entry.submit(room) for room in range(64)]
    entry.settle(30.0)
    assert [entry.submit(room) for room in range(64)] == before


def test_a_broker_that_answers_but_takes_nothing_is_passed_over():  # R5
    entry = Entry(Roll(brokers={0: seats(1, 2)}, partitions=1))
    taken = 0
    for _ in range(10):
        for room in range(8):
            taken += entry.submit(room) == endpoint(2)
        entry.says[2] = {"taken": taken}
        entry.settle(0.25)
    assert {entry.submit(room) for room in range(8)} == {endpoint(2)}


def test_what_goes_in_pieces_does_not_make_a_broker_stalled():  # R5
    entry = Entry(Roll(partitions=1, brokers=brokers(1)))
    first = entry.submit()
    entry.post.whole = False
    for _ in range(20):
        entry.settle(0.25)
        assert entry.submit() == first


def test_without_a_broker_a_message_is_dropped_and_counted():
    entry = Entry(Roll())
    assert entry.submit() is None
    entry.silent = {11, 12}
    entry.see(Roll(brokers=brokers(2), partitions=2))
    entry.settle(1.0)
    assert entry.submit(4) is not None
    assert entry.submit(5) is None
    assert entry.recorder.drops == {"no_broker": 2}
    assert entry.proxy.counts["dropped_no_broker"] == 2


def test_a_reliable_message_goes_to_any_replica():  # R13
    entry = Entry(FOUR)
    went = Counter(entry.submit(7, reliable=True) for _ in range(400))
    assert set(went) == {endpoint(id_) for id_ in (31, 32, 33, 34)}
    assert min(went.values()) > 60
    assert entry.post.of(Carry)[0][1].reliable


def test_by_weight_a_rooms_messages_go_to_several_replicas():  # R5
    roll = Roll(brokers=brokers(2), partitions=2, weights=Weights(brokers={11: 3.0, 12: 1.0}))
    entry = Entry(roll, RoomsOptions(balance="weights"))
    went = Counter(entry.submit(7) for _ in range(40))
    assert went == {endpoint(11): 30, endpoint(12): 10}


def test_a_broker_with_weight_0_takes_nothing():
    entry = Entry(Roll(brokers=brokers(1), partitions=1))
    entry.submit(0)
    entry.see(Roll(brokers=brokers(1), partitions=1, weights=Weights(brokers={1: 0.0})))
    assert {entry.submit(room) for room in range(8)} == {endpoint(2)}


def test_it_says_how_many_partitions_it_goes_by():  # R8: which is the confirmation
    entry = Entry(Roll(brokers=brokers(2), partitions=2))
    entry.post.said.clear()
    entry.settle(0.25)
    assert {(op.number, op.sender_id) for _, op in entry.post.of(Pulse)} == {(2, 77)}


def test_new_partitions_are_asked_before_they_are_used():
    entry = Entry(Roll(brokers=brokers(4), partitions=2, wanted=4))
    assert entry.submit(7) in (endpoint(11), endpoint(12))
    entry.see(Roll(brokers=brokers(4), partitions=4, wanted=4))
    # At once, without waiting for anybody.
    assert entry.submit(7) in (endpoint(31), endpoint(32))
    assert entry.proxy.pulses.number == 4


def test_it_goes_by_the_old_number_until_all_new_partitions_answer():  # R9
    entry = Entry(Roll(brokers=brokers(2), partitions=2))
    entry.silent = {31, 32}
    entry.see(Roll(brokers=brokers(4), partitions=4))
    entry.settle(2.0)
    assert entry.submit(7) in (endpoint(11), endpoint(12))
    assert entry.proxy.pulses.number == 2
    entry.silent = {31}
    entry.settle(0.3)
    assert entry.submit(7) == endpoint(32)
    assert entry.proxy.pulses.number == 4


def test_it_does_not_wait_for_them_for_ever():
    entry = Entry(Roll(brokers=brokers(2), partitions=2))
    entry.silent = {31, 32}
    entry.see(Roll(brokers=brokers(4), partitions=4))
    entry.settle(4.8)
    assert entry.proxy.pulses.number == 2
    entry.settle(0.5)
    assert entry.proxy.pulses.number == 4


def test_what_a_dead_new_partition_would_get_goes_to_who_has_its_rooms_still():
    entry = Entry(Roll(brokers=brokers(4), partitions=4))
    for id_ in (11, 12):
        entry.says[id_] = {"number": 2}
    entry.silent = {31, 32}
    entry.settle(2.0)
    assert entry.submit(7) in (endpoint(11), endpoint(12))
    assert entry.post.of(Carry)[0][1].partition == 1
    # Until that has given them up.
    for id_ in (11, 12):
        entry.says[id_] = {"number": 4}
    entry.settle(0.5)
    assert entry.submit(7) is None


def test_partitions_never_become_fewer():
    entry = Entry(Roll(brokers=brokers(4), partitions=4))
    entry.see(Roll(brokers=brokers(4), partitions=1))
    assert entry.submit(7) in (endpoint(31), endpoint(32))
    entry.see(Roll(brokers=brokers(4), partitions=0))
    assert entry.submit(7) in (endpoint(31), endpoint(32))


def test_it_says_what_it_took_of_whom():
    entry = Entry(FOUR)
    for _ in range(3):
        entry.submit()
    assert entry.state()[2] == 3
    entry.proxy.receive(
        Pulse(RoleKind.PUBLISHER, 0, RoleKind.PROXY, 77, 1, 0.0), source(501), entry.now
    )
    assert entry.post.of(Pulsed)[-1][1].taken == 0


def test_a_question_goes_to_the_partition_of_its_room():
    entry = Entry(FOUR)
    entry.post.said.clear()
    op = Count(APP, "7", 7, 1, 10, card(9), -1)
    entry.proxy.receive(op, source(9), entry.now)
    ((to, asked),) = entry.post.of(Count)
    assert to == entry.submit(7)
    assert (asked.partition, asked.ask, asked.card) == (3, 1, card(9))
    assert op.partition == -1


def test_a_probe_goes_to_its_very_broker_stamped_even_if_that_is_silent():  # R15
    entry = Entry(FOUR)
    entry.silent = {32}
    entry.settle(3.0)
    entry.post.said.clear()
    op = Probe(1, 3, 3, 32, card(9), [])
    entry.proxy.receive(op, source(9), entry.now)
    ((to, probe),) = entry.post.of(Probe)
    assert to == endpoint(32)
    now = entry.clock.wall_us()
    assert probe.stamps == [Stamp("me", RoleKind.PROXY, now, now, 0)]
    entry.proxy.receive(Probe(1, 3, 3, 999, card(9), []), source(9), entry.now)
    assert len(entry.post.of(Probe)) == 1


@pytest.mark.parametrize(("name", "giver"), [("n500", None), ("me", "")])
def test_a_hop_is_told_unless_it_is_within_the_node(name: str, giver: str | None):
    entry = Entry(Roll(brokers={0: (seat(1, name="me"),)}, partitions=1))
    entry.post.said.clear()
    op = Submit(APP, 7, message(1), False)
    entry.proxy.receive(op, source(500, name), entry.now)
    assert entry.post.of(Carry)[0][1].giver == (giver if name == "me" else "proxy\0n500")
