"""A node's part in rooms: which roles it has, where it is reached, and how it leaves."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from chappe import connect
from chappe.client import Client
from chappe.cluster.options import ClusterOptions, LinkOptions
from chappe.errors import ClusterError, ConfigError, Unreachable
from chappe.node.lifetime import Lifetime
from chappe.node.node import Node
from chappe.node.opening import open_node
from chappe.node.parts import Parts
from chappe.node.relay import Relay
from chappe.registry.memory import MemoryRegistry
from chappe.registry.registry import Registry
from chappe.rooms.options import RoomsOptions
from chappe.store.memory import MemoryStore
from tests.loop import on_loop
from tests.node.running import options_of, running

SECRET = b"a secret that only nodes of these tests know"
LINK = LinkOptions(heartbeat_s=0.3, backoff_first_s=0.02, backoff_max_s=0.1)
PATIENCE_S = 20.0


class SharedStore(MemoryStore):
    """A store that other nodes still use when one is done with it."""

    async def close(self) -> None:
        """Stay open."""


@asynccontextmanager
async def member(
    folder: Path, name: str, registry: MemoryRegistry, store: MemoryStore, *roles: str, **more: Any
) -> AsyncIterator[Any]:
    """A node of a cluster that has these roles; drained at the end unless the test did."""
    thresholds = gc.get_threshold()
    parts = Parts(registry=registry.open(name), secret=SECRET, store=store)
    rooms = RoomsOptions(port=0, beat_s=0.5, **more)
    cluster = ClusterOptions(port=0, link=LINK)
    options = options_of(folder / name, name=name, roles=roles, rooms=rooms, cluster=cluster)
    node = open_node(options, parts)
    await node.start()
    try:
        yield node
    finally:
        if not drained(node):
            await node.drain()
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def drained(node: Lifetime) -> bool:
    return node.hub.draining if isinstance(node, Node) else node._http.draining


def user(node: Node, name: str) -> Any:
    return connect(node.addresses()["websocket"], as_=f"user:{name}")


async def heard(client: Client) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        return (await client.receive()).data


async def published(client: Client, room: str, data: Any) -> None:
    """Publish as soon as a proxy can be reached."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await client.publish(room, data)
                return
            except Unreachable:
                await asyncio.sleep(0.05)


def udp_ports() -> set[str]:
    """The UDP sockets of this process, as the kernel numbers them; others open some meanwhile."""
    lines = Path("/proc/net/udp").read_text().splitlines()[1:]
    own = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            own.add(descriptor.readlink().name)
    return {number for line in lines if f"socket:[{(number := line.split()[9])}]" in own}


@on_loop
async def test_a_node_alone_has_all_roles_and_takes_no_datagrams(tmp_path: Path) -> None:  # R1
    before = udp_ports()
    async with running(tmp_path) as node, user(node, "a") as a, user(node, "b") as b:
        assert "rooms" not in node.addresses()
        assert udp_ports() <= before
        for client in (a, b):
            await client.join("room:42")
        await a.publish("room:42", "hello")
        assert [await heard(a), await heard(b)] == ["hello", "hello"]
        status = await asked(node, "/v1/rooms/status")
        assert {role["role"] for role in status["roles"]} >= {"proxy", "broker", "router"}
        assert status["partitions"] == 1


@on_loop
async def test_a_node_that_is_a_hub_only_serves_no_rooms_and_says_so(tmp_path: Path) -> None:
    async with running(tmp_path, roles=("hub",)) as node, user(node, "a") as a:
        with pytest.raises(Unreachable, match="serves no rooms"):
            await a.join("room:1")
        with pytest.raises(Unreachable, match="serves no rooms"):
            await a.publish("room:1", 1)


@on_loop
async def test_who_is_alone_cannot_leave_roles_to_others(tmp_path: Path) -> None:
    for roles in (("hub", "gateway"), ("broker",)):
        with pytest.raises(ConfigError, match="roles: without a registry"):
            open_node(options_of(tmp_path, roles=roles))
    async with running(tmp_path):
        """The folder is free."""


@on_loop
async def test_nodes_of_a_cluster_share_rooms_by_datagrams(tmp_path: Path) -> None:  # R1, R2
    registry, store = MemoryRegistry(), SharedStore()
    async with (
        member(tmp_path, "one", registry, store) as one,
        member(tmp_path, "two", registry, store) as two,
        user(one, "a") as a,
        user(two, "b") as b,
    ):
        assert one.addresses()["rooms"].startswith("udp://127.0.0.1:")
        assert one.addresses()["rooms"] != two.addresses()["rooms"]
        for client in (a, b):
            await client.join("room:news")
        for sender in (a, b):
            await published(sender, "room:news", sender.address)
            assert [await heard(a), await heard(b)] == [sender.address] * 2
        status = await asked(two, "/v1/rooms/status")
        assert {each["node"] for each in status["brokers"]} == {"one", "two"}


@on_loop
async def test_roles_are_shared_out_among_nodes(tmp_path: Path) -> None:  # R1
    registry, store = MemoryRegistry(), SharedStore()
    async with (
        member(tmp_path, "router", registry, store, "router") as router,
        member(tmp_path, "broker", registry, store, "broker", partition=0),
        member(tmp_path, "proxy", registry, store, "proxy"),
        member(tmp_path, "gateway", registry, store, "hub", "gateway") as gateway,
        member(tmp_path, "hub", registry, store, "hub") as hub,
        user(gateway, "a") as a,
        user(hub, "b") as b,
    ):
        assert isinstance(router, Relay)
        assert set(router.addresses()) == {"http", "rooms"}
        await a.join("room:7")
        # Where no gateway is one may publish, and not be a member.
        await published(b, "room:7", "from elsewhere")
        assert await heard(a) == "from elsewhere"
        with pytest.raises(Unreachable, match="rooms"):
            await b.join("room:7")


