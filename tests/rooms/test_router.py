"""The router carries logins to all replicas of the right partitions, and writes news (R10)."""

from __future__ import annotations

from chappe.events.counting import CountingRecorder
from chappe.rooms.options import RoomsOptions
from chappe.rooms.retelling import SLICE_ROWS
from chappe.rooms.roll import Roll, Seats
from chappe.rooms.router import Router
from chappe.rooms.row import row_key, write_row
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
    State,
)
from tests.rooms.rig import APP, Bench, card, endpoint, seats, source

OPTIONS = RoomsOptions()
GATEWAY = card(90)


def entry(room: int, seq: int = 1, members: int = 1) -> Entry:
    return Entry(APP, str(room), room, seq, members)


def key(room: int, gateway: str = "g90") -> str:
    return row_key(room, APP, str(room), gateway)


class Rig(Bench):
    """A router with brokers that answer by a modulus."""

    def __init__(
        self, brokers: dict[int, Seats], modulus: int, *, options: RoomsOptions = OPTIONS
    ) -> None:
        super().__init__()
        self.router = Router(
            options=options,
            post=self.post,
            clock=self.clock,
            name="r1",
            recorder=CountingRecorder(),
        )
        self.router.id = 70
        self.modulus = modulus
        self.says = {
            seat.id: {"number": modulus} for each in brokers.values() for seat in each
        } | self.says
        self.look(brokers)

    def look(self, brokers: dict[int, Seats], routers: Seats = ()) -> None:
        partitions = max(self.modulus, 1)
        roll = Roll(brokers=brokers, partitions=partitions, routers=routers or seats(70))
        self.router.see(roll, self.now)
        self.answer(self.router)

    def announce(self, *entries: Entry, by: Card = GATEWAY) -> None:
        self.post.said.clear()
        op = Announce(by, list(entries))
        self.router.receive(op, source(90, by.name), self.now)

    def logins(self) -> dict[int, list[int]]:
        """Rooms, by the port of the broker that was told of them."""
        found: dict[int, list[int]] = {}
        for (_, port), op in self.post.of(Login):
            found.setdefault(port - 10_000, []).extend(each.number for each in op.entries)
        return found

    def note(self, broker: int, *seqs: int, by: Card = GATEWAY) -> list[Confirmed]:
        self.post.said.clear()
        noted = Noted(broker, 0, by.name, by.epoch, list(seqs))
        self.router.receive(noted, source(broker), self.now)
        return [op for _, op in self.post.of(Confirmed)]

    def changes(self) -> tuple[set[str], set[str]]:
        puts, deletes = self.router.changes()
        return set(puts), set(deletes)

    def run(self, seconds: float) -> None:
        self.pass_time(self.router, seconds)


def two_by_two() -> Rig:
    return Rig({0: seats(1, 2), 1: seats(3, 4)}, 2)


def test_a_login_goes_to_all_replicas_of_its_partition_and_to_no_others() -> None:  # R3, R10
    rig = two_by_two()
    rig.announce(entry(6), entry(7, 2), entry(8, 3))
    assert rig.logins() == {1: [6, 8], 2: [6, 8], 3: [7], 4: [7]}
    assert [op.partition for _, op in rig.post.of(Login)] == [0, 0, 1, 1]


def test_it_is_encoded_once_for_all_replicas() -> None:
    rig = two_by_two()
    before = rig.post.at_once
    rig.announce(entry(6))
    assert rig.post.at_once == before + 1


def test_during_a_doubling_both_partitions_are_told_by_each_brokers_own_modulus() -> None:  # R10
    # Partition 2 is new, and has what its sibling 0 has; 3 is the sibling of 1.
    brokers = {0: seats(1), 1: seats(2), 2: seats(3), 3: seats(4)}
    rig = Rig(brokers, 2)
    rig.announce(entry(6))
    assert rig.logins() == {1: [6], 3: [6]}
    # The new ones have switched already, the old ones have not.
    rig.says = {1: {"number": 2}, 2: {"number": 2}, 3: {"number": 4}, 4: {"number": 4}}
    rig.run(0.5)
    rig.announce(entry(4, 2), entry(6, 3))
    assert rig.logins() == {1: [4, 6], 3: [6]}
    rig.says = {id_: {"number": 4} for id_ in (1, 2, 3, 4)}
    rig.run(0.5)
    rig.announce(entry(4, 4), entry(6, 5))
    assert rig.logins() == {1: [4], 3: [6]}


