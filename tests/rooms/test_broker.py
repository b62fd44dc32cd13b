"""The broker: loading, logins, copies to gateways, and the switch of partitions (R8)."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.events.counting import CountingRecorder
from chappe.rooms.broker import Broker
from chappe.rooms.options import RoomsOptions
from chappe.rooms.partition import keeps, room_number
from chappe.rooms.roll import Roll
from chappe.rooms.row import row_key, write_row
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
    Stamp,
    State,
    Who,
)
from tests.rooms.rig import APP, Bench, card, endpoint, message, seats, source

ROUTER, PROXY = source(900), source(800)


class Recorded(CountingRecorder):
    """Keeps what is told seldom."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, str, dict[str, Any]]] = []

    def tell(self, kind: str, app: str, **columns: object) -> None:
        self.told.append((kind, app, columns))


class Shop(Bench):
    """A broker whose gateways answer: a gateway is asked by its epoch, which is its id here."""

    def __init__(
        self,
        partition: int = 0,
        roll: Roll | None = None,
        options: RoomsOptions | None = None,
        *,
        running: bool = True,
    ) -> None:
        super().__init__()
        self.recorder = Recorded()
        self.broker = Broker(
            options=options or RoomsOptions(),
            post=self.post,
            clock=self.clock,
            name="me",
            recorder=self.recorder,
            partition=partition,
        )
        self.broker.id = 33
        self._seq = 0
        self.see(roll or Roll(partitions=1))
        if running:
            self.broker.loaded(self.now)

    def see(self, roll: Roll) -> None:
        self.broker.see(roll, self.now)

    def settle(self, seconds: float = 0.0) -> None:
        self.pass_time(self.broker, seconds)

    def login(
        self, id: int, *rooms: str, members: int = 1, seq: int = 0, of: Card | None = None
    ) -> list[int]:
        """Let a gateway log in to rooms, with growing seqs; which of them are noted."""
        entries = []
        for room in rooms:
            self._seq += 1
            entries.append(Entry(APP, room, room_number(room), seq or self._seq, members))
        self.post.said.clear()
        login = Login(self.broker.partition, of or card(id, id), entries)
        self.broker.receive(login, ROUTER, self.now)
        return [seq for _, op in self.post.of(Noted) for seq in op.seqs]

    def carry(self, room: str = "7", *, proxy: int = 5) -> list[int]:
        """Let a proxy carry a message; the gateways that it was delivered to."""
        self.post.said.clear()
        op = Carry(
            APP, room_number(room), message(1, room), False, proxy, self.broker.partition, None
        )
        self.broker.receive(op, PROXY, self.now)
        return sorted(port - 10_000 for (_, port), _ in self.post.of(Deliver))

    def pulse(self, proxy: int, number: int) -> Pulsed:
        """Let a proxy ask, and say what it goes by."""
        self.post.said.clear()
        op = Pulse(RoleKind.PROXY, proxy, RoleKind.BROKER, 33, 1, 0.0, number)
        self.broker.receive(op, PROXY, self.now)
        return self.post.of(Pulsed)[0][1]


def rows(*ids: int, room: str = "7", seq: int = 1) -> list[tuple[str, bytes]]:
    """What the store has of a room."""
    number = room_number(room)
    return [
        (
            row_key(number, APP, room, f"g{id_}"),
            write_row(card(id_, id_), Entry(APP, room, number, seq, 1)),
        )
        for id_ in ids
    ]


def test_a_message_goes_once_to_each_gateway_that_has_members():  # R1
    shop = Shop()
    shop.login(1, "7", "8", members=100)
    shop.login(2, "7")
    shop.login(3, "9")
    at_once = shop.post.at_once
    assert shop.carry("7") == [1, 2]
    assert shop.post.at_once == at_once + 1
    op = shop.post.of(Deliver)[0][1]
    assert (op.app, op.message, op.reliable) == (APP, message(1, "7"), False)
    assert (op.proxy, op.broker) == (5, 33)
    assert shop.carry("8") == [1]
    assert shop.carry("10") == []
    assert shop.broker.counts["messages"] == 3
    assert shop.broker.counts["copies"] == 3


def test_joins_and_leaves_show_with_the_next_message():
    shop = Shop()
    shop.login(1, "7")
    assert shop.carry() == [1]
    shop.login(2, "7")
    assert shop.carry() == [1, 2]
    shop.login(1, "7", members=0)
    assert shop.carry() == [2]


