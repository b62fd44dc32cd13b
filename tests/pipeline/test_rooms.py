"""Rooms and their brokers, of what is told of them and of the messages that are recorded."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from chappe.pipeline.rooms import loads, rooms
from chappe.pipeline.schema import EVENT, arrow_schema
from tests.pipeline.tales import clocks
from tests.pipeline.traffic import DAY, MINUTE, SECOND, Row

SCHEMA = arrow_schema(EVENT)
BY_NO_CLOCK = clocks({})


def load(node: str, n: int, at: int = DAY, partition: int = 0, **told: Any) -> Row:
    known = {"kind": "room_load", "node": node, "at": at, "partition": partition, "n": n}
    return {**known, "copies": n, "rooms": 1, "members": 1, **told}


def heat(node: str, room: str, n: int, **told: Any) -> Row:
    known = {"kind": "room_heat", "node": node, "at": DAY, "partition": 0, "n": n, "copies": n}
    return {**known, "app": "a", "target": room, "members": 3, "gateways": 2, **told}


def loaded(*rows: Row) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    made = loads(pa.Table.from_pylist([*rows], SCHEMA), BY_NO_CLOCK).to_pylist()
    names = ("messages", "copies", "rooms", "members", "share", "imbalance")
    return {
        (row["node"], row["partition"], row["window"]): tuple(row[n] for n in names) for row in made
    }


def of_rooms(*rows: Row, said: pa.Table | None = None) -> dict[str, Row]:
    told = pa.Table.from_pylist([*rows], SCHEMA)
    made = rooms(told, loads(told, BY_NO_CLOCK), BY_NO_CLOCK, said).to_pylist()
    return {row["room"]: row for row in made}


def test_a_minute_s_work_is_shared_by_all_brokers_that_tell_of_it():
    assert loaded(
        load("x", 10),
        load("x", 20, DAY + SECOND, rooms=7, copies=None),
        load("y", 10, partition=1, members=5),
        load("x", 30, DAY + MINUTE),
    ) == {
        ("x", 0, DAY): (30, 10, 7, 1, 2 / 3, 4 / 3),
        ("y", 1, DAY): (10, 10, 1, 5, 1 / 3, 2 / 3),
        ("x", 0, DAY + MINUTE): (30, 30, 1, 1, 1.0, 1.0),
    }


def test_of_no_work_nobody_has_a_share():
    assert loaded(load("x", 0), load("y", 0)) == {
        ("x", 0, DAY): (0, 0, 1, 1, None, None),
        ("y", 0, DAY): (0, 0, 1, 1, None, None),
    }


def test_a_room_is_hot_with_a_tenth_of_its_broker_s_work_and_a_message_a_second():
    found = of_rooms(
        load("x", 600),
        load("y", 60_000, partition=1),
        heat("x", "room:much", 60),
        heat("x", "room:little", 59),
        heat("y", "room:small", 5999, partition=1),
        # Nothing is known of what that one has to do.
        heat("z", "room:lonely", 60),
    )
    assert {room: (row["hot"], row["share"]) for room, row in found.items()} == {
        "room:much": (True, 0.1),
        "room:little": (False, 59 / 600),
        "room:small": (False, 5999 / 60_000),
        "room:lonely": (False, None),
    }


def test_a_room_that_moved_to_another_broker_is_one():
    found = of_rooms(
        load("x", 600),
        load("y", 6000, partition=1),
        heat("x", "room:1", 30, members=9),
        heat("y", "room:1", 30, partition=1, gateways=4),
    )
    [row] = found.values()
    told = ("counted", "rate", "members", "gateways", "partition", "share", "hot", "messages")
    assert [row[name] for name in told] == [60, 1.0, 9, 4, 1, 0.05, False, 0]


def test_what_is_recorded_is_beside_what_brokers_count():
    said = {"app": ["a", "a"], "room": ["room:1", "room:2"], "window": [DAY, DAY]}
    said |= {"messages": [3, 1], "scaled": [300.0, 100.0], "deliveries": [12, 0]}
    known = pa.table(said | {"members": [4, 0], "gateways": [1, 0]})
    found = of_rooms(load("x", 100), heat("x", "room:1", 60, members=3), said=known)
    names = ("messages", "scaled", "deliveries", "counted", "rate", "members", "gateways", "hot")
    assert {room: tuple(row[n] for n in names) for room, row in found.items()} == {
        "room:1": (3, 300.0, 12, 60, 5.0, 4, 2, True),
        "room:2": (1, 100.0, 0, None, 100 / 60, 0, 0, False),
    }


def test_of_an_hour_without_rooms_there_are_no_rows():
    assert of_rooms() == {}
    assert loaded() == {}
