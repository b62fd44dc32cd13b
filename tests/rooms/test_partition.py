"""Where a room is: the formulas, against the examples of R3 and R12."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.rooms import partition
from chappe.rooms.partition import (
    PARTITIONS_MAX,
    is_power_of_two,
    keeps,
    partition_of,
    replica_of,
    room_number,
    router_of,
    router_partitions_of,
    sibling_of,
)

powers = st.sampled_from([1 << bits for bits in range(11)])
rooms = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(
    ("name", "number"), [("0", 0), ("7", 7), ("123456789012345678", 123456789012345678)]
)
def test_a_decimal_name_is_its_number(name: str, number: int):  # R3
    assert room_number(name) == number


@pytest.mark.parametrize("name", ["007", "00", "7a", "-7", "7" * 19, "\u0667", "²", "lobby", ""])
def test_any_other_name_is_hashed_into_63_bits(name: str):  # R3
    assert room_number(name) >= 2**20
    assert room_number(name) < 2**63


def test_the_hash_of_a_name_is_the_same_for_ever():
    assert room_number("lobby") == 0x50F082429AD7891B
    assert room_number("007") == 2636083598628110558


@given(st.text(max_size=30))
def test_every_name_has_a_number_of_63_bits(name: str):
    assert 0 <= room_number(name) < 2**63


@pytest.mark.parametrize("count", [2, 4, 8])
def test_all_replicas_of_all_partitions_work(count: int):  # R3: of 4 x 4 all 16
    work = Counter(
        (partition_of(room, count), replica_of(room, count, count)) for room in range(1000)
    )
    assert len(work) == count * count
    assert max(work.values()) - min(work.values()) <= 1


@given(rooms, powers, st.integers(1, 9))
def test_a_rooms_place_is_one_that_there_is(room: int, partitions: int, running: int):
    assert 0 <= partition_of(room, partitions) < partitions
    assert 0 <= replica_of(room, partitions, running) < running
    assert 0 <= router_of(room, running) < running


@given(rooms, powers.filter(lambda count: count < PARTITIONS_MAX))
def test_a_partitions_rooms_are_those_of_it_and_its_sibling_after_doubling(
    room: int, partitions: int
):  # R9
    old, new = partition_of(room, partitions), partition_of(room, 2 * partitions)
    assert new in (old, old + partitions)
    assert sibling_of(new, partitions) == old
    for each in (old, old + partitions):
        # Before the switch both halves have it, after it one.
        assert keeps(room, each, partitions)
        assert keeps(room, each, 2 * partitions) is (each == new)


@given(rooms, powers, powers, st.data())
def test_a_broker_hears_of_each_of_its_rooms_from_a_router_it_subscribes_to(
    room: int, brokers: int, routers: int, data: st.DataObject
):  # R12
    own = partition_of(room, brokers)
    subscribed = router_partitions_of(own, brokers, routers)
    assert partition_of(room, routers) in subscribed
    other = data.draw(st.sampled_from(subscribed))
    assert other % min(brokers, routers) == own % min(brokers, routers)
    # No router is subscribed to in vain: each has rooms of this broker.
    assert any(keeps(number, own, brokers) for number in range(other, 2048, routers))


@pytest.mark.parametrize(
    ("own", "brokers", "routers", "expected"),
    [(3, 4, 2, [1]), (3, 4, 8, [3, 7]), (3, 4, 4, [3]), (0, 1, 1, [0]), (0, 1, 4, [0, 1, 2, 3])],
)
def test_the_examples_of_independent_routers(
    own: int, brokers: int, routers: int, expected: list[int]
):  # R12
    assert list(router_partitions_of(own, brokers, routers)) == expected


def test_a_gateway_tells_two_router_partitions_while_they_double():  # R12
    told = [q for q in range(4) if keeps(5, q, 2)]
    assert told == [1, 3]


def test_the_table_of_formulas_says_what_the_functions_do():
    table = [
        [cell.strip() for cell in line.strip("| \n").split("|")]
        for line in (partition.__doc__ or "").splitlines()
        if line.startswith("| ") and not line.startswith("| question")
    ]
    answers = {question.partition(",")[0]: answer for question, answer in table}
    room, p, n, k, m, r = 91, 8, 3, 4, 5, 2
    names = {"room": room, "P": p, "N": n, "K": k, "M": m, "R": r, "p": 3, "q": 1}

    def value(question: str, within: str) -> object:
        assert within in answers[question], answers[question]
        return eval(within, {}, dict(names))

    assert value("its partition", "room % P") == partition_of(room, p)
    assert value("its replica", "(room // P) % N") == replica_of(room, p, n)
    broker = "what a broker of partition p keeps"
    assert value(broker, "room % K == p % K") == keeps(room, 3, k)
    assert value("its router", "room % M") == router_of(room, m)
    assert value("its router partitions", "room % R == q % R") == keeps(room, 1, r)
    assert value("its router there", "room % N") == router_of(room, n)
    assert "r == b modulo min(B, R)" in answers["router partitions of broker b of B"]
    assert len(table) == 9


def test_only_powers_of_two_are_numbers_of_partitions():
    assert [number for number in range(-2, 17) if is_power_of_two(number)] == [1, 2, 4, 8, 16]
    assert is_power_of_two(PARTITIONS_MAX)
    assert not is_power_of_two(2 * PARTITIONS_MAX)