def test_what_is_taken_to_heart_is_noted_to_the_router():
    shop = Shop()
    assert shop.login(1, "7", "8") == [1, 2]
    ((to, noted),) = shop.post.of(Noted)
    assert to == ROUTER.endpoint
    assert (noted.broker, noted.partition, noted.gateway, noted.epoch) == (33, 0, "g1", 1)
    # An entry that comes again, or late, is known all the same.
    assert shop.login(1, "7", seq=1) == [1]


def test_a_late_older_login_brings_nobody_back():  # R11
    shop = Shop()
    shop.login(1, "7", seq=5)
    shop.login(1, "7", seq=6, members=0)
    assert shop.login(1, "7", seq=5) == [5]
    assert shop.carry() == []
    shop.login(1, "7", seq=7)
    assert shop.carry() == [1]


def test_of_two_lives_of_a_gateway_the_later_one_counts():  # R11
    shop = Shop()
    shop.login(1, "7", "8", of=card(1, 5, "g"))
    shop.login(1, "7", of=card(2, 6, "g"))
    assert shop.carry("7") == [2]
    assert shop.carry("8") == []
    assert shop.login(1, "8", of=card(1, 5, "g")) == []
    assert shop.carry("8") == []
    assert shop.broker.drops["card_refused"] == 1


def test_a_gateway_that_says_goodbye_is_in_no_room():
    shop = Shop()
    shop.login(1, "7")
    shop.login(2, "7")
    shop.carry()
    shop.broker.receive(Goodbye(card(1, 1)), ROUTER, shop.now)
    assert shop.carry() == [2]
    assert shop.login(1, "7") == []
    assert shop.carry() == [2]


def test_a_silent_gateway_gets_no_copies_until_it_answers():  # R5
    shop = Shop()
    shop.login(1, "7")
    shop.login(2, "7")
    shop.silent = {1}
    assert shop.carry() == [1, 2]
    shop.settle(2.0)
    assert shop.carry() == [2]
    shop.silent = set()
    shop.settle(0.5)
    assert shop.carry() == [1, 2]


def test_a_gateway_that_answers_but_takes_nothing_gets_no_copies_until_it_is_tried_again():  # R5
    shop = Shop()
    shop.login(1, "7")
    shop.login(2, "7")
    for turn in range(10):
        went = shop.carry()
        assert went == ([1, 2] if turn < 9 else [2])
        shop.says[2] = {"taken": turn + 1}
        shop.settle(0.25)
    shop.settle(2.0)
    assert shop.carry() == [1, 2]
    # What it takes then is enough to be believed.
    shop.says[1] = {"taken": 1}
    shop.settle(0.25)
    assert all(shop.carry() == [1, 2] for _ in range(100))


def test_a_gateway_that_takes_nothing_is_tried_again_as_soon_each_time():  # R5
    shop = Shop()
    shop.login(1, "7")
    for _ in range(5):
        while shop.carry():
            shop.settle(0.25)
        shop.settle(2.25)
        assert shop.carry() == [1]
    assert shop.broker.pulses.stalls == 5


def test_what_goes_in_pieces_does_not_make_a_gateway_stalled():  # R5
    shop = Shop()
    shop.login(1, "7")
    shop.post.whole = False
    for _ in range(40):
        assert shop.carry() == [1]
        shop.settle(0.25)


def test_gateways_with_one_epoch_are_told_apart():
    shop = Shop()
    shop.login(1, "7", of=card(1, 4))
    shop.login(2, "7", of=card(2, 4))
    for _ in range(10):
        for to, op in shop.post.take(Pulse):
            if to == endpoint(1):
                told = Pulsed(op.sender, op.sender_id, op.role, op.id, op.beat, 0, 0, State.RUNNING)
                shop.broker.receive(told, source(1), shop.now)
        shop.clock.now += 0.25
        shop.broker.tick(shop.now)
    assert shop.carry() == [1]


def test_a_gateway_that_is_silent_for_long_is_forgotten():  # R11
    shop = Shop()
    shop.login(1, "7")
    shop.silent = {1}
    shop.settle(59.0)
    assert shop.broker.counts["gateways"] == 1
    shop.settle(3.0)
    assert shop.broker.counts["gateways"] == 0
    shop.settle(60.0)
    assert shop.broker.counts["entries"] == 0
    # Then an earlier epoch is believed as well.
    assert shop.login(1, "7", of=card(1, 0)) != []