@on_loop
async def test_a_node_without_clients_is_watched_over_http_and_not_more(tmp_path: Path) -> None:
    registry, store = MemoryRegistry(), SharedStore()
    async with member(tmp_path, "broker", registry, store, "broker") as relay:
        url = relay.addresses()["http"]
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            for path, status in (("/healthz", 200), ("/readyz", 200), ("/v1/status", 404)):
                assert (await http.get(path)).status_code == status
            metrics = (await http.get("/metrics")).text
            assert "chappe_rooms_partition_num 1.0" in metrics
            assert 'chappe_rooms_seats{role="broker",state="running"} 1.0' in metrics
        # It is no member: links of nodes are for those who have clients.
        assert await anext(registry.open("looks").membership.watch()) == {}


@on_loop
async def test_a_node_refuses_weights_of_whoever_is_not_there(tmp_path: Path) -> None:  # R6
    async with running(tmp_path) as node:
        proxy = (await asked(node, "/v1/rooms/status"))["proxies"][0]["id"]
        url = node.addresses()["http"]
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            for id_, status in ((proxy, 200), (proxy + 1, 400)):
                body = {"as": "user:admin", "proxies": {str(id_): 0.5}}
                answer = await http.put("/v1/rooms/weights", json=body)
                assert answer.status_code == status
        reason = f"proxies: there is no proxy {proxy + 1} (but {proxy})"
        assert answer.json()["reason"] == reason


@pytest.mark.parametrize("roles", [("hub", "gateway"), ("broker",)], ids="-".join)
@on_loop
async def test_a_node_whose_watch_of_the_registry_died_is_not_ready_and_ends(
    tmp_path: Path, roles: tuple[str, ...]
) -> None:
    async def mistaken(found: Any) -> None:
        raise RuntimeError("a mistake")

    # Of which the loop is told, too.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    registry, store = MemoryRegistry(), SharedStore()
    async with member(tmp_path, "node", registry, store, *roles) as node:
        url = node.addresses()["http"]
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            assert (await http.get("/readyz")).status_code == 200
            node.rooming.process.lookout._watches.value("/odd", mistaken)
            async with asyncio.timeout(PATIENCE_S):
                while (answer := await http.get("/readyz")).status_code == 200:
                    await asyncio.sleep(0.01)
            assert answer.status_code == 503
            assert answer.json()["reason"].endswith("restarted: rooms: watching /odd")
            assert (await http.get("/healthz")).status_code == 503
            # Whoever runs it may replace it.
            with pytest.raises(ClusterError, match="rooms: watching /odd has ended"):
                async with asyncio.timeout(PATIENCE_S):
                    await node.run_until(asyncio.Event())


@on_loop
async def test_a_gateway_that_is_drained_says_goodbye(tmp_path: Path) -> None:  # R11
    registry, store = MemoryRegistry(), SharedStore()
    async with (
        member(tmp_path, "stays", registry, store) as stays,
        user(stays, "a") as a,
    ):
        async with member(tmp_path, "goes", registry, store) as goes, user(goes, "b") as b:
            await a.join("room:1")
            await b.join("room:1")
            assert (await a.members("room:1")).members == 2
            await goes.drain()
        async with asyncio.timeout(stays._options.rooms.beat_s):
            while (await a.members("room:1")).members != 1:
                await asyncio.sleep(0.02)
        status = await asked(stays, "/v1/rooms/status")
        assert {each["node"] for each in status["brokers"]} == {"stays"}


@on_loop
async def test_where_a_registry_cannot_agree_a_node_serves_no_rooms(tmp_path: Path) -> None:
    registry = MemoryRegistry()

    def parts() -> Parts:
        known = registry.open("one")
        return Parts(registry=Registry("kubernetes", known.membership, None), secret=SECRET)

    cluster = ClusterOptions(port=0, link=LINK)
    with pytest.raises(ConfigError, match="rooms: kubernetes:// knows members only"):
        Node(options_of(tmp_path, cluster=cluster, roles=("hub", "gateway")), parts=parts())
    thresholds = gc.get_threshold()
    node = Node(options_of(tmp_path, cluster=cluster, number=1), parts=parts())
    await node.start()
    try:
        async with user(node, "a") as a:
            with pytest.raises(Unreachable, match="kubernetes:// knows members only"):
                await a.join("room:1")
    finally:
        await node.drain()
        gc.set_threshold(*thresholds)
        gc.unfreeze()


# A loop that cannot bind a transport forgets to close it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@on_loop
async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    registry, store = MemoryRegistry(), SharedStore()
    async with member(tmp_path, "one", registry, store, "broker") as one:
        port = int(one.addresses()["rooms"].rsplit(":", 1)[1])
        parts = Parts(registry=registry.open("two"), secret=SECRET, store=store)
        rooms = RoomsOptions(port=port)
        two = open_node(options_of(tmp_path / "two", roles=("broker",), rooms=rooms), parts)
        with pytest.raises(ConfigError, match=rf"rooms\.port: .*127\.0\.0\.1:{port}"):
            await two.start()


async def asked(node: Node, path: str) -> Any:
    url = node.addresses()["http"]
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        answer = await http.get(path, params={"as": "user:admin"})
        assert answer.status_code == 200, answer.text
        return answer.json()