def test_during_a_doubling_a_join_awaits_both_partitions() -> None:  # R9, R10
    rig = Rig({0: seats(1), 1: seats(2), 2: seats(3), 3: seats(4)}, 2)
    rig.announce(entry(6))
    assert rig.note(1, 1) == []
    assert rig.note(3, 1) == [Confirmed("g90", 1, [1], 2)]
    rig.announce(entry(6, 2))
    assert rig.note(3, 2) == []
    assert rig.note(1, 2) == [Confirmed("g90", 1, [2], 2)]


def test_a_join_is_confirmed_when_all_living_replicas_have_noted_it() -> None:
    rig = two_by_two()
    rig.announce(entry(6))
    assert rig.note(1, 1) == []
    assert rig.note(2, 1) == [Confirmed("g90", 1, [1], 2)]
    assert rig.post.of(Confirmed)[0][0] == endpoint(90)


def test_a_broker_that_is_silent_is_told_but_not_waited_for() -> None:
    rig = two_by_two()
    rig.silent = {2}
    rig.run(2 * OPTIONS.beat_s)
    rig.announce(entry(6))
    assert rig.logins() == {1: [6], 2: [6]}
    assert rig.note(1, 1) == [Confirmed("g90", 1, [1], 1)]


def test_when_a_broker_falls_silent_what_waits_for_it_is_confirmed() -> None:
    rig = two_by_two()
    rig.run(1.0)
    rig.silent = {2}
    rig.run(1.5)
    rig.announce(entry(6))
    rig.note(1, 1)
    rig.run(0.5)
    assert [op for _, op in rig.post.of(Confirmed)] == [Confirmed("g90", 1, [1], 1)]


def test_without_any_broker_nothing_is_confirmed() -> None:
    rig = Rig({0: ()}, 1)
    rig.announce(entry(6))
    rig.run(0.5)
    assert rig.post.of(Confirmed) == []


def test_a_broker_that_is_not_known_yet_gets_everything_and_is_not_waited_for() -> None:
    rig = Rig({0: seats(1)}, 2)
    rig.silent = {5}
    rig.look({0: seats(1), 1: seats(5)})
    rig.announce(entry(6))
    assert rig.logins() == {1: [6], 5: [6]}
    assert rig.note(1, 1) == [Confirmed("g90", 1, [1], 1)]


def test_a_broker_that_makes_ready_is_told_and_enough_when_nobody_runs() -> None:
    rig = Rig({0: seats(1, 2)}, 1)
    rig.says = {id_: {"number": 1, "state": State.INIT} for id_ in (1, 2)}
    rig.run(0.5)
    rig.announce(entry(6))
    assert rig.logins() == {1: [6], 2: [6]}
    assert rig.note(2, 1) == [Confirmed("g90", 1, [1], 1)]


def test_what_is_announced_again_is_sent_again_and_confirmed_again() -> None:
    rig = two_by_two()
    rig.announce(entry(6))
    rig.note(1, 1)
    rig.note(2, 1)
    rig.announce(entry(6))
    assert rig.logins() == {1: [6], 2: [6]}
    rig.note(1, 1)
    assert rig.note(2, 1) == [Confirmed("g90", 1, [1], 2)]


def test_a_broker_that_comes_back_is_told_what_it_may_have_missed() -> None:
    rig = two_by_two()
    rig.run(1.0)
    rig.silent = {1}
    rig.run(2.0)
    rig.announce(entry(6, 1), entry(7, 2), entry(8, 3))
    rig.silent = set()
    rig.post.said.clear()
    rig.run(1.0)
    assert rig.logins() == {1: [6, 8]}


def test_a_broker_that_comes_back_is_told_of_rooms_that_were_left_as_well() -> None:
    rig = two_by_two()
    rig.announce(entry(6, 1))
    rig.silent = {1}
    rig.run(2.0)
    rig.announce(entry(6, 2, members=0))
    rig.silent = set()
    rig.post.said.clear()
    rig.run(1.0)
    assert [op.entries for _, op in rig.post.of(Login)] == [[entry(6, 2, members=0)]]


def test_what_was_only_loaded_is_not_retold() -> None:
    # Brokers have loaded it as well.
    rig = two_by_two()
    rig.router.load([(key(6), write_row(GATEWAY, entry(6)))])
    rig.silent = {1}
    rig.run(2.0)
    rig.silent = set()
    rig.post.said.clear()
    rig.run(1.0)
    assert rig.logins() == {}