def test_a_gateway_that_answers_but_refreshes_nothing_is_forgotten_at_last():  # R11
    shop = Shop()
    shop.login(1, "7")
    assert shop.carry() == [1]
    shop.settle(150.0)
    assert shop.carry() == []
    assert shop.broker.counts["gateways"] == 0


def test_a_room_that_is_not_refreshed_is_over_though_its_gateway_is_there():  # R11
    shop = Shop()
    shop.login(1, "7", "8")
    for _ in range(10):
        shop.settle(10.0)
        shop.login(1, "8")
        shop.carry("7")
    assert shop.carry("7") == []
    assert shop.carry("8") == [1]


def test_a_broker_that_loads_queues_logins_and_takes_no_messages():  # R8
    shop = Shop(running=False)
    assert shop.pulse(5, 1).state is State.INIT
    assert shop.login(1, "7", seq=9, members=0) == [9]
    shop.login(2, "8")
    shop.broker.load(rows(1, 3))
    assert shop.carry() == []
    assert shop.recorder.drops == {"not_running": 1}
    shop.broker.loaded(shop.now)
    assert shop.pulse(5, 1).state is State.RUNNING
    assert shop.carry("7") == [3]
    assert shop.carry("8") == [2]
    assert shop.broker.counts["queued"] == 0


def test_what_the_store_knows_does_not_count_more_than_what_was_said_since():
    shop = Shop(running=False)
    shop.login(1, "7", seq=5, members=4)
    shop.broker.load(rows(1, seq=9))
    shop.broker.load(rows(1, seq=2))
    shop.broker.loaded(shop.now)
    assert shop.carry() == [1]
    assert shop.login(1, "7", seq=8, members=0) == [8]
    assert shop.carry() == [1]


def test_a_goodbye_while_it_loads_counts_for_what_is_loaded():
    shop = Shop(running=False)
    shop.broker.receive(Goodbye(card(1, 1)), ROUTER, shop.now)
    shop.broker.load(rows(1, 2))
    shop.broker.loaded(shop.now)
    assert shop.carry() == [2]


def test_what_is_queued_while_it_loads_is_bounded_and_the_rest_not_noted():
    shop = Shop(options=RoomsOptions(init_queue_max=3), running=False)
    assert len(shop.login(1, "7", "8")) == 2
    assert shop.login(1, "9", "10") == []
    assert len(shop.login(1, "11")) == 1
    assert shop.broker.drops["queue_full"] == 2


def test_a_row_that_nobody_can_read_is_counted_and_passed_over():
    shop = Shop(running=False)
    shop.broker.load([("nonsense", b"\xc1"), *rows(1)])
    shop.broker.loaded(shop.now)
    assert shop.carry() == [1]
    assert shop.broker.drops["row_unreadable"] == 1


def test_a_full_table_notes_no_more():
    shop = Shop(options=RoomsOptions(entries_max=2))
    assert shop.login(1, "1", "2", "3") == [1, 2]
    assert shop.broker.drops["table_full"] == 1
    assert shop.login(1, "1", members=5) == [4]


def test_what_another_partition_has_is_not_noted_nor_carried():
    shop = Shop(1, Roll(partitions=2, proxies=seats(5)))
    shop.pulse(5, 2)
    shop.settle(2.0)
    assert shop.login(1, "6", "7") == [2]
    assert shop.carry("7") == [1]
    assert shop.carry("6") == []
    assert shop.broker.drops["misrouted"] == 1
    assert shop.recorder.drops == {"misrouted": 1}


def test_it_loads_only_rooms_that_it_keeps():  # R8
    shop = Shop(1, Roll(partitions=4, proxies=seats(5)), running=False)
    for room in range(8):
        shop.broker.load(rows(1, room=str(room)))
    shop.broker.loaded(shop.now)
    assert shop.broker.modulus == 2
    assert shop.broker.counts["rooms"] == 4
    assert [room for room in range(8) if shop.carry(str(room))] == [1, 3, 5, 7]


def test_a_new_partition_has_the_same_as_its_sibling_until_the_switch():  # R8
    shop = Shop(3, Roll(partitions=2, wanted=4))
    assert shop.broker.modulus == 2
    shop.login(1, *map(str, range(8)))
    assert [room for room in range(8) if shop.carry(str(room))] == [1, 3, 5, 7]


