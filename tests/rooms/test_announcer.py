"""Routers are told which rooms are here, until all brokers know (R11)."""

from __future__ import annotations

from collections import Counter

import pytest

from chappe.rooms.announcer import LEAVING_MAX, SLICE_ROOMS, Announcer
from chappe.rooms.options import RoomsOptions
from chappe.rooms.roll import Roll, Seat
from chappe.rooms.routes import Routes
from chappe.wire.rooms import Announce, Entry, Pulse, Pulsed, encode_room_op
from tests.rooms.rig import APP, Bench, card, endpoint, pulsed, seats

OPTIONS = RoomsOptions()
GATEWAY = card(90)


class Rig(Bench):
    """An announcer with routers that answer; members are counted here."""

    def __init__(self, *routers: int, options: RoomsOptions = OPTIONS) -> None:
        super().__init__()
        self.members: Counter[str] = Counter()
        self.told: list[str] = []
        self.routes = Routes(options=options, post=self.post, clock=self.clock, card=GATEWAY)
        self.announcer = Announcer(
            options=options,
            post=self.post,
            card=GATEWAY,
            routes=self.routes,
            count=lambda app, room: self.members[room],
            on_confirmed=lambda app, room: self.told.append(room),
        )
        self.heard = 0
        # Whether routers take nothing of what they are told.
        self.stuck = False
        self.look(seats(*routers))
        self.step(0.0)
        self.post.said.clear()

    def look(self, routers: tuple[Seat, ...]) -> None:
        if self.routes.see(Roll(routers=routers), self.now):
            self.announcer.rerouted(self.now)
        self.hear()

    def hear(self) -> None:
        for _, op in self.post.of(Pulse):
            if op.beat > self.heard and op.id not in self.silent:
                told = pulsed(op, self.clock, taken=0 if self.stuck else op.beat)
                if self.routes.hear(told, self.now):
                    self.announcer.rerouted(self.now)
            self.heard = max(self.heard, op.beat)

    def step(self, seconds: float) -> None:
        """Let time pass, and the announcer and its routes tick when they are due."""
        end = self.now + seconds
        while (due := min(self.announcer.due, self.routes.due)) <= end:
            self.clock.now = max(self.now, due)
            if self.routes.tick(self.now):
                self.announcer.rerouted(self.now)
            self.announcer.tick(self.now)
            self.hear()
        self.clock.now = end

    def join(self, room: str, count: int = 1) -> bool:
        self.members[room] += count
        return self.announcer.joined(APP, room, self.now)

    def leave(self, room: str) -> None:
        self.members[room] -= 1
        self.announcer.left(APP, room, self.now)

    def entries(self) -> list[Entry]:
        """What was told since the last call."""
        return [entry for _, op in self.post.take(Announce) for entry in op.entries]

    def seqs(self) -> list[tuple[int, int]]:
        return [(entry.seq, entry.members) for entry in self.entries()]

    def confirm(self) -> None:
        """Have all that was told last confirmed."""
        self.announcer.confirm([entry.seq for entry in self.entries()])


def settled(*rooms: str, options: RoomsOptions = OPTIONS) -> Rig:
    """A rig with rooms that have a member each, and are confirmed."""
    rig = Rig(1, options=options)
    for room in rooms:
        rig.join(room)
    rig.step(0.02)
    rig.confirm()
    return rig


def test_a_room_is_announced_on_every_join() -> None:
    rig = Rig(1)
    rig.join("7")
    rig.step(0)
    assert rig.post.of(Announce) == [(endpoint(1), Announce(GATEWAY, [Entry(APP, "7", 7, 1, 1)]))]
    rig.entries()
    rig.join("7", 5)
    rig.step(0)
    assert rig.seqs() == [(2, 6)]


def test_joins_of_one_tick_are_told_together() -> None:
    rig = Rig(1)
    for _ in range(3):
        rig.join("7")
        rig.join("8")
    rig.step(0)
    ((_, op),) = rig.post.of(Announce)
    assert [(entry.room, entry.members) for entry in op.entries] == [("7", 3), ("8", 3)]


