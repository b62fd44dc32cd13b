"""Signs of life: who is passed over, and when it is not any more (R5)."""

from __future__ import annotations

import math

import pytest
from structlog.testing import capture_logs

from chappe.rooms.options import RoomsOptions
from chappe.rooms.pulse import Pulses, Tally, answer
from chappe.rooms.role import Source
from chappe.rooms.roll import Roll, Seat
from chappe.wire.rooms import Card, Pulse, Pulsed, RoleKind, RoomOp, State
from tests.rooms.rig import Bench, endpoint, pulsed, seat, seats, source

OPTIONS = RoomsOptions()


class Asker:
    """A role that does nothing but ask."""

    kind = RoleKind.PROXY

    def __init__(self, bench: Bench, *, trust: bool = False) -> None:
        self.id = 5
        self.pulses = Pulses(
            sender=self.kind,
            role=RoleKind.BROKER,
            options=OPTIONS,
            post=bench.post,
            clock=bench.clock,
            trust=trust,
        )
        self.pulses.sender_id = self.id

    @property
    def due(self) -> float:
        return self.pulses.due

    def receive(self, op: RoomOp, source: Source, now: float) -> None:
        assert isinstance(op, Pulsed)
        self.pulses.hear(op, now)

    def see(self, roll: Roll, now: float) -> None:
        self.pulses.watch(roll.proxies, now)

    def tick(self, now: float) -> None:
        self.pulses.tick(now)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def asker(bench: Bench) -> Asker:
    asker = Asker(bench)
    asker.pulses.watch(seats(1, 2), bench.now)
    return asker


def test_one_who_is_new_is_asked_at_once_and_alive_when_it_has_answered(bench: Bench, asker: Asker):
    asked = bench.post.of(Pulse)
    assert [(to, op.id, op.sender_id) for to, op in asked] == [
        (endpoint(1), 1, 5),
        (endpoint(2), 2, 5),
    ]
    assert not asker.pulses.alive(1)
    bench.silent = {2}
    bench.answer(asker)
    assert asker.pulses.alive(1)
    assert not asker.pulses.alive(2)
    assert asker.pulses.living(seats(1, 2)) == [seat(1)]


def test_signs_of_life_are_asked_for_four_times_a_beat(bench: Bench, asker: Asker):
    bench.post.said.clear()
    bench.pass_time(asker, 10.0)
    assert len([1 for _, op in bench.post.of(Pulse) if op.id == 1]) == 40


def test_each_question_says_what_its_sender_is_then(bench: Bench, asker: Asker):
    asker.pulses.number, asker.pulses.partition = 4, 3
    asker.pulses.card = Card("g", 1, "h", 2)
    bench.post.said.clear()
    bench.pass_time(asker, 0.25)
    op = bench.post.of(Pulse)[0][1]
    assert (op.number, op.partition, op.card) == (4, 3, Card("g", 1, "h", 2))
    assert (op.sender, op.role) == (RoleKind.PROXY, RoleKind.BROKER)


def test_who_falls_silent_is_passed_over_within_two_beats_until_it_answers(
    bench: Bench, asker: Asker
):  # R5
    bench.pass_time(asker, 5.1)
    bench.silent = {1}
    bench.pass_time(asker, 1.4)
    assert asker.pulses.alive(1)
    bench.pass_time(asker, 0.5)
    assert not asker.pulses.alive(1)
    assert asker.pulses.alive(2)
    bench.silent = set()
    bench.pass_time(asker, 0.25)
    assert asker.pulses.alive(1)


def test_one_lost_answer_of_two_does_not_matter_but_is_counted(bench: Bench, asker: Asker):
    bench.answer(asker)
    for _ in range(40):
        bench.silent ^= {1}
        bench.pass_time(asker, 0.25)
        assert asker.pulses.alive(1)
    lossy, sound = asker.pulses.get(1), asker.pulses.get(2)
    assert lossy is not None
    assert sound is not None
    assert 0.3 < lossy.success < 0.75
    assert sound.success == 1.0


def test_who_answers_but_moves_nothing_is_passed_over(bench: Bench, asker: Asker):  # R5
    bench.pass_time(asker, 1.0)
    for _ in range(12):
        asker.pulses.sent(1, 2)
        asker.pulses.sent(2, 2)
        bench.says[2] = {"taken": 2 + bench.says.get(2, {}).get("taken", 0)}
        bench.pass_time(asker, 0.25)
    assert not asker.pulses.alive(1)
    assert asker.pulses.alive(2)


