"""Many small dicts of rooms are one dict to whoever uses it."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.rooms.shelves import Shelves

KEYS = st.tuples(st.sampled_from(("a", "b")), st.sampled_from([str(n) for n in range(200)]))


@given(st.lists(st.tuples(st.sampled_from(("put", "remove", "popitem")), KEYS), max_size=200))
def test_they_hold_what_a_dict_holds(steps):
    shelves: Shelves[int] = Shelves()
    truth: dict[tuple[str, str], int] = {}
    for number, (step, key) in enumerate(steps):
        if step == "put":
            shelves.put(key, number)
            truth[key] = number
        elif step == "popitem" and truth:
            taken, value = shelves.popitem()
            assert truth.pop(taken) == value
        elif key in truth:
            shelves.remove(key)
            del truth[key]
        else:
            with pytest.raises(KeyError):
                shelves.remove(key)
        assert len(shelves) == len(truth)
        assert (key in shelves, shelves.get(key)) == (key in truth, truth.get(key))
    assert dict(shelves.walk()) == truth
    if not truth:
        with pytest.raises(KeyError):
            shelves.popitem()


def filled(count: int) -> Shelves[int]:
    shelves: Shelves[int] = Shelves()
    for number in range(count):
        shelves.put(("a", f"room {number}"), number)
    return shelves


def test_no_shelf_has_much_of_many_rooms():
    assert max(map(len, filled(10_000).shelves())) < 300


def test_what_was_put_longest_ago_is_first_on_its_shelf():
    shelves = filled(1000)
    shelf = shelves.shelves()[0]
    first, second = islice(list(shelf), 2)
    shelves.put(first, 1)
    assert next(iter(shelf)) == second
    assert list(shelf)[-1] == first


def test_who_walks_meets_all_that_stay_though_others_come_and_go():
    shelves = filled(1000)
    met, gone = set(), set()
    for number, (_, item) in enumerate(shelves.walk()):
        if item is not None:
            met.add(item)
        other = 999 - number
        if other not in met and other >= 500 and shelves.get(("a", f"room {other}")) is not None:
            shelves.remove(("a", f"room {other}"))
            gone.add(other)
        shelves.put(("b", str(number)), 10_000 + number)
        # Told of again, and so behind others.
        shelves.put(("a", "room 1"), 1)
        if number > 5000:
            break
    assert {*range(1000)} - gone <= met
    assert not gone & met
