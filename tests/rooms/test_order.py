"""One publisher's messages for a room come in order; a change of ways loses none (R14)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chappe.ids import SEQUENCE_BITS
from chappe.rooms.order import Order

A, B = ("n1", 1, 1), ("n2", 1, 1)
ROOM = "room:7"


def ids(*times: int, node: int = 0) -> list[int]:
    """Message ids of a node, in order of their times."""
    return [time << 22 | node << SEQUENCE_BITS for time in times]


def test_a_message_that_was_overtaken_on_its_way_is_left_out() -> None:
    order = Order(10)
    assert [order.take("a", ROOM, each, A) for each in ids(1, 3, 2, 4)] == [True, True, False, True]


def test_the_same_message_again_on_its_way_is_left_out() -> None:
    order = Order(10)
    assert [order.take("a", ROOM, each, A) for each in ids(1, 1)] == [True, False]


def test_nobody_waits_for_what_is_missing() -> None:
    order = Order(10)
    assert [order.take("a", ROOM, each, A) for each in ids(1, 5, 9)] == [True, True, True]


def test_what_comes_late_by_another_way_is_delivered_all_the_same() -> None:
    order = Order(10)
    one, two, three, four = ids(1, 2, 3, 4)
    assert order.take("a", ROOM, one, A)
    assert order.take("a", ROOM, three, B)
    assert order.take("a", ROOM, two, A)
    assert order.take("a", ROOM, four, B)


def test_a_straggler_of_an_old_way_does_not_let_the_new_one_go_back() -> None:
    order = Order(10)
    one, two, three, four = ids(1, 2, 3, 4)
    order.take("a", ROOM, one, A)
    order.take("a", ROOM, four, B)
    assert order.take("a", ROOM, two, A)
    assert not order.take("a", ROOM, three, B)


def test_a_way_is_the_brokers_node_the_proxy_and_the_broker() -> None:
    for other in (("n2", 1, 1), ("n1", 2, 1), ("n1", 1, 2)):
        order = Order(10)
        early, late = ids(1, 2)
        assert order.take("a", ROOM, late, A)
        assert order.take("a", ROOM, early, other)


def test_rooms_apps_and_publishers_do_not_disturb_each_other() -> None:
    order = Order(10)
    early, late = ids(1, 2)
    assert order.take("a", ROOM, late, A)
    assert order.take("a", "room:8", early, A)
    assert order.take("b", ROOM, early, A)
    assert order.take("a", ROOM, ids(1, node=5)[0], A)
    assert not order.take("a", ROOM, early, A)


def test_the_flow_longest_unheard_of_is_forgotten_first() -> None:
    order = Order(2)
    early, late = ids(1, 2)
    order.take("a", "room:1", late, A)
    order.take("a", "room:2", late, A)
    order.take("a", "room:1", ids(3)[0], A)
    order.take("a", "room:3", late, A)
    assert len(order) == 2
    assert not order.take("a", "room:1", early, A)
    assert order.take("a", "room:2", early, A)


@given(st.permutations(list(range(1, 12))))
def test_on_one_way_what_is_delivered_grows(times: list[int]) -> None:
    order = Order(4)
    taken = [time for time in times if order.take("a", ROOM, ids(time)[0], A)]
    assert taken == sorted(taken)
    assert 11 in taken