def test_below_three_members_it_is_told_again_after_ten_milliseconds() -> None:
    rig = Rig(1)
    rig.join("7", 2)
    rig.step(0)
    rig.announcer.confirm([1])
    rig.entries()
    rig.step(0.009)
    assert rig.entries() == []
    rig.step(0.002)
    assert rig.seqs() == [(1, 2)]
    rig.step(1.0)
    assert rig.entries() == []


def test_with_three_members_it_is_not_told_again_once_confirmed() -> None:
    rig = Rig(1)
    rig.join("7", 3)
    rig.step(0)
    rig.confirm()
    rig.step(1.0)
    assert rig.entries() == []


def test_what_is_not_confirmed_is_told_again_less_and_less_often() -> None:
    rig = Rig(1)
    rig.join("7", 3)
    times: list[float] = []
    for _ in range(1100):
        rig.step(0.01)
        times += [round(rig.now - 1000.0, 2)] * len(rig.entries())
    assert times == pytest.approx(
        [0.01, 0.05, 0.15, 0.35, 0.75, 1.55, 3.15, 5.15, 7.15, 9.15], abs=0.02
    )


def test_the_last_leave_is_told_at_once_and_again_until_it_is_confirmed() -> None:
    rig = settled("7")
    rig.leave("7")
    rig.step(0)
    assert rig.seqs() == [(2, 0)]
    rig.step(0.011)
    assert rig.seqs() == [(2, 0)]
    rig.step(0.06)
    assert rig.seqs() == [(2, 0)]
    rig.announcer.confirm([2])
    rig.step(3.0)
    assert rig.entries() == []
    assert len(rig.announcer) == 0


def test_a_confirmed_leave_is_told_once_more_as_members_are_few() -> None:
    rig = settled("7")
    rig.leave("7")
    rig.step(0)
    rig.announcer.confirm([2])
    rig.entries()
    rig.step(0.011)
    assert rig.seqs() == [(2, 0)]
    assert len(rig.announcer) == 0


def test_counts_are_right_again_within_a_second_after_leaves_and_told_once() -> None:
    rig = Rig(1)
    rig.join("7", 100)
    rig.step(0.02)
    rig.confirm()
    for _ in range(40):
        rig.leave("7")
        rig.step(0.01)
    assert rig.entries() == []
    rig.step(0.61)
    assert rig.seqs() == [(2, 60)]


def test_a_join_tells_the_count_at_once_and_nothing_later() -> None:
    rig = Rig(1)
    rig.join("7", 10)
    rig.step(0.02)
    rig.confirm()
    rig.leave("7")
    rig.join("7")
    rig.step(0)
    assert rig.seqs() == [(2, 10)]
    rig.announcer.confirm([2])
    rig.step(2.0)
    assert rig.entries() == []


def test_who_comes_and_goes_within_a_tick_is_not_told_of() -> None:
    rig = Rig(1)
    rig.join("7")
    rig.leave("7")
    rig.step(1.0)
    assert rig.entries() == []
    assert len(rig.announcer) == 0


def test_a_join_is_confirmed_once_and_the_next_one_was_before() -> None:
    rig = Rig(1)
    assert rig.join("7") is False
    rig.step(0)
    assert not rig.announcer.confirmed(APP, "7")
    rig.confirm()
    assert rig.announcer.confirmed(APP, "7")
    assert rig.told == ["7"]
    assert rig.join("7") is True
    rig.step(0)
    rig.confirm()
    assert rig.told == ["7"]


def test_a_join_is_confirmed_by_any_announcement_since_members_came() -> None:
    rig = Rig(1)
    rig.join("7")
    rig.step(0)
    rig.join("7")
    rig.step(0)
    rig.announcer.confirm([1])
    assert rig.told == ["7"]
    rig.entries()
    # The latest is told again all the same: its count is not known to all.
    rig.step(0.1)
    assert set(rig.seqs()) == {(2, 2)}


def test_after_all_have_left_an_old_confirmation_is_none() -> None:
    rig = Rig(1)
    rig.join("7")
    rig.step(0)
    rig.leave("7")
    rig.step(0)
    rig.join("7")
    rig.step(0)
    rig.announcer.confirm([1, 2])
    assert rig.told == []
    assert not rig.announcer.confirmed(APP, "7")
    rig.announcer.confirm([3])
    assert rig.told == ["7"]