def test_a_long_book_is_retold_a_share_at_a_time() -> None:
    rig = Rig({0: seats(1)}, 1)
    rig.silent = {1}
    rig.run(2.0)
    count = 3 * SLICE_ROWS
    rig.announce(*(entry(room, room + 1) for room in range(count)))
    rig.silent = set()
    told: set[int] = set()
    while len(told) < count:
        rig.post.said.clear()
        rig.run(0.01)
        found = set(rig.logins().get(1, ()))
        assert len(found) <= 2 * SLICE_ROWS
        told |= found


def test_news_is_written_and_a_refresh_is_none() -> None:  # R10
    rig = two_by_two()
    rig.announce(entry(6, 1), entry(7, 2))
    puts, deletes = rig.router.changes()
    assert puts == {
        key(6): write_row(GATEWAY, entry(6, 1)),
        key(7): write_row(GATEWAY, entry(7, 2)),
    }
    assert deletes == []
    rig.announce(entry(6, 3, members=2))
    assert rig.changes() == (set(), set())
    rig.announce(entry(6, 4, members=0))
    assert rig.changes() == (set(), {key(6)})
    rig.announce(entry(6, 4, members=0))
    assert rig.changes() == (set(), set())
    rig.announce(entry(6, 5))
    assert rig.changes() == ({key(6)}, set())


def test_what_has_not_been_told_of_here_for_long_is_news_again() -> None:
    # Another router may have removed it meanwhile.
    rig = two_by_two()
    rig.announce(entry(6, 1))
    rig.changes()
    for _ in range(4):
        rig.run(OPTIONS.refresh_s / 2)
        pulse(rig)
    rig.announce(entry(6, 2))
    assert rig.changes() == ({key(6)}, set())


def pulse(rig: Rig, by: Card = GATEWAY) -> Pulsed:
    rig.post.said.clear()
    op = Pulse(RoleKind.GATEWAY, by.epoch, RoleKind.ROUTER, 70, 1, rig.now, 0, by)
    rig.router.receive(op, source(90), rig.now)
    ((to, answer),) = rig.post.of(Pulsed)
    assert to == endpoint(90)
    return answer


def test_a_late_older_word_does_not_bring_a_room_back() -> None:  # R11
    rig = two_by_two()
    rig.announce(entry(6, 1))
    rig.announce(entry(6, 3, members=0))
    rig.changes()
    rig.announce(entry(6, 2))
    assert rig.changes() == (set(), set())


def test_an_older_epoch_is_ignored() -> None:  # R11
    rig = two_by_two()
    rig.announce(entry(6, 1), by=card(90, epoch=5))
    rig.announce(entry(8, 9), by=card(90, epoch=4))
    assert rig.logins() == {}
    assert rig.changes() == ({key(6)}, set())
    assert rig.router.dropped["outdated"] == 1


def test_with_a_newer_epoch_the_rooms_of_the_older_one_go_from_the_store() -> None:
    rig = two_by_two()
    rig.announce(entry(6, 1), entry(8, 2), by=card(90, epoch=1))
    rig.changes()
    rig.announce(entry(6, 1), by=card(90, epoch=2))
    rig.run(0.1)
    assert rig.changes() == ({key(6)}, {key(8)})


def test_a_lower_epoch_is_taken_once_the_known_one_was_silent_for_long() -> None:
    rig = two_by_two()
    rig.announce(entry(6, 1), by=card(90, epoch=5))
    rig.run(OPTIONS.expire_s + 2)
    rig.announce(entry(6, 1), by=card(90, epoch=4))
    assert rig.logins() == {1: [6], 2: [6]}


def test_each_worker_is_a_gateway_of_its_own() -> None:  # R11
    rig = two_by_two()
    one, two = card(90, name="node-1"), card(90, name="node-2")
    rig.announce(entry(6, 1), by=one)
    rig.announce(entry(6, 1), by=two)
    assert rig.changes() == ({key(6, "node-1"), key(6, "node-2")}, set())
    rig.note(1, 1, by=two)
    assert rig.note(2, 1, by=two) == [Confirmed("node-2", 1, [1], 2)]


def test_a_gateway_that_stops_refreshing_expires() -> None:  # R11
    rig = two_by_two()
    rig.announce(entry(6, 1))
    rig.changes()
    rig.run(OPTIONS.expire_s - 2)
    assert rig.changes() == (set(), set())
    rig.run(4)
    assert rig.changes() == (set(), {key(6)})
    assert rig.router.book.rows == 0


