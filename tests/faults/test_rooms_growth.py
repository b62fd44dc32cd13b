"""Rooms over many machines that know each other by ZooKeeper: restarted, and doubled twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import room_stories
from .figures import FULL
from .rooms_layout import OutsideZooKeeper, RoomsLayout, told

pytestmark = pytest.mark.timeout(1200 if FULL else 200)

ROLES = {
    "g1": "hub,gateway",
    "g2": "hub,gateway",
    "w1": "proxy,broker,router",
    "w2": "proxy,broker,router",
}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoomsLayout]:
    layout = RoomsLayout(tmp_path_factory.mktemp("rooms"), OutsideZooKeeper, ROLES)
    yield layout
    layout.stop()


def test_doubling_partitions_twice_loses_nothing(layout: RoomsLayout) -> None:  # R9
    told(layout, room_stories.partitions_are_doubled, 2000.0 if FULL else 300.0, 4)


def test_messages_go_on_while_zookeeper_restarts(layout: RoomsLayout) -> None:  # R4
    restart = layout.registry.restart
    restarts = room_stories.the_registry_restarts
    told(layout, restarts, restart, "ZooKeeper, the registry, restarts", 5 if FULL else 1)