def test_a_room_that_was_left_is_not_confirmed_any_more() -> None:
    rig = settled("7")
    rig.leave("7")
    rig.step(0)
    assert not rig.announcer.confirmed(APP, "7")
    assert rig.join("7") is False


def test_who_is_back_before_the_leave_is_told_has_never_left() -> None:
    rig = settled("7")
    rig.leave("7")
    assert rig.join("7") is True
    rig.step(0)
    assert rig.seqs() == [(2, 1)]


def test_confirming_a_leave_while_somebody_comes_loses_no_join() -> None:
    rig = settled("7")
    rig.leave("7")
    rig.step(0.02)
    rig.members["7"] += 1
    rig.announcer.joined(APP, "7", rig.now)
    rig.announcer.confirm([2])
    rig.entries()
    rig.step(0)
    assert rig.seqs() == [(3, 1)]


def test_sequences_grow_whatever_is_told() -> None:
    rig = Rig(1)
    for room in ("7", "8", "7", "9"):
        rig.join(room)
        rig.step(0)
    assert [seq for seq, _ in rig.seqs()] == [1, 2, 3, 4]


def test_all_rooms_are_refreshed_spread_over_the_time() -> None:
    rig = settled(*map(str, range(200)))
    shares: list[int] = []
    seen: Counter[str] = Counter()
    for _ in range(20):
        rig.step(OPTIONS.refresh_s / 20)
        entries = rig.entries()
        seen.update(entry.room for entry in entries)
        shares.append(len(entries))
        rig.announcer.confirm([entry.seq for entry in entries])
    assert set(seen) == set(map(str, range(200)))
    # Some are told several times, as they are confirmed only at the end of each step.
    assert max(shares) < 60


def test_a_single_room_is_refreshed_once_in_the_time() -> None:
    rig = settled("7")
    rig.step(OPTIONS.refresh_s - 1)
    assert rig.entries() == []
    rig.step(2)
    seqs = rig.seqs()
    assert {seq for seq, _ in seqs} == {2}


def test_a_refresh_is_told_once_if_it_is_confirmed() -> None:
    rig = settled("7")
    told: list[int] = []
    while rig.now < 1000.0 + OPTIONS.refresh_s + 2:
        rig.step(0.005)
        seqs = [seq for seq, _ in rig.seqs()]
        rig.announcer.confirm(seqs)
        told += seqs
    assert told == [2]


def test_what_is_not_confirmed_is_not_made_new_by_a_refresh() -> None:
    rig = Rig(1)
    rig.join("7", 3)
    rig.step(3 * OPTIONS.refresh_s)
    assert {seq for seq, _ in rig.seqs()} == {1}


def test_after_a_long_sleep_rooms_are_refreshed_a_share_at_a_time() -> None:
    rig = Rig(1)
    for room in range(5 * SLICE_ROOMS):
        rig.join(str(room), 3)
    rig.announcer.tick(rig.now)
    rig.confirm()
    rig.clock.now += OPTIONS.refresh_s
    rig.announcer.tick(rig.now)
    assert len(rig.entries()) == SLICE_ROOMS
    rig.clock.now = rig.announcer.due
    rig.announcer.tick(rig.now)
    assert 0 < len(rig.entries()) <= SLICE_ROOMS


def test_a_refresh_says_how_many_members_there_are_now() -> None:
    rig = settled("7")
    rig.members["7"] = 50
    rig.step(OPTIONS.refresh_s + 1)
    assert {members for _, members in rig.seqs()} == {50}


def test_many_rooms_cost_a_bounded_share_of_each_tick() -> None:
    rig = Rig(1)
    for room in range(20_000):
        rig.join(str(room), 3)
    rig.announcer.tick(rig.now)
    rig.confirm()
    for _ in range(400):
        rig.step(0.01)
        entries = rig.entries()
        assert len(entries) <= SLICE_ROOMS
        rig.announcer.confirm([entry.seq for entry in entries])


def test_rooms_that_are_not_confirmed_are_told_again_a_share_at_a_time() -> None:
    rig = Rig(1)
    for room in range(5 * SLICE_ROOMS):
        rig.join(str(room), 3)
    rig.announcer.tick(rig.now)
    rig.entries()
    rig.clock.now += 10.0
    told: set[int] = set()
    for _ in range(6):
        rig.announcer.tick(rig.now)
        seqs = {seq for seq, _ in rig.seqs()}
        assert len(seqs) <= SLICE_ROOMS
        assert rig.announcer.due > rig.now
        told |= seqs
        rig.clock.now = rig.announcer.due
    assert len(told) >= 5 * SLICE_ROOMS


