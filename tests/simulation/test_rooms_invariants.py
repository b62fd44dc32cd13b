"""The checks of rooms are tested too: each fault planted in them is caught within some seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from chappe.rooms import publisher
from chappe.rooms.announcer import Announcer
from chappe.rooms.audit import Audit
from chappe.rooms.book import Book
from chappe.rooms.dedup import Dedup
from chappe.rooms.gateway import Gateway
from chappe.rooms.gateways import Gateways
from chappe.rooms.membership import Membership
from chappe.rooms.modulus import Modulus
from chappe.rooms.order import Order
from chappe.rooms.outlets import Outlets
from chappe.rooms.proxy import Proxy
from chappe.rooms.publisher import Publisher
from chappe.rooms.pulse import Neighbour
from chappe.rooms.replay import ReplayWindow
from chappe.rooms.rows import RowWriter
from chappe.rooms.table import Table
from chappe.simulation import SimulationError
from chappe.wire.rooms import Login
from tests.simulation.proof import FULL
from tests.simulation.room_growth import BusyWorld
from tests.simulation.room_invariants import check, differences
from tests.simulation.room_loss import LossyWorld, reliable_chance, spread
from tests.simulation.room_world import RoomWorld

SEEDS = 40

Method = Callable[..., Any]


def never(original: Method) -> Method:
    return lambda *args, **options: None


def always(original: Method) -> Method:
    return lambda *args, **options: True


def nothing_found(original: Method) -> Method:
    return lambda *args, **options: []


def tell_one_replica_only(original: Method) -> Method:
    def give(self: Outlets, card: Any, entries: Any) -> Any:
        for alike in self._alike:
            first = alike.endpoints[:1]
            theirs = [
                e for e in entries if e.number % alike.modulus == alike.partition % alike.modulus
            ]
            if theirs:
                self._post.send_all(first, Login(alike.partition, card, theirs))
        return [frozenset()] * len(entries)

    return give


def refresh_nothing(original: Method) -> Method:
    def refresh(self: Announcer, now: float, left: int) -> int:
        self._refresh_at = math.inf
        return left

    return refresh


def keep_everything(original: Method) -> Method:
    return lambda self, key, record, step: record


def deliver_to_nobody(original: Method) -> Method:
    def deny(self: Gateway, op: Any, source: Any, now: float) -> None:
        self._audience.deliver(op.app, op.message, source.name)

    return deny


def mix_up_apps(original: Method) -> Method:
    def deliver(self: Gateway, op: Any, source: Any, now: float) -> None:
        original(self, msgspec.structs.replace(op, app="chat"), source, now)

    return deliver


def choose_any_proxy(original: Method) -> Method:
    return lambda self, app, to: self.balance.choose(self._able)


def stay_at_the_first_number(original: Method) -> Method:
    def look(self: Proxy, now: float) -> None:
        if self.partitions:
            self._roll = replace(self._roll, partitions=self.partitions)
        original(self, now)

    return look


def clean_at_once(original: Method) -> Method:
    def settle(self: Modulus, now: float) -> bool:
        changed = not self.settled
        self.number = self.partitions
        return changed

    return settle


def try_nobody_again(original: Method) -> Method:
    def judge(self: Neighbour, *args: Any) -> None:
        original(self, *args)
        if self.stalled:
            self.stalled_until = math.inf

    return judge


def stall_who_is_well(original: Method) -> Method:
    def judge(self: Neighbour, sent: int, taken: int, *args: Any) -> None:
        original(self, sent, 0, *args)

    return judge


FAULTS: list[tuple[type, str, Callable[[Method], Method]]] = [
    (Dedup, "first", always),
    (Order, "take", always),
    (RowWriter, "add", never),
    (Announcer, "_refresh", refresh_nothing),
    (Gateway, "_deny", deliver_to_nobody),
    (Proxy, "_look", stay_at_the_first_number),
    (Book, "_sweep", never),
    (ReplayWindow, "take", always),
    (Gateways, "leave", never),
    (Table, "_kept", keep_everything),
    (Neighbour, "judge", never),
    (Outlets, "give", tell_one_replica_only),
    (Announcer, "_repeat", never),
    (Announcer, "left", never),
    (Modulus, "settle", clean_at_once),
    (Membership, "clean", never),
    (Gateway, "_deliver", mix_up_apps),
    (Publisher, "_proxy_of", choose_any_proxy),
    (Audit, "over", nothing_found),
    (Audit, "missing", nothing_found),
    (Neighbour, "judge", try_nobody_again),
    (Neighbour, "judge", stall_who_is_well),
]
# Every test run sees some of them caught, of seven parts, a proof all. Those are caught soonest.
PLANTED = FAULTS if FULL else FAULTS[:7]


@pytest.mark.parametrize(("owner", "method", "fault"), PLANTED)
def test_a_planted_fault_is_caught(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, fault: Callable[[Method], Method]
):
    monkeypatch.setattr(owner, method, fault(getattr(owner, method)))
    assert any(_is_caught(seed) for seed in range(SEEDS))


def _is_caught(seed: int) -> bool:
    world = RoomWorld(seed)
    world.differences = differences
    try:
        check(world.run())
    except (AssertionError, SimulationError, TimeoutError):
        return True
    return False


def test_fewer_copies_than_three_are_noticed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(publisher, "COPIES", 2)
    world = LossyWorld(1, loss=0.05, proxies=3, messages=1000).run()
    promised = reliable_chance(0.05)
    assert world.reliable.share < promised - spread(promised, world.reliable.sent)


@pytest.mark.skipif(not FULL, reason="takes long, and is part of the proof")
def test_a_table_that_forgets_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch):
    def first(self: Dedup, id: int) -> bool:
        new = id not in self._ids
        self._ids[id] = None
        return new

    monkeypatch.setattr(Dedup, "first", first)
    assert BusyWorld(1, periods=6, period_s=40.0).run().grown
