"""Three real nodes on a private ZooKeeper: killed, stopped, woken; and the ZooKeeper restarted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import ZooKeeperServer

from . import stories
from .appserver import AppServer
from .trio import Trio, story

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One of its own: it is ill-treated here."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.kill()


@pytest.fixture(scope="module")
def trio(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperServer, app_server: AppServer
) -> Iterator[Trio]:
    trio = Trio(tmp_path_factory.mktemp("trio"), zookeeper.url, app_server.config)
    yield trio
    trio.stop()


def test_users_of_a_killed_node_are_offline_at_once_and_gone_in_time(
    trio: Trio, app_server: AppServer
) -> None:  # H4, H9, H16
    story(stories.a_node_is_killed, trio, app_server)


def test_a_node_that_slept_longer_than_its_lease_comes_back(trio: Trio) -> None:  # H11, H12
    story(stories.a_node_sleeps, trio)


def test_links_and_traffic_go_on_when_zookeeper_restarts(
    trio: Trio, zookeeper: ZooKeeperServer
) -> None:  # H7
    story(stories.the_registry_restarts, trio, zookeeper.restart)
