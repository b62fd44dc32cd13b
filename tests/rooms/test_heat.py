"""Heat: the hottest rooms, in bounded memory."""

from __future__ import annotations

import random

from chappe.rooms.heat import Heat, Hot


def test_the_hottest_are_told_first_and_then_counted_anew():
    heat = Heat()
    for key, count in (("a", 3), ("b", 5), ("c", 1)):
        for _ in range(count):
            heat.count(key, 2)
    assert heat.take(2) == [Hot("b", 5, 10), Hot("a", 3, 6)]
    assert heat.take() == []


def test_no_more_are_told_than_asked_for():
    heat = Heat()
    for number in range(100):
        heat.count(str(number), 0)
    assert len(heat.take()) == 20


def test_a_hot_room_is_found_among_many_more_than_are_counted():
    heat, rng = Heat(64), random.Random(7)
    for number in range(20_000):
        heat.count(f"cold{rng.randrange(5000)}", 1)
        if number % 20 == 0:
            heat.count("hot", 3)
        assert len(heat) <= 64
    hottest = heat.take()[0]
    assert hottest.key == "hot"
    assert hottest.messages > 900
    assert hottest.copies == 3 * hottest.messages
