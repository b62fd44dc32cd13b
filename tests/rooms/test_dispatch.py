from __future__ import annotations

from collections.abc import Callable

import pytest

from chappe.rooms.dispatch import IDS_MAX, Dispatch
from chappe.rooms.role import Source
from chappe.rooms.roll import Roll
from chappe.wire.rooms import (
    ROOM_OPS,
    Announce,
    Carry,
    Confirmed,
    Count,
    Counted,
    Deliver,
    Entry,
    Goodbye,
    Here,
    Login,
    Noted,
    Pass,
    Probe,
    Pulse,
    Pulsed,
    RoleKind,
    RoomOp,
    Stamp,
    State,
    Submit,
    Who,
)
from tests.rooms.rig import card, message, source

CARD = card(1)
ENTRIES = [Entry("app", "7", 7, 1, 1)]
PUBLISHER, PROXY, BROKER, ROUTER, GATEWAY = RoleKind
STAMPS = [Stamp("n", kind, 0, 0) for kind in (PUBLISHER, PROXY, BROKER)]


class Taker:
    def __init__(self, name: str, kind: RoleKind, number: int) -> None:
        self.name = name
        self.kind = kind
        self.id = number
        self.due = float("inf")
        self.got: list[RoomOp] = []

    def receive(self, op: RoomOp, source: Source, now: float) -> None:
        self.got.append(op)

    def see(self, roll: Roll, now: float) -> None:
        raise AssertionError

    def tick(self, now: float) -> None:
        raise AssertionError


class Rig:
    def __init__(self) -> None:
        self.dispatch = dispatch = Dispatch()
        self.takers: list[Taker] = []
        dispatch.publisher = self._made("publisher", PUBLISHER, 0)
        dispatch.proxy = self._made("proxy", PROXY, 0)
        dispatch.gateway = self._made("gateway", GATEWAY, 99)
        dispatch.prober = self._made("prober", GATEWAY, -1)
        dispatch.brokers = {0: self._made("b0", BROKER, 0), 2: self._made("b2", BROKER, 0)}
        dispatch.routers = {0: self._made("router", ROUTER, 0)}
        for number, name in enumerate(("proxy", "b0", "b2", "router"), 10):
            dispatch.seat(next(each for each in self.takers if each.name == name), number)

    def _made(self, name: str, kind: RoleKind, number: int) -> Taker:
        self.takers.append(Taker(name, kind, number))
        return self.takers[-1]

    def hand(self, op: RoomOp) -> set[str]:
        """The names of who got it."""
        before = {each.name: len(each.got) for each in self.takers}
        self.dispatch.hand(op, source(1), 0.0)
        return {each.name for each in self.takers if len(each.got) > before[each.name]}


def pulse(kind: RoleKind, number: int) -> Pulse:
    return Pulse(PUBLISHER, 0, kind, number, 1, 0.0)


def pulsed(kind: RoleKind, number: int) -> Pulsed:
    return Pulsed(kind, number, ROUTER, 5, 1, 0.0, 0, State.RUNNING)


CASES: list[tuple[RoomOp, set[str]]] = [
    (Submit("app", 7, message(1)), {"proxy"}),
    (Carry("app", 7, message(1), False, 1, 2), {"b2"}),
    (Carry("app", 7, message(1), False, 1, 1), set()),
    (Deliver("app", message(1), False, 1, 1), {"gateway"}),
    (Announce(CARD, ENTRIES), {"router"}),
    (Login(0, CARD, ENTRIES), {"b0"}),
    (Noted(1, 0, "g", 1, [1]), {"router"}),
    (Confirmed("g", 1, [1], 2), {"router", "gateway"}),
    (Pass(CARD, ENTRIES), {"router"}),
    (Goodbye(CARD), {"router", "b0", "b2"}),
    (pulse(PROXY, 10), {"proxy"}),
    (pulse(PROXY, 11), set()),
    (pulse(BROKER, 11), {"b0"}),
    (pulse(BROKER, 12), {"b2"}),
    (pulse(BROKER, 10), set()),
    (pulse(ROUTER, 13), {"router"}),
    (pulse(GATEWAY, 99), {"gateway"}),
    # That of an earlier life.
    (pulse(GATEWAY, 98), set()),
    (pulsed(PUBLISHER, 0), {"publisher"}),
    (pulsed(PROXY, 0), {"proxy"}),
    (pulsed(PROXY, 10), {"proxy"}),
    (pulsed(BROKER, 12), {"b2"}),
    (Count("app", "7", 7, 1, 0, CARD, -1), {"proxy"}),
    (Count("app", "7", 7, 1, 0, CARD, 0), {"b0"}),
    (Counted(1, 1, 1, 0), {"gateway"}),
    (Who("app", "7", 1, 1, CARD), {"gateway"}),
    (Here(1, "g", []), {"gateway"}),
    (Probe(1, 0, 0, 1, CARD, STAMPS[:1]), {"proxy"}),
    (Probe(1, 0, 0, 1, CARD, STAMPS[:2]), {"b0"}),
    (Probe(1, 0, 0, 1, CARD, STAMPS), {"prober"}),
]


@pytest.mark.parametrize(("op", "names"), CASES, ids=lambda case: type(case).__name__)
def test_each_op_comes_to_the_role_that_it_is_for(op: RoomOp, names: set[str]):
    rig = Rig()
    assert rig.hand(op) == names
    assert rig.dispatch.misdirected == (not names)


def test_every_op_has_somebody_it_is_for():
    assert {type(op) for op, _ in CASES} == set(ROOM_OPS)


def test_a_role_that_sat_down_again_is_found_by_both_ids_until_it_is_gone():
    rig = Rig()
    broker = rig.dispatch.brokers[0]
    rig.dispatch.seat(broker, 50)
    assert broker.id == 50
    assert rig.hand(pulse(BROKER, 11)) == rig.hand(pulse(BROKER, 50)) == {"b0"}
    for number in range(60, 60 + IDS_MAX):
        rig.dispatch.seat(broker, number)
    assert rig.hand(pulse(BROKER, 50)) == set()
    assert rig.hand(pulse(BROKER, 60)) == {"b0"}
    rig.dispatch.forget(broker)
    assert rig.hand(pulse(BROKER, 60)) == set()


@pytest.mark.parametrize("op", [pulse, pulsed])
def test_it_is_told_whom_a_role_has_met(op: Callable[[RoleKind, int], RoomOp]):
    rig = Rig()
    met: list[tuple[RoomOp, Source]] = []
    rig.dispatch.meeting[rig.dispatch.brokers[0]] = lambda op, who, _: met.append((op, who))
    rig.hand(op(BROKER, 11))
    rig.hand(op(BROKER, 12))
    assert met == [(op(BROKER, 11), source(1))]
