"""Rooms are looked at one by one while others come and go, and none is left out (R11)."""

from __future__ import annotations

from random import Random

import pytest

from chappe.rooms.rerouting import Rerouting


class Room:
    def __init__(self, name: int) -> None:
        self.name = name
        self.place = 0


def rooms(rerouting: Rerouting[Room], count: int) -> list[Room]:
    made = [Room(name) for name in range(count)]
    for room in made:
        rerouting.add(room)
    return made


def rest(rerouting: Rerouting[Room]) -> list[Room]:
    """Those that are still to be looked at."""
    found = []
    while (room := rerouting.maybe_next()) is not None:
        found.append(room)
    return found


def test_all_are_looked_at_once_after_those_that_somebody_waits_for() -> None:
    rerouting: Rerouting[Room] = Rerouting()
    made = rooms(rerouting, 5)
    assert rest(rerouting) == []
    for room in made[:3]:
        rerouting.known(room)
    rerouting.begin()
    found = rest(rerouting)
    assert found[:2] == made[3:]
    assert sorted(room.name for room in found[2:]) == [0, 1, 2, 3, 4]
    rerouting.await_(made[1])
    rerouting.begin()
    assert made[1] in rest(rerouting)[:3]


def test_who_begins_anew_looks_at_all_again() -> None:
    rerouting: Rerouting[Room] = Rerouting()
    made = rooms(rerouting, 4)
    rerouting.begin()
    for _ in range(6):
        rerouting.maybe_next()
    rerouting.begin()
    assert set(rest(rerouting)) == set(made)


@pytest.mark.parametrize("seed", range(50))
def test_no_room_that_stays_is_left_out_whatever_comes_and_goes(seed: int) -> None:
    rng = Random(seed)
    rerouting: Rerouting[Room] = Rerouting()
    there = rooms(rerouting, 40)
    stay, seen = set(there), set()
    rerouting.begin()
    for step in range(1000):
        if (room := rerouting.maybe_next()) is None:
            break
        seen.add(room)
        assert room in there
        for _ in range(rng.randrange(3)):
            if there and rng.random() < 0.5:
                gone = there.pop(rng.randrange(len(there)))
                rerouting.remove(gone)
                stay.discard(gone)
            elif rng.random() < 0.5:
                there.append(Room(1000 + step))
                rerouting.add(there[-1])
            elif there:
                rng.choice((rerouting.known, rerouting.await_))(rng.choice(there))
    else:
        raise AssertionError("it never ends")
    assert stay <= seen
    assert len(rerouting) == len(there)
