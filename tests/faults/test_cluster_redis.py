"""Three real nodes on a private Redis: killed, stopped, woken; and the Redis restarted empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import RedisServer

from . import stories
from .appserver import AppServer
from .trio import Trio, story

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One of its own: it is ill-treated here."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


@pytest.fixture(scope="module")
def trio(
    tmp_path_factory: pytest.TempPathFactory, redis: RedisServer, app_server: AppServer
) -> Iterator[Trio]:
    trio = Trio(tmp_path_factory.mktemp("trio"), redis.url, app_server.config)
    yield trio
    trio.stop()


def test_users_of_a_killed_node_are_offline_at_once_and_gone_in_time(
    trio: Trio, app_server: AppServer
) -> None:  # H4, H9, H16
    story(stories.a_node_is_killed, trio, app_server)


def test_a_node_that_slept_longer_than_its_lease_comes_back(trio: Trio) -> None:  # H11, H12
    story(stories.a_node_sleeps, trio)


def test_links_and_traffic_go_on_when_redis_restarts_empty(
    trio: Trio, redis: RedisServer
) -> None:  # H7
    story(stories.the_registry_restarts, trio, lambda: redis.restart(empty=True))


def test_who_does_not_come_back_after_all_nodes_died_is_gone(
    trio: Trio, app_server: AppServer
) -> None:  # H10
    story(stories.a_node_forgets_nobody, trio, app_server)
