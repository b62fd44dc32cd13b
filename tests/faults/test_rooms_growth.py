"""Rooms over many machines that know each other by ZooKeeper: restarted, and doubled twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from . import room_stories
from .figures import FULL
from .namespaces import Segment
from .rooms_layout import OutsideZooKeeper, RoomsLayout, told
from .rooms_up import RoomsUp

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


@pytest.mark.skipif(not FULL, reason="tests/cli doubles such a layout with few messages")
def test_doubling_a_layout_of_one_command_loses_nothing(tmp_path: Path) -> None:  # R9
    flags = ("--replicas", "2", "--proxies", "2", "--routers", "2", "--gateways", "2")
    with closing(Segment()) as segment:
        layout = RoomsUp(segment.machine(), tmp_path, *flags)
        try:
            doubled = room_stories.partitions_are_doubled
            told(layout, doubled, 2000.0, 4, "`chappe rooms up`")
            layout.stop()
        finally:
            layout.kill()


def test_messages_go_on_while_zookeeper_restarts(layout: RoomsLayout) -> None:  # R4
    restart = layout.registry.restart
    restarts = room_stories.the_registry_restarts
    told(layout, restarts, restart, "ZooKeeper, the registry, restarts", 5 if FULL else 1)
