"""Rooms over many machines: datagrams are lost, processes die and sleep, servers restart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import room_deaths, room_stories
from .figures import FULL
from .rooms_layout import OutsideRedis, RoomsLayout, told

pytestmark = pytest.mark.timeout(3000 if FULL else 300)

TIMES = 20 if FULL else 1
ROLES = {
    "g1": "hub,gateway",
    "g2": "hub,gateway",
    "p1": "proxy",
    "p2": "proxy",
    "b1": "broker",
    "b2": "broker",
    "r1": "router",
    "r2": "router",
}
# As many as a reliable message has copies; with fewer, they follow each other by the same one.
MORE = {"p3": "proxy"}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoomsLayout]:
    roles = ROLES | (MORE if FULL else {})
    layout = RoomsLayout(tmp_path_factory.mktemp("rooms"), OutsideRedis, roles)
    yield layout
    layout.stop()


def test_reliable_messages_arrive_as_often_as_three_copies_do(layout: RoomsLayout) -> None:  # R13
    told(layout, room_stories.datagrams_are_lost, 0.05, 20_000 if FULL else 400)


@pytest.mark.parametrize("role", ["broker", "proxy", "router"])
def test_others_take_over_from_who_is_killed(layout: RoomsLayout, role: str) -> None:  # R5
    told(layout, room_deaths.a_role_is_killed, role, TIMES)


def test_roles_that_are_told_to_stop_lose_nothing(layout: RoomsLayout) -> None:  # R8
    roles = ("broker", "proxy", "router") if FULL else ("broker",)
    told(layout, room_deaths.roles_are_restarted, roles, TIMES)


def test_members_of_a_killed_gateway_come_back_elsewhere(layout: RoomsLayout) -> None:  # R11
    told(layout, room_deaths.a_gateway_is_killed, TIMES)


def test_a_broker_that_sleeps_is_passed_over_until_it_wakes(layout: RoomsLayout) -> None:  # R5
    told(layout, room_deaths.a_broker_sleeps, TIMES)


def test_doubling_partitions_loses_nothing(layout: RoomsLayout) -> None:  # R9
    told(layout, room_stories.partitions_are_doubled, 2000.0 if FULL else 200.0, 2)


def test_messages_go_on_while_redis_restarts(layout: RoomsLayout) -> None:  # R4
    registry = layout.registry
    assert isinstance(registry, OutsideRedis)
    restarts = room_stories.the_registry_restarts
    times = 5 if FULL else 1
    if FULL:
        told(layout, restarts, registry.restart, "Redis, the registry, restarts", times)
    forgets = "Redis, the registry, restarts and has forgotten everything"
    told(layout, restarts, lambda: registry.restart(empty=True), forgets, times)


def test_joins_go_on_while_the_store_restarts(layout: RoomsLayout) -> None:  # R10
    told(layout, room_stories.the_store_restarts)
