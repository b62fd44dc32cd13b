"""The table of a broker: entries in any order, at a flat cost, in little memory (R8, R11)."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.rooms.gateways import Gateway, Gateways
from chappe.rooms.partition import keeps, room_number
from chappe.rooms.table import Table, Verdict
from chappe.wire.rooms import Entry
from tests.rooms.rig import APP, card

EXPIRE_S = 60.0


class Ledger:
    """A table, its gateways, and time."""

    def __init__(self, entries_max: int = 1000, gateways_max: int = 100) -> None:
        self.gateways = Gateways(gateways_max, hush_s=2.0, remember_s=EXPIRE_S)
        self.table = Table(self.gateways, entries_max=entries_max, expire_s=EXPIRE_S)
        self.now = 1000.0

    def gateway(self, id: int, epoch: int = 1) -> Gateway:
        gateway = self.gateways.maybe_admit(card(id, epoch), self.now)
        assert gateway is not None
        return gateway

    def put(self, id: int, room: str, seq: int, members: int) -> Verdict:
        entry = Entry(APP, room, room_number(room), seq, members)
        return self.table.put(self.gateway(id), entry, self.now)

    def find(self, room: str) -> dict[str, int]:
        found = self.table.find(APP, room, room_number(room))
        return {gateway.name: members for gateway, members in found}

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.table.due <= end:
            self.now = max(self.now, self.table.due)
            self.table.sweep(self.now)
        self.now = end


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def test_a_room_is_on_the_gateways_that_told_of_it(ledger: Ledger):
    assert ledger.put(1, "7", 1, 2) is Verdict.CHANGED
    assert ledger.put(2, "7", 1, 3) is Verdict.CHANGED
    assert ledger.put(2, "8", 2, 1) is Verdict.CHANGED
    assert ledger.find("7") == {"g1": 2, "g2": 3}
    assert ledger.find("8") == {"g2": 1}
    assert ledger.find("9") == {}
    assert (ledger.table.rooms, ledger.table.entries, ledger.table.members) == (2, 3, 6)


def test_rooms_of_two_apps_are_two(ledger: Ledger):
    gateway = ledger.gateway(1)
    ledger.table.put(gateway, Entry("a", "7", 7, 1, 1), ledger.now)
    ledger.table.put(gateway, Entry("b", "7", 7, 2, 2), ledger.now)
    assert [members for _, members in ledger.table.find("a", "7", 7)] == [1]
    assert [members for _, members in ledger.table.find_key("b\x007")] == [2]


def test_of_two_entries_the_later_one_counts_in_whichever_order_they_come(ledger: Ledger):  # R11
    ledger.put(1, "7", 5, 2)
    assert ledger.put(1, "7", 4, 9) is Verdict.KNOWN
    assert ledger.find("7") == {"g1": 2}
    assert ledger.put(1, "7", 6, 3) is Verdict.KNOWN
    assert ledger.find("7") == {"g1": 3}


def test_a_late_older_login_brings_nobody_back(ledger: Ledger):
    ledger.put(1, "7", 5, 1)
    assert ledger.put(1, "7", 6, 0) is Verdict.CHANGED
    assert ledger.put(1, "7", 5, 1) is Verdict.KNOWN
    assert ledger.find("7") == {}


def test_a_logout_that_overtook_its_login_counts(ledger: Ledger):
    assert ledger.put(1, "7", 6, 0) is Verdict.KNOWN
    assert ledger.put(1, "7", 5, 1) is Verdict.KNOWN
    assert ledger.find("7") == {}
    assert ledger.put(1, "7", 7, 1) is Verdict.CHANGED
    assert ledger.find("7") == {"g1": 1}


def test_what_was_left_is_remembered_for_a_while_and_then_forgotten(ledger: Ledger):
    ledger.put(1, "7", 6, 0)
    ledger.pass_time(EXPIRE_S / 4 - 1)
    assert ledger.put(1, "7", 5, 1) is Verdict.KNOWN
    ledger.pass_time(EXPIRE_S)
    assert (ledger.table.entries, ledger.table.left, ledger.table.rooms) == (0, 0, 0)


def test_how_much_is_remembered_of_what_was_left_is_bounded():
    ledger = Ledger(entries_max=80)
    for number in range(60):
        ledger.put(1, str(number), number + 1, 1)
    for number in range(60):
        assert ledger.put(1, str(number), 100 + number, 0) is Verdict.CHANGED
        assert ledger.find(str(number)) == {}
    assert (ledger.table.left, ledger.table.entries) == (10, 10)
    assert ledger.put(1, "1000", 1000, 0) is Verdict.KNOWN
    assert ledger.table.entries == 10


def test_a_full_table_takes_no_more_but_what_it_has_goes_on():
    ledger = Ledger(entries_max=3)
    for number in range(3):
        ledger.put(1, str(number), number, 1)
    assert ledger.put(1, "3", 3, 1) is Verdict.REFUSED
    assert ledger.find("3") == {}
    assert ledger.put(1, "3", 4, 0) is Verdict.KNOWN
    assert ledger.put(1, "2", 5, 4) is Verdict.KNOWN
    assert ledger.find("2") == {"g1": 4}


def test_what_is_not_refreshed_expires_and_what_is_does_not(ledger: Ledger):  # R11
    ledger.put(1, "7", 1, 1)
    ledger.put(1, "8", 2, 1)
    for turn in range(10):
        ledger.pass_time(20.0)
        ledger.put(1, "8", 3 + turn, 1)
    assert ledger.find("7") == {}
    assert ledger.find("8") == {"g1": 1}
    assert (ledger.table.entries, ledger.table.rooms, ledger.table.members) == (1, 1, 1)


def test_an_entry_that_is_repeated_is_refreshed(ledger: Ledger):
    ledger.put(1, "7", 1, 1)
    for _ in range(10):
        ledger.pass_time(20.0)
        assert ledger.find("7") == {"g1": 1}
        ledger.put(1, "7", 1, 1)


def test_nothing_expires_before_its_time(ledger: Ledger):
    ledger.put(1, "7", 1, 1)
    ledger.pass_time(EXPIRE_S * 0.95)
    assert ledger.find("7") == {"g1": 1}


def test_rooms_of_a_gateway_that_is_gone_are_gone_at_once_and_swept_later(ledger: Ledger):
    for number in range(100):
        ledger.put(1, str(number), number, 1)
        ledger.put(2, str(number), number, 1)
    ledger.gateways.give_up(ledger.gateway(1))
    assert ledger.find("7") == {"g2": 1}
    assert ledger.table.members == 100
    ledger.pass_time(EXPIRE_S / 2 + 1)
    assert ledger.table.entries == 100


def test_another_life_of_a_gateway_begins_with_no_rooms(ledger: Ledger):  # R11
    ledger.put(1, "7", 900, 1)
    entry = Entry(APP, "7", 7, 1, 5)
    ledger.table.put(ledger.gateway(1, epoch=2), entry, ledger.now)
    assert ledger.find("7") == {"g1": 5}
    assert ledger.table.members == 5


def test_cleaning_takes_out_what_another_partition_has_in_small_slices():  # R8
    ledger = Ledger(entries_max=100_000)
    for number in range(20_000):
        ledger.put(1, str(number), number, 1)
    ledger.table.clean(lambda room: keeps(room, 1, 2), ledger.now)
    assert ledger.table.cleaning
    slices, most = 0, 0
    while ledger.table.cleaning:
        before = ledger.table.entries
        ledger.now = ledger.table.due
        ledger.table.sweep(ledger.now)
        slices, most = slices + 1, max(most, before - ledger.table.entries)
    assert ledger.table.entries == 10_000
    assert slices > 20
    assert most < 1000
    assert ledger.find("7") == {"g1": 1}
    assert ledger.find("8") == {}
    assert ledger.now < 1002


def test_a_number_is_given_again_only_when_no_room_has_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("chappe.rooms.gateways._NUMBERS", 4)
    ledger = Ledger(gateways_max=3)
    for id_ in (1, 2, 3):
        ledger.put(id_, "7", 1, id_)
    ledger.pass_time(10.0)
    ledger.gateways.give_up(ledger.gateway(1))
    assert ledger.gateways.maybe_admit(card(4), ledger.now) is None
    # The round that is under way may have been past a room already.
    ledger.pass_time(EXPIRE_S / 2)
    assert ledger.gateways.rounds == 1
    assert ledger.gateways.maybe_admit(card(4), ledger.now) is None
    ledger.pass_time(EXPIRE_S)
    for id_ in (2, 3):
        ledger.put(id_, "7", 2, id_)
    ledger.pass_time(1.0)
    ledger.put(4, "8", 1, 4)
    assert ledger.find("7") == {"g2": 2, "g3": 3}
    assert ledger.find("8") == {"g4": 4}


def test_a_number_in_the_midst_of_an_entry_is_nobodys(ledger: Ledger):
    number = ledger.gateway(2).number
    ledger.put(1, "7", number, number)
    ledger.put(2, "7", number, 1)
    ledger.put(3, "7", number << 16, number)
    ledger.put(4, "7", 1, 1)
    for id_ in (2, 4):
        ledger.put(id_, "7", number + 1, 5)
    assert ledger.find("7") == {"g1": number, "g2": 5, "g3": number, "g4": 5}
    assert ledger.table.entries == 4


def test_many_gateways_of_one_room_are_told_apart():
    ledger = Ledger(entries_max=10_000, gateways_max=3000)
    order = list(range(2000))
    random.Random(3).shuffle(order)
    for id_ in order:
        ledger.put(id_, "7", 256 + id_, id_ + 1)
    for id_ in order:
        ledger.put(id_, "7", 5000 + id_, id_ + 2)
    assert ledger.find("7") == {f"g{id_}": id_ + 2 for id_ in order}
    assert ledger.table.entries == 2000


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40
    ),
    st.randoms(use_true_random=False),
)
def test_whatever_the_order_and_however_often_the_last_word_counts(
    said: list[tuple[int, int, int]], rng: random.Random
):
    ledger = Ledger()
    told = [(id_, room, seq, members) for seq, (id_, room, members) in enumerate(said, 1)]
    truth: dict[str, dict[str, int]] = {str(room): {} for room in range(5)}
    for id_, room, _, members in told:
        truth[str(room)][f"g{id_}"] = members
    shuffled = told + rng.choices(told, k=len(told))
    rng.shuffle(shuffled)
    for id_, room, seq, members in shuffled:
        ledger.put(id_, str(room), seq, members)
    for name, gateways in truth.items():
        assert ledger.find(name) == {name: count for name, count in gateways.items() if count}
    everyone = sum(count for gateways in truth.values() for count in gateways.values())
    assert ledger.table.members == everyone


def test_a_room_of_five_members_takes_little_memory():
    ledger, rng = Ledger(entries_max=100_000), random.Random(1)
    gateways = [ledger.gateway(id_) for id_ in range(4)]
    tracemalloc.start()
    for room in range(5000):
        for member in range(5):
            entry = Entry(APP, f"room-{room}", room_number(f"room-{room}"), member + 1, member + 1)
            ledger.table.put(rng.choice(gateways), entry, ledger.now)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # 180 bytes a room among 100,000; among fewer the dicts have more that is empty.
    assert used / 5000 < 400
