"""Three real nodes on a private registry: killed, stopped, woken; and the registry restarted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import RedisServer, ZooKeeperServer

from . import stories
from .appserver import AppServer
from .figures import FULL
from .trio import Trio, story

pytestmark = pytest.mark.timeout(200)

Server = RedisServer | ZooKeeperServer
# What nodes find out of each other by their links: in full with each registry.
MOSTLY_LINKS = {"redis": RedisServer} | ({"zookeeper": ZooKeeperServer} if FULL else {})


@pytest.fixture(scope="module", params=[RedisServer, ZooKeeperServer], ids=["redis", "zookeeper"])
def registry(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """One of its own: it is ill-treated here."""
    server: Server = request.param(tmp_path_factory.mktemp("registry"))
    yield server
    server.kill()


@pytest.fixture(scope="module")
def trio(
    tmp_path_factory: pytest.TempPathFactory, registry: Server, app_server: AppServer
) -> Iterator[Trio]:
    trio = Trio(tmp_path_factory.mktemp("trio"), registry.url, app_server.config)
    yield trio
    trio.stop()


def restart(registry: Server) -> None:
    """Restart it; a Redis has forgotten everything then."""
    if isinstance(registry, RedisServer):
        registry.restart(empty=True)
    else:
        registry.restart()


@pytest.mark.parametrize(
    "registry", MOSTLY_LINKS.values(), ids=MOSTLY_LINKS, indirect=True, scope="module"
)
def test_users_of_a_killed_node_are_offline_at_once_and_gone_in_time(
    trio: Trio, app_server: AppServer
) -> None:  # H4, H9, H16
    story(stories.a_node_is_killed, trio, app_server)


def test_a_node_that_slept_longer_than_its_lease_comes_back(trio: Trio) -> None:  # H11, H12
    story(stories.a_node_sleeps, trio)


def test_links_and_traffic_go_on_when_the_registry_restarts(
    trio: Trio, registry: Server
) -> None:  # H7
    story(stories.the_registry_restarts, trio, lambda: restart(registry))


# Once is enough: users are remembered in the folders of the nodes, whichever the registry is.
@pytest.mark.parametrize("registry", [RedisServer], ids=["redis"], indirect=True, scope="module")
def test_who_does_not_come_back_after_all_nodes_died_is_gone(
    trio: Trio, app_server: AppServer
) -> None:  # H10
    story(stories.a_node_forgets_nobody, trio, app_server)