def test_who_was_sent_nothing_need_not_move_anything(bench: Bench, asker: Asker):
    asker.pulses.sent(1, 100)
    bench.pass_time(asker, 60.0)
    assert asker.pulses.alive(1)


def test_a_few_messages_that_get_lost_do_not_make_one_stalled(bench: Bench, asker: Asker):
    for count in range(40):
        asker.pulses.sent(1, count % 4 == 0)
        bench.pass_time(asker, 0.25)
        assert asker.pulses.alive(1)


def stall(bench: Bench, asker: Asker) -> None:
    for _ in range(20):
        asker.pulses.sent(1, 8)
        bench.pass_time(asker, 0.25)
        if not asker.pulses.alive(1):
            return
    raise AssertionError("it is alive")


def test_who_moves_again_is_alive_at_once(bench: Bench, asker: Asker):
    stall(bench, asker)
    bench.says[1] = {"taken": 1}
    bench.pass_time(asker, 0.25)
    assert asker.pulses.alive(1)


def test_who_moved_nothing_is_tried_again_after_longer_and_longer(bench: Bench, asker: Asker):
    waits = []
    for _ in range(8):
        stall(bench, asker)
        began = bench.now
        while not asker.pulses.alive(1):
            bench.pass_time(asker, 0.25)
        waits.append(round(bench.now - began))
    assert waits == [2, 4, 8, 16, 32, 64, 64, 64]


def test_it_is_told_once_that_one_moves_nothing_and_that_it_does_again(bench: Bench, asker: Asker):
    with capture_logs() as logs:
        for _ in range(3):
            stall(bench, asker)
            while not asker.pulses.alive(1):
                bench.pass_time(asker, 0.25)
        assert [(line["event"], line["node"]) for line in logs] == [
            ("rooms.neighbour.stalled", "n1")
        ]
        assert logs[0] | {"sender": "PROXY", "role": "BROKER", "id": 1} == logs[0]
        bench.says[1] = {"taken": 1}
        bench.pass_time(asker, 0.5)
    assert [line["event"] for line in logs[1:]] == ["rooms.neighbour.moves"]
    assert asker.pulses.stalls == 3


def test_messages_sent_after_the_question_are_not_held_against_the_answer(
    bench: Bench, asker: Asker
):
    bench.pass_time(asker, 3.0)
    for _ in range(9):
        # It answers what it was asked before it was sent anything.
        asker.tick(max(bench.now, asker.due))
        bench.clock.now = asker.due
    bench.answer(asker)
    asker.pulses.sent(1, 1000)
    bench.pass_time(asker, 0.5)
    assert asker.pulses.alive(1)


def test_a_process_that_slept_holds_its_own_sleep_against_nobody(bench: Bench, asker: Asker):
    bench.pass_time(asker, 5.0)
    bench.clock.now += 30.0
    asker.tick(bench.now)
    assert asker.pulses.alive(1)
    bench.answer(asker)
    bench.silent = {1}
    bench.pass_time(asker, 2.0)
    assert not asker.pulses.alive(1)


def test_an_answer_counts_once_and_not_when_it_is_late(bench: Bench, asker: Asker):
    op = bench.post.of(Pulse)[0][1]
    told = pulsed(op, bench.clock)
    asker.pulses.hear(told, bench.now)
    version = asker.pulses.version
    asker.pulses.hear(pulsed(op, bench.clock, number=9), bench.now)
    known = asker.pulses.get(1)
    assert known is not None
    assert known.number == 0
    assert asker.pulses.version == version
    bench.silent = {1, 2}
    bench.pass_time(asker, 10.0)
    late = next(op for _, op in bench.post.of(Pulse) if op.id == 2)
    asker.pulses.hear(pulsed(late, bench.clock), bench.now)
    assert not asker.pulses.alive(2)


def test_an_answer_in_another_ones_name_is_not_believed(bench: Bench, asker: Asker):
    told = pulsed(bench.post.of(Pulse)[0][1], bench.clock)
    told.id = 2
    asker.pulses.hear(told, bench.now)
    assert not asker.pulses.alive(1)
    assert not asker.pulses.alive(2)


def test_round_trips_and_the_others_clock_are_measured(bench: Bench, asker: Asker):
    op = bench.post.of(Pulse)[0][1]
    bench.clock.now += 0.010
    told = pulsed(op, bench.clock)
    told.at += 5_000_000
    bench.clock.now += 0.010
    asker.pulses.hear(told, bench.now)
    known = asker.pulses.get(1)
    assert known is not None
    assert known.round_trip_s == pytest.approx(0.020)
    assert known.ahead_us == pytest.approx(5_000_000, abs=2)