def test_a_gateway_that_gives_signs_of_life_does_not_expire() -> None:
    rig = two_by_two()
    rig.announce(entry(6, 1))
    rig.changes()
    for _ in range(4):
        rig.run(OPTIONS.expire_s / 2)
        pulse(rig)
    assert rig.changes() == (set(), set())


def test_brokers_are_not_told_that_a_gateway_is_silent() -> None:
    # Others may hear it very well.
    rig = two_by_two()
    rig.announce(entry(6, 1))
    rig.post.said.clear()
    rig.run(OPTIONS.expire_s + 2)
    assert rig.post.of(Goodbye) == []


def test_a_goodbye_is_passed_on_once_and_rooms_go() -> None:
    rig = two_by_two()
    rig.announce(entry(6, 1))
    rig.changes()
    rig.post.said.clear()
    for _ in range(2):
        rig.router.receive(Goodbye(GATEWAY), source(90), rig.now)
    assert sorted(to for to, _ in rig.post.of(Goodbye)) == [endpoint(id_) for id_ in (1, 2, 3, 4)]
    rig.run(0.1)
    assert rig.changes() == (set(), {key(6)})
    rig.announce(entry(6, 5))
    assert rig.logins() == {}
    rig.announce(entry(6, 1), by=card(90, epoch=2))
    assert rig.logins() == {1: [6], 2: [6]}


def test_a_goodbye_of_an_older_epoch_says_nothing() -> None:
    rig = two_by_two()
    rig.announce(entry(6, 1), by=card(90, epoch=2))
    rig.router.receive(Goodbye(card(90, epoch=1)), source(90), rig.now)
    assert rig.post.of(Goodbye) == []
    rig.changes()
    rig.run(0.1)
    assert rig.changes() == (set(), set())


def test_it_carries_while_it_loads_and_what_it_was_told_counts_more() -> None:  # R10
    rig = two_by_two()
    assert rig.router.state is State.INIT
    rig.announce(entry(6, 5, members=0), entry(7, 6))
    assert rig.logins() == {1: [6], 2: [6], 3: [7], 4: [7]}
    rig.changes()
    rows = [(key(room), write_row(GATEWAY, entry(room, 1))) for room in (6, 7, 8)]
    rig.router.load([*rows, ("nonsense", b"\xff")])
    rig.router.loaded(rig.now)
    assert rig.router.state is State.RUNNING
    assert rig.router.book.unreadable == 1
    # 6 was left, 7 is known, 8 is no news.
    rig.announce(entry(6, 5, members=0), entry(7, 6), entry(8, 7))
    assert rig.changes() == (set(), set())


def test_rows_of_an_older_epoch_are_removed_when_they_are_loaded() -> None:
    rig = two_by_two()
    rig.announce(entry(6, 1), by=card(90, epoch=2))
    rig.changes()
    rig.router.load([(key(8), write_row(card(90, epoch=1), entry(8)))])
    assert rig.changes() == (set(), {key(8)})


def test_what_was_loaded_of_a_gateway_that_never_comes_goes_by_its_own_router() -> None:
    rig = two_by_two()
    rig.look({0: seats(1, 2), 1: seats(3, 4)}, routers=seats(70, 71))
    rig.router.load([(key(room), write_row(GATEWAY, entry(room))) for room in (6, 7)])
    rig.router.loaded(rig.now)
    rig.run(OPTIONS.expire_s + 2)
    assert rig.changes() == (set(), {key(6)})


def test_no_more_rooms_are_kept_than_the_bound_but_all_are_carried() -> None:
    rig = Rig({0: seats(1)}, 1, options=RoomsOptions(entries_max=2))
    rig.announce(*(entry(room, room) for room in range(1, 6)))
    assert rig.logins() == {1: [1, 2, 3, 4, 5]}
    assert rig.router.book.rows == 2
    assert rig.changes() == ({key(1), key(2)}, set())
    assert rig.router.book.refused == 3


def test_a_room_that_its_gateway_tells_others_of_is_forgotten_here() -> None:
    rig = two_by_two()
    rig.look({0: seats(1, 2), 1: seats(3, 4)}, routers=seats(70, 71))
    rig.announce(entry(6, 1))
    rig.changes()
    # Nobody ever tells of these two; 8 is this router's own.
    rig.router.load([(key(room), write_row(GATEWAY, entry(room))) for room in (7, 8)])
    for _ in range(20):
        rig.run(OPTIONS.expire_s / 8)
        pulse(rig)
    assert rig.router.book.rows == 0
    assert rig.changes() == (set(), {key(8)})


