"""The publisher: which proxies messages go by (R6, R13, R14)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from chappe.errors import Unreachable
from chappe.events.counting import CountingRecorder
from chappe.rooms.options import RoomsOptions
from chappe.rooms.partition import room_number
from chappe.rooms.publisher import REPEATS_MAX, Publisher
from chappe.rooms.role import Endpoint
from chappe.rooms.roll import Roll, Weights
from chappe.wire.rooms import State, Submit
from tests.rooms.rig import APP, Bench, endpoint, message, seat, seats


class Desk(Bench):
    """A publisher whose proxies answer."""

    def __init__(self, *proxies: int, options: RoomsOptions | None = None) -> None:
        super().__init__()
        self.recorder = CountingRecorder()
        self.publisher = Publisher(
            options=options or RoomsOptions(),
            post=self.post,
            clock=self.clock,
            name="me",
            recorder=self.recorder,
            rng=Random(1),
        )
        self.see(*proxies)
        self.settle()
        self._last = 0

    def see(self, *proxies: int, weights: Weights | None = None) -> None:
        roll = Roll(proxies=seats(*proxies), weights=weights or Weights())
        self.publisher.see(roll, self.now)

    def settle(self, seconds: float = 0.0) -> None:
        self.pass_time(self.publisher, seconds)

    def publish(self, room: str = "7", *, reliable: bool = False) -> list[Endpoint]:
        """Publish a message; where it went at once."""
        self._last += 1
        self.post.said.clear()
        self.publisher.publish(
            APP, message(self._last, room), room_number(room), reliable, self.now
        )
        return [to for to, _ in self.post.of(Submit)]


def test_a_message_goes_to_a_proxy_with_all_it_needs():
    desk = Desk(1)
    assert desk.publish("7") == [endpoint(1)]
    op = desk.post.of(Submit)[0][1]
    assert (op.app, op.number, op.message, op.reliable) == (APP, 7, message(1, "7"), False)


def test_messages_to_a_room_stay_on_one_proxy_while_it_lives():  # R14
    desk = Desk(1, 2, 3)
    first = desk.publish("7")
    for _ in range(20):
        desk.publish("8")
        desk.publish("9")
        assert desk.publish("7") == first
    desk.see(1, 2, 3, 4, 5)
    desk.settle(5.0)
    assert desk.publish("7") == first


def test_rooms_are_spread_over_proxies_by_turns():  # R6
    desk = Desk(1, 2, 3)
    went = Counter(desk.publish(str(room))[0] for room in range(30))
    assert went == {endpoint(1): 10, endpoint(2): 10, endpoint(3): 10}


def test_publishers_do_not_all_begin_with_the_same_proxy():
    first = set()
    for number in range(20):
        desk = Desk()
        desk.publisher._rng = Random(number)
        desk.see(1, 2, 3)
        desk.settle()
        first.add(desk.publish()[0])
    assert len(first) == 3


def test_rooms_are_spread_by_weight_if_that_is_asked_for():  # R6
    desk = Desk(1, 2, options=RoomsOptions(balance="weights"))
    desk.see(1, 2, weights=Weights(proxies={1: 3.0, 2: 1.0}))
    went = Counter(desk.publish(str(room))[0] for room in range(40))
    assert went == {endpoint(1): 30, endpoint(2): 10}


def test_a_flow_leaves_a_proxy_that_is_silent_or_gone():
    desk = Desk(1, 2)
    first = desk.publish()[0]
    id_ = 1 if first == endpoint(1) else 2
    desk.silent = {id_}
    desk.settle(2.0)
    other = desk.publish()[0]
    assert other != first
    desk.silent = set()
    desk.settle(2.0)
    # It has a new one, and stays on that.
    assert desk.publish()[0] == other
    desk.see(id_)
    desk.settle()
    assert desk.publish()[0] == first


def test_a_flow_leaves_a_proxy_that_cannot_forward_any_more():
    desk = Desk(1, 2)
    first = desk.publish()[0]
    id_ = 1 if first == endpoint(1) else 2
    desk.says[id_] = {"state": State.INIT, "number": 3}
    desk.settle(0.5)
    assert desk.publish()[0] != first


def test_a_flow_leaves_a_proxy_that_takes_nothing_but_not_for_what_goes_in_pieces():  # R5
    desk = Desk(1, 2)
    first = desk.publish()
    desk.post.whole = False
    for _ in range(20):
        desk.settle(0.25)
        assert desk.publish() == first
        assert desk.publish("8", reliable=True)
    desk.post.whole = True
    for _ in range(10):
        desk.settle(0.25)
        second = desk.publish()
    assert second != first


def test_a_proxy_that_is_not_running_is_not_chosen():
    desk = Desk()
    desk.says[1] = {"state": State.INIT, "number": 0}
    desk.see(1, 2)
    desk.settle(1.0)
    assert {desk.publish(str(room))[0] for room in range(10)} == {endpoint(2)}


def test_where_no_proxy_reaches_all_partitions_one_that_reaches_some_is_used():
    desk = Desk(1, 2)
    desk.says = {1: {"state": State.INIT, "number": 0}, 2: {"state": State.INIT, "number": 3}}
    desk.settle(0.5)
    assert {desk.publish(str(room))[0] for room in range(10)} == {endpoint(2)}


def test_without_a_proxy_that_could_forward_it_is_unreachable():
    desk = Desk()
    assert not desk.publisher.able
    with pytest.raises(Unreachable, match="room:7"):
        desk.publish()
    desk = Desk(1)
    desk.silent = {1}
    desk.settle(2.0)
    with pytest.raises(Unreachable):
        desk.publish(reliable=True)
    desk.silent = set()
    desk.says[1] = {"state": State.INIT}
    desk.settle(1.0)
    with pytest.raises(Unreachable):
        desk.publish()
    assert desk.publisher.counts["refused"] == 2


def test_a_proxy_that_answers_but_takes_nothing_loses_its_flows():  # R5
    desk = Desk(1, 2)
    first = desk.publish("7")
    for _ in range(8):
        assert desk.publish("7") == first
        desk.publish("7")
        desk.settle(0.25)
    desk.settle(0.5)
    assert desk.publish("7") != first


def test_a_proxy_with_weight_0_is_drained():
    desk = Desk(1, 2)
    first = desk.publish()[0]
    id_ = 1 if first == endpoint(1) else 2
    desk.see(1, 2, weights=Weights(proxies={id_: 0.0}))
    assert {desk.publish(str(room))[0] for room in range(10)} == {endpoint(3 - id_)}


def test_flows_are_bounded_and_the_least_used_is_forgotten():
    desk = Desk(1, 2, 3, options=RoomsOptions(flows_max=10))
    first = desk.publish("7")
    for room in range(100, 200):
        desk.publish(str(room))
        assert desk.publish("7") == first
    assert desk.publisher.counts["flows"] == 10


def test_a_reliable_message_goes_at_once_by_three_proxies():  # R13
    desk = Desk(1, 2, 3, 4, 5)
    went = Counter(to for _ in range(50) for to in desk.publish(reliable=True))
    assert went == {endpoint(id_): 30 for id_ in range(1, 6)}
    for _ in range(5):
        assert len(set(desk.publish(reliable=True))) == 3
        assert all(op.reliable for _, op in desk.post.of(Submit))
    at_once = desk.post.at_once
    desk.publish(reliable=True)
    assert desk.post.at_once == at_once + 1
    desk.settle(1.0)
    assert len(desk.post.of(Submit)) == 3


def test_with_two_proxies_the_third_copy_repeats_after_10_ms():  # R13
    desk = Desk(1, 2)
    assert sorted(desk.publish(reliable=True)) == [endpoint(1), endpoint(2)]
    desk.settle(0.009)
    assert len(desk.post.of(Submit)) == 2
    desk.settle(0.002)
    assert len(desk.post.of(Submit)) == 3
    desk.settle(1.0)
    assert len(desk.post.of(Submit)) == 3


def test_with_one_proxy_copies_are_10_ms_apart():  # R13
    desk = Desk(1)
    assert desk.publish(reliable=True) == [endpoint(1)]
    counts = []
    for _ in range(5):
        desk.settle(0.0051)
        counts.append(len(desk.post.of(Submit)))
    assert counts == [1, 2, 2, 3, 3]
    assert len({op.message.id for _, op in desk.post.of(Submit)}) == 1
    desk.settle(1.0)
    assert len(desk.post.of(Submit)) == 3


def test_a_copy_that_waits_goes_by_another_proxy_when_its_own_is_gone():
    desk = Desk(1)
    desk.publish(reliable=True)
    desk.see(2)
    desk.answer(desk.publisher)
    desk.settle(0.05)
    assert [to for to, _ in desk.post.of(Submit)] == [endpoint(1), endpoint(2), endpoint(2)]


def test_copies_that_wait_are_bounded_and_none_is_lost():
    desk = Desk(1)
    for _ in range(REPEATS_MAX):
        desk.publish(reliable=True)
    assert desk.publish(reliable=True) == 3 * [endpoint(1)]


def test_reliable_messages_leave_flows_as_they_are():
    desk = Desk(1, 2, 3)
    first = desk.publish("7")
    for _ in range(10):
        desk.publish("7", reliable=True)
        assert desk.publish("7") == first


def test_what_leaves_the_node_is_told():
    told: list[object] = []

    class Telling(CountingRecorder):
        def forwarded(self, app, messages, came_from, went_to, **more):  # type: ignore[no-untyped-def]
            told.append((app, messages[0].id, came_from, went_to))

    desk = Desk()
    desk.publisher._hops._recorder = Telling()
    desk.publisher.see(Roll(proxies=(seat(1), seat(2, name="me"))), desk.now)
    desk.settle()
    for room in range(4):
        desk.publish(str(room))
    assert [entry[3] for entry in told] == [("n1",), ("n1",)]  # type: ignore[index]
    assert desk.publisher.counts["messages"] == 4


def test_how_far_the_clocks_of_proxies_are_ahead_is_told_now_and_then():
    desk = Desk(1, 2)
    told: list[tuple[str, int, int]] = []
    desk.recorder.link_beat = lambda *beat: told.append(beat)
    desk.settle(9.5)
    assert told == []
    desk.silent = {1, 2}
    for id_ in (1, 2):
        neighbour = desk.publisher.pulses.get(id_)
        neighbour.ahead_us, neighbour.round_trip_s = 7 * id_, id_ / 1000
    desk.settle(0.9)
    assert told == [("n1", 7, 1000), ("n2", 14, 2000)]