def test_the_switch_waits_for_every_proxy_and_then_cleans():  # R8, R9
    shop = Shop(1, Roll(partitions=2, proxies=seats(5, 6)))
    for proxy in (5, 6):
        shop.pulse(proxy, 2)
    shop.settle(2.5)
    rooms = [str(room) for room in range(1000)]
    shop.login(1, *rooms)
    assert shop.broker.counts["rooms"] == 500
    shop.see(Roll(partitions=4, proxies=seats(5, 6)))
    assert shop.pulse(5, 4).number == 2
    for _ in range(40):
        shop.pulse(6, 2)
        shop.settle(0.25)
        shop.login(1, *rooms)
    # Messages of both moduli are served.
    assert shop.carry("1") == shop.carry("3") == [1]
    assert shop.broker.cleaning
    shop.pulse(6, 4)
    shop.settle(3.0)
    assert not shop.broker.cleaning
    assert shop.pulse(6, 4).number == 4
    assert shop.broker.counts["rooms"] == 250
    for room in range(16):
        assert bool(shop.carry(str(room))) is keeps(room, 1, 4)


def test_a_silent_proxy_holds_the_switch_up_for_so_long_only():  # R8
    shop = Shop(0, Roll(partitions=1, proxies=seats(5)))
    shop.pulse(5, 1)
    shop.see(Roll(partitions=2, proxies=seats(5)))
    shop.settle(9.0)
    assert shop.broker.modulus == 1
    shop.settle(4.0)
    assert shop.broker.modulus == 2


def test_a_proxy_without_an_id_is_not_waited_for():
    shop = Shop(0, Roll(partitions=1))
    shop.see(Roll(partitions=2, proxies=seats(5)))
    shop.pulse(5, 2)
    for _ in range(12):
        shop.pulse(0, 1)
        shop.settle(0.25)
    assert shop.broker.modulus == 2


def test_an_answer_says_what_it_took_of_whom_and_what_it_keeps():
    shop = Shop(1, Roll(partitions=2))
    shop.login(1, "7")
    for _ in range(3):
        shop.carry()
    told = shop.pulse(5, 1)
    assert (told.taken, told.number, told.partition) == (3, 1, 1)
    ask = Pulse(RoleKind.ROUTER, 9, RoleKind.BROKER, 33, 1, 0.0)
    shop.broker.receive(ask, ROUTER, shop.now)
    assert shop.post.of(Pulsed)[-1][1].taken == 1


def test_a_count_is_answered_to_the_gateway_and_who_asked_of_few():
    shop = Shop()
    shop.login(1, "7", members=2)
    shop.login(2, "7", members=3)
    shop.post.said.clear()
    shop.broker.receive(Count(APP, "7", 7, 17, 5, card(9), 0), PROXY, shop.now)
    assert shop.post.of(Counted) == [(endpoint(9), Counted(17, 5, 2, 2))]
    assert sorted(to for to, _ in shop.post.of(Who)) == [endpoint(1), endpoint(2)]
    assert shop.post.of(Who)[0][1] == Who(APP, "7", 17, 5, card(9))


@pytest.mark.parametrize("limit", [0, 4])
def test_of_too_many_nobody_is_asked_who(limit: int):
    shop = Shop()
    shop.login(1, "7", members=5)
    shop.post.said.clear()
    shop.broker.receive(Count(APP, "7", 7, 17, limit, card(9), 0), PROXY, shop.now)
    assert shop.post.of(Counted) == [(endpoint(9), Counted(17, 5, 1, 0))]
    assert not shop.post.of(Who)


def test_there_is_a_bound_on_asking_who_whatever_is_asked_for():
    shop = Shop(options=RoomsOptions(who_max=4))
    shop.login(1, "7", members=5)
    shop.broker.receive(Count(APP, "7", 7, 17, 100, card(9), 0), PROXY, shop.now)
    assert not shop.post.of(Who)


def test_a_count_of_an_empty_room_is_0():
    shop = Shop()
    shop.broker.receive(Count(APP, "7", 7, 17, 10, card(9), 0), PROXY, shop.now)
    assert shop.post.of(Counted) == [(endpoint(9), Counted(17, 0, 0, 0))]


def test_a_count_is_answered_by_who_has_the_room_and_runs():
    shop = Shop(1, Roll(partitions=2, wanted=2), running=False)
    asks = [Count(APP, room, int(room), 17, 10, card(9), 1) for room in ("6", "7")]
    shop.broker.receive(asks[1], PROXY, shop.now)
    assert not shop.post.of(Counted)
    shop.broker.loaded(shop.now)
    shop.settle(3.0)
    for ask in asks:
        shop.broker.receive(ask, PROXY, shop.now)
    assert len(shop.post.of(Counted)) == 1