def test_many_rooms_of_a_gateway_that_is_gone_go_a_share_at_a_time() -> None:
    rig = Rig({0: seats(1)}, 1)
    for start in range(0, 10_000, 1000):
        rig.announce(*(entry(room, room + 1) for room in range(start, start + 1000)))
    rig.changes()
    rig.router.receive(Goodbye(GATEWAY), source(90), rig.now)
    gone: set[str] = set()
    for _ in range(6):
        rig.router.tick(rig.now)
        found = rig.changes()[1]
        assert len(found) <= 2000
        gone |= found
        rig.clock.now += 0.01
    assert len(gone) == 10_000


def test_it_says_its_state_and_how_many_announcements_it_took() -> None:  # R5
    rig = two_by_two()
    assert pulse(rig).state is State.INIT
    rig.announce(entry(6, 1))
    rig.router.loaded(rig.now)
    said = pulse(rig)
    assert (said.state, said.taken) == (State.RUNNING, 1)


def test_a_broker_that_answers_but_takes_no_logins_is_not_waited_for() -> None:  # R5
    rig = two_by_two()
    for seq in range(60):
        rig.says[1] = {"number": 2, "taken": 0}
        rig.says[2] = {"number": 2, "taken": seq + 1}
        rig.announce(entry(6, seq))
        rig.run(0.1)
    rig.announce(entry(6, 100))
    assert rig.note(2, 100) == [Confirmed("g90", 1, [100], 1)]


def test_rooms_that_were_left_are_forgotten_after_a_while() -> None:
    rig = two_by_two()
    rig.announce(entry(6, 1))
    rig.announce(entry(6, 2, members=0))
    assert rig.router.book.rows == 1
    rig.run(12)
    assert rig.router.book.rows == 0


def churn(rig: Rig, rooms: range, at: float) -> None:
    """Have rooms joined and left, each of which is said twice (R11)."""
    for number in rooms:
        for seq, members in ((1, 1), (1, 1), (2, 0), (2, 0)):
            rig.announce(entry(number, seq, members))
    rig.router.changes()
    rig.run(at - rig.now)


def test_rooms_that_come_and_go_do_not_heap_up() -> None:
    rig = two_by_two()
    start = rig.now
    for second in range(25):
        churn(rig, range(second * 200, second * 200 + 200), start + second + 1)
        assert rig.router.book.rows <= 200 * 12
    (known,) = rig.router.book.gateways.values()
    assert len(known.left) == rig.router.book.rows
    churn(rig, range(1), rig.now + 12)
    assert (rig.router.book.rows, len(known.left)) == (0, 0)


def test_one_room_that_comes_and_goes_is_remembered_once() -> None:
    rig = two_by_two()
    for seq in range(0, 1000, 2):
        rig.announce(entry(6, seq, 1))
        rig.announce(entry(6, seq + 1, 0))
    (known,) = rig.router.book.gateways.values()
    assert len(known.left) == 1
    rig.announce(entry(6, 1000, 1))
    assert len(known.left) == 0
    rig.run(12)
    assert rig.router.book.rows == 1


def test_more_rooms_than_go_in_one_slice_are_forgotten_within_a_second() -> None:
    rig = two_by_two()
    for seq, members in ((1, 1), (2, 0)):
        rig.announce(*(entry(number, seq, members) for number in range(50_000)))
    rig.run(12.5)
    assert rig.router.book.rows == 0


def test_rooms_that_were_left_give_way_to_one_that_is_joined() -> None:
    rig = Rig({0: seats(1)}, 1, options=RoomsOptions(entries_max=10))
    rig.announce(*(entry(number, 1, 0) for number in range(10)))
    rig.router.changes()
    rig.announce(entry(77, 2))
    (known,) = rig.router.book.gateways.values()
    assert (APP, "77") in known.rows
    assert (rig.router.book.rows, rig.router.book.refused) == (10, 0)
    # Not to another one that was left.
    rig.announce(entry(78, 3, 0))
    assert (rig.router.book.rows, rig.router.book.refused) == (10, 1)


def test_news_for_a_store_that_is_away_is_bounded() -> None:
    rig = Rig({0: seats(1)}, 1, options=RoomsOptions(entries_max=10))
    for number in range(10):
        rig.announce(entry(number, 1))
        rig.announce(entry(number, 2, 0))
    for number in range(10, 15):
        rig.announce(entry(number, 1))
    puts, deletes = rig.router.changes()
    assert (len(puts), len(deletes), rig.router.book.refused) == (0, 10, 5)
    assert rig.router.changes() == ({}, [])