def test_an_announcement_fits_into_a_datagram() -> None:
    rig = Rig(1)
    for room in range(300):
        rig.join(f"a-room-with-a-name-{room}")
    rig.step(0)
    sizes = [len(encode_room_op(op)) for _, op in rig.post.of(Announce)]
    assert max(sizes) <= OPTIONS.datagram_bytes - 60
    assert len(sizes) < 30


def test_the_router_is_chosen_by_the_room_in_the_order_of_ids() -> None:  # R11
    rig = Rig(1, 2, 5)
    for room in range(6):
        rig.join(str(room))
    rig.step(0)
    told = {to[1] - 10_000: [e.number for e in op.entries] for to, op in rig.post.of(Announce)}
    assert told == {1: [0, 3], 2: [1, 4], 5: [2, 5]}


def test_a_silent_router_is_passed_over_and_its_rooms_are_told_to_others() -> None:
    rig = Rig(1, 2)
    for room in range(4):
        rig.join(str(room))
    rig.step(0.02)
    rig.confirm()
    rig.silent = {2}
    rig.step(2.0)
    told = [(to, [entry.number for entry in op.entries]) for to, op in rig.post.of(Announce)]
    assert told
    assert {to for to, _ in told} == {endpoint(1)}
    assert {room for _, rooms in told for room in rooms} == {1, 3}


def test_rooms_are_told_to_another_router_though_much_else_is_to_be_told() -> None:
    rig = Rig(1, 2)
    for room in range(600):
        rig.join(str(room), 3)
    rig.announcer.tick(rig.now)
    rig.confirm()
    for room in range(600, 600 + 4 * SLICE_ROOMS):
        rig.join(str(room), 3)
    rig.announcer.tick(rig.now)
    rig.post.said.clear()
    rig.clock.now += 0.06
    rig.look(seats(2))
    told: set[int] = set()
    for _ in range(20):
        rig.announcer.tick(rig.now)
        told |= {entry.number for entry in rig.entries()}
        rig.clock.now = rig.announcer.due
    assert told >= set(range(0, 600, 2))


def test_only_rooms_whose_router_is_another_are_told_again() -> None:
    rig = Rig(1)
    rig.join("2", 3)
    rig.join("3", 3)
    rig.step(0)
    rig.confirm()
    rig.look(seats(1, 2))
    rig.step(0.02)
    assert [(entry.number, entry.seq) for entry in rig.entries()] == [(3, 3)]


def test_without_routers_nothing_is_told_until_one_comes() -> None:
    rig = Rig()
    rig.join("7")
    rig.step(10.0)
    assert rig.entries() == []
    rig.look(seats(1))
    rig.step(0.5)
    assert {entry.room for entry in rig.entries()} == {"7"}


def test_who_leaves_while_there_is_no_router_is_told_when_one_comes() -> None:
    rig = settled("7")
    rig.silent = {1}
    rig.step(2.0)
    rig.leave("7")
    rig.step(1.0)
    rig.silent = set()
    rig.entries()
    rig.step(0.5)
    assert {members for _, members in rig.seqs()} == {0}


def test_a_room_that_nobody_is_in_is_denied() -> None:
    rig = Rig(1)
    assert rig.announcer.deny(APP, "7", rig.now)
    rig.step(0)
    assert rig.seqs() == [(1, 0)]
    assert not rig.announcer.deny(APP, "7", rig.now)
    rig.step(0.02)
    rig.confirm()
    assert len(rig.announcer) == 0


def test_a_leave_that_nobody_confirms_is_given_up_in_the_end() -> None:
    rig = settled("7")
    rig.leave("7")
    rig.step(OPTIONS.expire_s - 3)
    assert len(rig.announcer) == 1
    rig.step(6)
    assert len(rig.announcer) == 0


def test_rooms_that_were_left_are_bounded() -> None:
    rig = Rig()
    for room in range(LEAVING_MAX + 10):
        rig.announcer.deny(APP, str(room), rig.now)
    rig.announcer.tick(rig.now)
    assert len(rig.announcer) == LEAVING_MAX


