"""The invariants are tested too: each fault planted in the hub is caught within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chappe.endpoints.topic import Topics
from chappe.endpoints.user import Users
from chappe.errors import Unreachable
from chappe.hub.fanout import FanOut
from chappe.hub.hub import Hub
from chappe.hub.outbox import Outboxes
from chappe.hub.table import ConnectionTable
from chappe.simulation import SimulationError
from tests.simulation.invariants import check, check_now
from tests.simulation.workload import World

SEEDS = 6


def lose_promised_messages(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, messages, *to: original(self, messages[1:] or messages, *to)


def lose_published_messages(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, messages, *to: original(self, messages[:-1] or messages, *to)


def deliver_twice(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, messages, *to: original(self, [*messages, messages[0]], *to)


def deliver_backwards(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, messages, *to: original(self, messages[::-1], *to)


def never(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **options: None


def answer_ok_to_nobody(original: Callable[..., Any]) -> Callable[..., Any]:
    def deliver(self: Users, *args: Any) -> bool:
        try:
            return original(self, *args)
        except Unreachable:
            return True

    return deliver


def release_backwards(original: Callable[..., Any]) -> Callable[..., Any]:
    def release(self: Outboxes, session: Any) -> None:
        if session.backlog is not None and not session.paused:
            session.backlog.reverse()
        original(self, session)

    return release


def grow_the_account(original: Callable[..., Any]) -> Callable[..., Any]:
    def hold(self: Outboxes, session: Any) -> None:
        original(self, session)
        session.backlog_bytes += 1
        self.held_bytes += 1

    return hold


@pytest.mark.parametrize(
    ("owner", "method", "fault"),
    [
        (FanOut, "_put_promised", lose_promised_messages),
        (FanOut, "put_droppable", lose_published_messages),
        (FanOut, "_put_promised", deliver_twice),
        (FanOut, "put_droppable", deliver_twice),
        (FanOut, "_put_promised", deliver_backwards),
        (FanOut, "put_droppable", deliver_backwards),
        (ConnectionTable, "unbind", never),
        (Topics, "left", never),
        (Users, "_deliver", answer_ok_to_nobody),
        (Hub, "_beat", never),
        (Hub, "lost", never),
        (Outboxes, "_release", release_backwards),
        (Outboxes, "_hold", grow_the_account),
    ],
)
def test_a_planted_fault_is_caught(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, fault: Callable[..., Any]
):
    monkeypatch.setattr(owner, method, fault(getattr(owner, method)))
    assert any(_is_caught(seed) for seed in range(SEEDS))


def _is_caught(seed: int) -> bool:
    world = World(seed)
    world.look = check_now
    try:
        check(world.run())
    except (AssertionError, SimulationError):
        return True
    return False


@pytest.mark.parametrize("seed", range(2))
def test_without_a_fault_nothing_is_caught(seed: int):
    assert not _is_caught(seed)
