"""Nodes tell of a message to a room once each, whichever roles they have. R1, R13"""

from __future__ import annotations

from typing import Any

import pytest

from chappe.events.counting import CountingRecorder
from chappe.events.sampling import Sampling
from chappe.message import Message
from chappe.rooms.hops import Hops
from chappe.rooms.pulse import Neighbour
from chappe.rooms.roll import Place, Seat
from chappe.wire.rooms import RoleKind
from tests.events.test_eventrecorder import Told

MESSAGE = Message(10**18, "user:a", "room:7", 5, b"hello")


class Node:
    """A node's roles, and what it tells."""

    def __init__(self, name: str, share: float = 1.0) -> None:
        self.name = name
        self.told = Told(share)
        self.told.recorder.came = 900_000
        roles = [RoleKind.PUBLISHER, RoleKind.PROXY, RoleKind.BROKER, RoleKind.GATEWAY]
        self.publisher, self.proxy, self.broker, self.gateway = (
            Hops(self.told.recorder, name, role) for role in roles
        )

    def rows(self) -> list[tuple[Any, ...]]:
        columns = ("kind", "role", "came_from", "went_to", "reason", "taken_as")
        return [tuple(row.get(name) for name in columns) for row in self.told.rows()]


def test_a_node_with_all_roles_leaves_it_to_the_fan_out() -> None:
    node = Node("a")
    node.publisher.passed("shop", MESSAGE, "", ("a",))
    giver = node.proxy.passed("shop", MESSAGE, node.proxy.came_from("a", ""), ("a",))
    giver = node.broker.passed("shop", MESSAGE, node.broker.came_from("a", giver), ("a",))
    assert node.gateway.came_from("a", giver) == ""
    assert node.rows() == []


def test_nodes_with_a_role_each_tell_whom_it_came_from_and_whom_it_went_to() -> None:
    a, b, c = map(Node, "abc")
    assert a.publisher.passed("shop", MESSAGE, "", ("b",)) is None
    assert b.proxy.passed("shop", MESSAGE, b.proxy.came_from("a", ""), ("c",)) is None
    giver = c.broker.passed("shop", MESSAGE, c.broker.came_from("b", None), ("a", "d"))
    assert a.gateway.came_from("c", giver) == "c"
    assert a.rows() == [("published", "publisher", None, ["b"], None, None)]
    assert b.rows() == [("published", "proxy", "a", ["c"], None, None)]
    assert c.rows() == [("published", "broker", "b", ["a", "d"], None, None)]


def test_a_node_that_is_proxy_and_broker_tells_one_hop() -> None:
    node = Node("b")
    giver = node.proxy.passed("shop", MESSAGE, node.proxy.came_from("a", ""), ("b",))
    node.broker.passed("shop", MESSAGE, node.broker.came_from("b", giver), ("c",))
    assert node.rows() == [("published", "broker", "a", ["c"], None, "proxy")]


def test_a_gateway_beside_its_broker_came_by_no_further_way() -> None:
    node = Node("b")
    giver = node.broker.passed("shop", MESSAGE, node.broker.came_from("a", None), ("b", "c"))
    assert node.gateway.came_from("b", giver) == "b"
    assert node.rows() == [("published", "broker", "a", ["c"], None, None)]


def test_a_room_with_nobody_in_it_is_told_of_as_well() -> None:
    node = Node("b")
    node.broker.passed("shop", MESSAGE, "a", ())
    assert node.rows() == [("published", "broker", "a", None, None, None)]


def test_copies_and_drops_are_told_apart() -> None:
    node = Node("d")
    node.gateway.copied("shop", MESSAGE, "c")
    node.proxy.dropped("shop", MESSAGE, "no_broker")
    assert node.rows() == [
        ("copied", "gateway", "c", None, None, None),
        ("dropped", "proxy", None, None, "no_broker", None),
    ]
    assert node.told.recorder.drops == {"no_broker": 1}


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_of_a_sample_all_or_nothing_is_told(share: float) -> None:
    node, sampling = Node("d", share), Sampling(share)
    wanted = 0
    for one in range(10**18, 10**18 + 100):
        message = Message(one, "user:a", "room:7", 5, b"hello")
        node.broker.passed("shop", message, "b", ("c", "d"))
        node.gateway.copied("shop", message, "c")
        node.proxy.dropped("shop", message, "no_broker")
        wanted += 3 * sampling.takes(one)
    assert len(node.rows()) == wanted


def test_a_recorder_that_counts_takes_all_of_it() -> None:
    recorder = CountingRecorder()
    hops = Hops(recorder, "a", RoleKind.GATEWAY)
    hops.passed("shop", MESSAGE, "b", ())
    hops.copied("shop", MESSAGE, "b")
    hops.dropped("shop", MESSAGE, "overtaken")
    assert recorder.drops == {"overtaken": 1}


def test_how_far_the_clocks_of_other_nodes_are_ahead_is_told_as_links_tell_it() -> None:
    node = Node("b")
    places = [Place(name=name, host="h", port=n) for n, name in enumerate("bcd")]
    neighbours = [Neighbour(Seat(n, place)) for n, place in enumerate(places)]
    for n, neighbour in enumerate(neighbours):
        neighbour.measure(n / 1000, n * 7)
    node.broker.beats(neighbours)
    assert [
        (row["kind"], row["peer"], row["ahead"], row["round_trip"]) for row in node.told.rows()
    ] == [("link", "c", 7, 1000), ("link", "d", 14, 2000)]


def test_a_node_with_all_roles_but_a_publisher_says_as_which_it_took_a_copy() -> None:
    node = Node("b")
    giver = node.proxy.passed("shop", MESSAGE, node.proxy.came_from("a", ""), ("b",))
    giver = node.broker.passed("shop", MESSAGE, node.broker.came_from("b", giver), ("b",))
    node.gateway.copied("shop", MESSAGE, node.gateway.came_from("b", giver))
    # The next was taken by the gateway itself.
    node.gateway.copied("shop", MESSAGE, node.gateway.came_from("d", None))
    assert node.rows() == [
        ("copied", "gateway", "a", None, None, "proxy"),
        ("copied", "gateway", "d", None, None, None),
    ]