def test_a_join_and_a_leave_look_at_no_other_room() -> None:
    rig = settled(*map(str, range(3000)))
    asked: list[str] = []

    def count(app: str, room: str) -> int:
        asked.append(room)
        return rig.members[room]

    rig.announcer._count = count
    rig.join("7")
    rig.announcer.tick(rig.now)
    rig.leave("7")
    rig.leave("7")
    rig.announcer.tick(rig.now)
    assert set(asked) == {"7"}


def test_routers_have_to_account_for_what_they_were_told() -> None:  # R5
    rig = Rig(1)
    rig.stuck = True
    for room in range(60):
        rig.join(str(room), 3)
        rig.step(0.1)
    # It answers, but says each time that it took nothing.
    assert rig.routes.of(7) == ()


def test_pulses_carry_the_card() -> None:
    rig = Rig(1)
    rig.step(1.0)
    pulses = [op for _, op in rig.post.of(Pulse)]
    assert pulses
    assert {op.card for op in pulses} == {GATEWAY}
    assert all(not isinstance(op, Pulsed) for op in pulses)


def test_when_a_router_comes_back_it_is_told_first_of_rooms_that_somebody_waits_for() -> None:
    rig = settled(*map(str, range(5 * SLICE_ROOMS)))
    rig.silent = {1}
    rig.step(2 * OPTIONS.beat_s)
    rig.join("late")
    rig.step(0.1)
    rig.entries()
    rig.silent = set()
    rig.step(2 * OPTIONS.pulse_s)
    assert rig.entries()[0].room == "late"


def test_rooms_that_were_left_and_joined_again_meanwhile_are_told_first_as_well() -> None:
    rig = settled(*map(str, range(5 * SLICE_ROOMS)))
    rig.silent = {1}
    rig.step(2 * OPTIONS.beat_s)
    rig.leave("7")
    rig.step(0.1)
    rig.join("7")
    rig.step(0.1)
    rig.entries()
    rig.silent = set()
    rig.step(2 * OPTIONS.pulse_s)
    assert (rig.entries()[0].room, rig.told.count("7")) == ("7", 1)


def test_that_routers_have_changed_costs_no_look_at_any_room() -> None:
    rig = settled(*map(str, range(3 * SLICE_ROOMS)))
    looked = 0

    class Watched(type(rig.announcer._rooms)):  # type: ignore[misc]
        def __iter__(self):  # type: ignore[no-untyped-def]
            nonlocal looked
            for key in super().__iter__():
                looked += 1
                yield key

        def items(self):  # type: ignore[no-untyped-def]
            return [(key, self[key]) for key in self]

    rig.announcer._rooms = Watched(rig.announcer._rooms)
    looked = 0
    rig.look(seats(1, 2))
    assert looked == 0
    told: set[int] = set()
    for _ in range(10):
        rig.announcer.tick(rig.now)
        entries = rig.entries()
        assert len(entries) <= SLICE_ROOMS
        told |= {entry.number for entry in entries}
        rig.announcer.confirm([entry.seq for entry in entries])
        rig.clock.now += 0.01
    assert told >= set(range(1, 3 * SLICE_ROOMS, 2))


def test_rooms_that_come_and_go_while_routers_change_are_told_to_the_right_one() -> None:
    rig = settled(*map(str, range(3 * SLICE_ROOMS)))
    rig.look(seats(1, 2))
    rig.announcer.tick(rig.now)
    told = {to: {entry.number for entry in op.entries} for to, op in rig.post.of(Announce)}
    later = sorted(set(range(1, 3 * SLICE_ROOMS, 2)) - told.get(endpoint(2), set()))
    gone, stays = later[:50], later[50:]
    for room in gone:
        rig.leave(str(room))
    for room in range(10_001, 10_101, 2):
        rig.join(str(room))
    rig.step(1.0)
    heard: dict[int, int] = {}
    for to, op in rig.post.of(Announce):
        if to == endpoint(2):
            heard |= {entry.number: entry.members for entry in op.entries}
    assert [heard.get(room) for room in gone] == [0] * len(gone)
    assert all(heard.get(room) == 1 for room in [*stays, *range(10_001, 10_101, 2)])
