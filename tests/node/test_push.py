"""A node's part in push: who it shares it with, and what it believes of comets out of its sight."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from chappe.clock import SystemClock
from chappe.cluster.options import ClusterOptions, LinkOptions
from chappe.errors import ConfigError
from chappe.ids import PrefixedIds
from chappe.node.opening import open_node
from chappe.node.options import PushOptions
from chappe.node.parts import Parts
from chappe.node.pushnode import PushNode
from chappe.push.state.states import States
from chappe.push.state.url import open_states
from chappe.registry.memory import MemoryRegistry
from tests.loop import on_loop
from tests.node.running import options_of
from tests.servers import RedisServer

SECRET = b"a secret that only nodes of these tests know"
LINK = LinkOptions(heartbeat_s=0.3, backoff_first_s=0.02, backoff_max_s=0.1)
PUSH = PushOptions(port=0, sweep_s=0.1, gone_s=0.5)
PATIENCE_S = 20.0
_prefixes = count(1)


class Street:
    """Nodes of push that have a registry and a Redis in common."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self._folder = folder
        self.store = f"{redis.url}?prefix=street{next(_prefixes)}"
        self.registry = MemoryRegistry()

    @asynccontextmanager
    async def node(self, name: str, *roles: str, **changes: Any) -> AsyncIterator[PushNode]:
        thresholds = gc.get_threshold()
        parts = Parts(registry=self.registry.open(name), secret=SECRET)
        usual = {"store": self.store, "push": PUSH, "cluster": ClusterOptions(port=0, link=LINK)}
        options = options_of(self._folder / name, name=name, roles=roles, **(usual | changes))
        node = open_node(options, parts)
        assert isinstance(node, PushNode)
        await node.start()
        try:
            yield node
        finally:
            await node.drain()
            gc.set_threshold(*thresholds)
            gc.unfreeze()

    @asynccontextmanager
    async def states(self) -> AsyncIterator[States]:
        """What all of them know."""
        states = open_states(self.store, self._folder, SystemClock().wall_ms)
        try:
            yield states
        finally:
            await states.close()


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.02)


CLIENT = PrefixedIds(9, SystemClock().wall_ms).next("c")


@on_loop
async def test_who_was_on_a_comet_that_is_gone_is_nowhere(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    street = Street(tmp_path, redis_server)
    async with street.node("a", "admin"), street.states() as states:
        await states.route.move({CLIENT: 77})

        async def cleared() -> bool:
            return not await states.route.find([CLIENT])

        await until(cleared)


@on_loop
async def test_an_admin_that_reaches_no_comet_takes_none_for_gone(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    street = Street(tmp_path, redis_server)
    # It sees the others in the registry, and no link to them comes up.
    apart = ClusterOptions(port=0, link=LINK, cluster="elsewhere")
    async with street.node("a", "admin", cluster=apart), street.states() as states:
        async with street.node("c", "comet"):
            await states.route.move({CLIENT: 77})
            await asyncio.sleep(4 * PUSH.gone_s)
            assert await states.route.find([CLIENT]) == {CLIENT: 77}

        async def cleared() -> bool:
            return not await states.route.find([CLIENT])

        # Now it has the registry's word that nobody is there.
        await until(cleared)


@on_loop
async def test_each_role_is_reached_where_it_says(
    tmp_path: Path, redis_server: RedisServer
) -> None:  # P1
    street = Street(tmp_path, redis_server)
    async with street.node("a", "admin") as admin, street.node("c", "comet") as comet:
        assert admin.addresses().keys() == {"http"}
        assert comet.addresses().keys() == {"http", "comet"}
        assert admin.pushing.desk() is not None
        assert comet.pushing.desk() is None


@pytest.mark.parametrize("roles", [("comet",), ("web",), ("admin",), ("comet", "admin")])
@on_loop
async def test_states_of_ones_own_are_none_for_several(
    tmp_path: Path, roles: tuple[str, ...]
) -> None:
    parts = Parts(registry=MemoryRegistry().open("n"), secret=SECRET)
    with pytest.raises(ConfigError, match=r"push\.states: other nodes do not see this one's meta"):
        open_node(options_of(tmp_path, name="n", roles=roles), parts)


@pytest.mark.parametrize(
    ("roles", "missing"),
    [(("comet",), "web"), (("web", "admin"), "comet"), (("hub", "comet"), "web")],
)
@on_loop
async def test_without_a_registry_there_is_nobody_to_share_with(
    tmp_path: Path, roles: tuple[str, ...], missing: str
) -> None:
    with pytest.raises(ConfigError, match=f"nobody else could be {missing}"):
        open_node(options_of(tmp_path, roles=roles))