def test_a_probe_goes_back_stamped_only_if_its_gateway_is_known_in_its_room():  # R15
    shop = Shop()
    login = Login(0, card(1, 1), [Entry("~", "0", 0, 1, 1)])
    shop.broker.receive(login, ROUTER, shop.now)
    shop.post.said.clear()
    shop.broker.receive(Probe(5, 0, 0, 33, card(1, 1), []), PROXY, shop.now)
    ((to, probe),) = shop.post.of(Probe)
    assert to == endpoint(1)
    now = shop.clock.wall_us()
    assert probe.stamps == [Stamp("me", RoleKind.BROKER, now, now, 0)]
    for unknown in (card(2, 2), card(1, 2)):
        shop.broker.receive(Probe(5, 0, 0, 33, unknown, []), PROXY, shop.now)
    shop.broker.receive(Probe(5, 1, 0, 33, card(1, 1), []), PROXY, shop.now)
    assert len(shop.post.of(Probe)) == 1
    assert shop.broker.drops["probe_unknown"] == 3


def test_what_it_does_and_its_hottest_rooms_are_told():
    shop = Shop()
    shop.login(1, "7", members=4)
    shop.login(2, "7", members=2)
    shop.login(2, "8")
    for room in ("7", "7", "7", "8"):
        shop.carry(room)
    shop.settle(10.5)
    assert shop.recorder.told == [
        ("room_load", "", {"partition": 0, "n": 4, "copies": 7, "rooms": 2, "members": 7}),
        (
            "room_heat",
            APP,
            {
                "target": "room:7",
                "partition": 0,
                "n": 3,
                "copies": 6,
                "members": 6,
                "gateways": 2,
            },
        ),
        (
            "room_heat",
            APP,
            {"target": "room:8", "partition": 0, "n": 1, "copies": 1, "members": 1, "gateways": 1},
        ),
    ]
    shop.recorder.told.clear()
    shop.settle(10.5)
    assert [columns["n"] for _, _, columns in shop.recorder.told] == [0]


def test_to_its_own_node_it_says_whom_the_message_was_had_from():
    shop = Shop()
    shop.login(1, "7", of=card(1, 1, "me"))
    op = Carry(APP, 7, message(1), False, 5, 0, None)
    shop.broker.receive(op, source(800, "elsewhere"), shop.now)
    assert shop.post.of(Deliver)[-1][1].giver == "broker\0elsewhere"


def test_it_subscribes_to_independent_routers_as_what_it_goes_by():  # R12
    shop = Shop(
        1, Roll(partitions=2, independent={0: seats(90), 1: seats(91)}, router_partitions=2)
    )
    asked = [op for _, op in shop.post.of(Pulse) if op.role is RoleKind.ROUTER]
    assert {(op.id, op.sender_id, op.partition, op.number) for op in asked} == {
        (90, 33, 1, 1),
        (91, 33, 1, 1),
    }
    shop.settle(3.0)
    shop.post.said.clear()
    shop.settle(1.0)
    asked = [op for _, op in shop.post.of(Pulse) if op.role is RoleKind.ROUTER]
    assert {(op.id, op.number) for op in asked} == {(91, 2)}


def test_before_it_is_registered_it_subscribes_to_nobody():
    shop = Shop(0, Roll())
    shop.broker.id = 0
    shop.see(Roll(partitions=1, independent={0: seats(90, 91)}, router_partitions=1))
    shop.settle(1.0)
    assert not shop.post.of(Pulse)
    shop.broker.id = 7
    shop.settle(1.0)
    assert {(op.id, op.sender_id) for _, op in shop.post.of(Pulse)} == {(91, 7)}


def test_how_far_the_clocks_of_gateways_are_ahead_is_told_now_and_then():
    shop = Shop()
    shop.login(1, "7")
    told: list[tuple[str, int, int]] = []
    shop.recorder.link_beat = lambda *beat: told.append(beat)
    shop.settle(9.5)
    assert told == []
    shop.silent = {1}
    (neighbour,) = shop.broker.pulses.answering()
    neighbour.ahead_us, neighbour.round_trip_s = 7, 0.001
    shop.settle(0.9)
    assert told == [("g1", 7, 1000)]