def test_a_slow_answer_says_little_of_the_others_clock(bench: Bench, asker: Asker):
    bench.pass_time(asker, 1.0)
    bench.clock.now = asker.due
    asker.tick(bench.now)
    op = [op for _, op in bench.post.of(Pulse) if op.id == 1][-1]
    bench.clock.now += 0.2
    told = pulsed(op, bench.clock)
    asker.pulses.hear(told, bench.now)
    known = asker.pulses.get(1)
    assert known is not None
    assert known.ahead_us == 0


def test_what_one_says_of_itself_is_known_and_changes_the_version(bench: Bench, asker: Asker):
    bench.answer(asker)
    version = asker.pulses.version
    bench.pass_time(asker, 1.0)
    assert asker.pulses.version == version
    bench.says[2] = {"state": State.INIT, "number": 4}
    bench.pass_time(asker, 0.25)
    known = asker.pulses.get(2)
    assert known is not None
    assert (known.state, known.number) == (State.INIT, 4)
    assert asker.pulses.version > version


def test_who_is_registered_no_more_is_not_asked(bench: Bench, asker: Asker):
    bench.pass_time(asker, 1.0)
    version = asker.pulses.version
    asker.pulses.watch(seats(2), bench.now)
    assert asker.pulses.version > version
    bench.post.said.clear()
    bench.pass_time(asker, 1.0)
    assert {op.id for _, op in bench.post.of(Pulse)} == {2}
    assert not asker.pulses.alive(1)
    asker.pulses.watch((), bench.now)
    assert asker.pulses.due == math.inf


def test_one_that_moved_elsewhere_has_to_answer_there(bench: Bench, asker: Asker):
    bench.pass_time(asker, 1.0)
    elsewhere = seat(9)
    moved = type(elsewhere)(1, elsewhere.place)
    asker.pulses.watch((moved,), bench.now)
    assert not asker.pulses.alive(1)
    assert bench.post.said[-1][0] == endpoint(9)


def test_who_is_trusted_is_alive_until_it_had_the_time_to_answer(bench: Bench):
    asker = Asker(bench, trust=True)
    asker.pulses.watch(seats(1), bench.now)
    bench.silent = {1}
    assert asker.pulses.alive(1)
    bench.pass_time(asker, 1.7)
    assert asker.pulses.alive(1)
    bench.pass_time(asker, 0.2)
    assert not asker.pulses.alive(1)


def test_an_answer_goes_to_who_asked_with_what_it_sent(bench: Bench, asker: Asker):
    op = Pulse(RoleKind.PUBLISHER, 0, RoleKind.PROXY, 5, 17, 123.5)
    answer(
        asker,
        op,
        source(8),
        bench.post,
        bench.clock,
        state=State.RUNNING,
        taken=3,
        number=4,
        partition=2,
    )
    to, told = bench.post.said[-1]
    assert to == endpoint(8)
    assert isinstance(told, Pulsed)
    assert (told.sender, told.role, told.id) == (RoleKind.PUBLISHER, RoleKind.PROXY, 5)
    assert (told.beat, told.sent, told.at) == (17, 123.5, bench.clock.wall_us())
    assert (told.state, told.taken, told.number, told.partition) == (State.RUNNING, 3, 4, 2)


def test_a_tally_counts_each_sender_and_has_a_bound():
    tally = Tally(2)
    for sender in (1, 1, 2, 3):
        tally.count(endpoint(sender))
    assert [tally.of(endpoint(sender)) for sender in (1, 2, 3)] == [0, 1, 1]
    tally.count(endpoint(3))
    assert tally.of(endpoint(3)) == 2


def test_who_sits_down_again_as_another_is_who_it_was(bench: Bench, asker: Asker):
    bench.says[1] = {"number": 4, "taken": 3}
    bench.clock.now += 0.002
    bench.answer(asker)
    asker.pulses.sent(1, 5)
    before = asker.pulses.get(1)
    asker.pulses.watch((Seat(9, seat(1).place), *seats(2)), bench.now)
    after = asker.pulses.get(9)
    assert after is not None
    assert before is not None
    assert after is not before
    for name in ("state", "number", "heard", "answering", "success", "round_trip_s"):
        assert getattr(after, name) == getattr(before, name), name
    for name in ("ahead_us", "measured", "sent", "taken"):
        assert getattr(after, name) == getattr(before, name), name
    assert after.measured
    assert asker.pulses.alive(9)
    assert after in asker.pulses.answering()
