"""A node's place among others: what it remembers, whom it waits for, and how it lets go."""

from __future__ import annotations

import asyncio
import hmac
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from chappe.access.token import Key
from chappe.client import connect
from chappe.cluster.cluster import Traffic
from chappe.cluster.copy import TABLE
from chappe.cluster.options import ClusterOptions, LinkOptions
from chappe.endpoints.presence import PresenceOptions
from chappe.errors import ClusterError, ConfigError, Unreachable
from chappe.node.node import Node
from chappe.node.options import Access
from chappe.node.parts import Parts
from chappe.registry.membership import Member
from chappe.registry.memory import MemoryRegistry
from chappe.registry.options import RegistryOptions
from chappe.registry.registry import Registry
from chappe.store.memory import MemoryStore
from tests.loop import on_loop
from tests.node.running import ROOMS_UNUSED, options_of, running
from tests.servers import free_port

SECRET = b"a secret that only nodes of these tests know"
GRACE = PresenceOptions(grace_s=0.3, takeover_s=1.0)
LINK = LinkOptions(heartbeat_s=0.3, backoff_first_s=0.02, backoff_max_s=0.1)
PATIENCE_S = 20.0
SHORT = RegistryOptions(lease_s=0.5, poll_s=0.3)


@asynccontextmanager
async def member(
    folder: Path, name: str, registry: MemoryRegistry, **changes: Any
) -> AsyncIterator[Node]:
    """A node of a cluster, drained at the end unless the test did."""
    parts = Parts(registry=registry.open(name), secret=SECRET, store=changes.pop("store", None))
    usual = {"name": name, "cluster": ClusterOptions(port=0, link=LINK), "presence": GRACE}
    options = options_of(folder / name, rooms=ROOMS_UNUSED, **(usual | changes))
    node = Node(options, parts=parts)
    await node.start()
    try:
        yield node
    finally:
        if not node.hub.draining:
            await node.drain()


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


async def haunt(registry: MemoryRegistry) -> Registry:
    """A member that nobody can link."""
    ghost = registry.open("ghost")
    url = f"ws://127.0.0.1:{free_port()}"
    await ghost.membership.join(Member(name="ghost", incarnation=1, url=url))
    return ghost


async def keys(store: MemoryStore) -> list[str]:
    """The routes in a store."""
    return [key async for page in store.scan(TABLE) for key, _ in page]


def user(node: Node, name: str):
    return connect(node.addresses()["websocket"], as_=f"user:{name}")


def died(folder: Path) -> Path:
    """What a node that died now would leave behind, in a folder of its own."""
    copied = folder / "died"
    shutil.copytree(folder / "data", copied / "data")
    return copied


@on_loop
async def test_who_was_there_when_a_node_died_and_does_not_come_back_is_gone(tmp_path: Path):  # H10
    async with (
        running(tmp_path, presence=GRACE) as node,
        user(node, "stays"),
        user(node, "goes"),
        user(node, "left") as left,
    ):
        await left.close()
        await until(lambda: node.recorder.users["gone"] == 1)
        await asyncio.sleep(1.1)  # written behind, twice a second
        copied = died(tmp_path)
    # Long enough to come back on a busy machine.
    patient = PresenceOptions(grace_s=3.0, takeover_s=1.0)
    async with running(copied, presence=patient) as again, user(again, "stays"):
        await until(lambda: again.recorder.users["gone"] == 1)
        await asyncio.sleep(GRACE.grace_s)
        # One is back, and one was gone before.
        assert again.recorder.users == {"gone": 1}
        await again.drain()
    # It has gone by a goodbye: its next run looks after who left with it, and nobody else.
    async with running(copied, presence=patient) as third:
        await until(lambda: third.recorder.users["gone"] == 1)
        await asyncio.sleep(GRACE.grace_s)
        assert third.recorder.users == {"gone": 1}


@on_loop
async def test_a_node_that_leaves_others_leaves_its_watch_to_them(tmp_path: Path):  # H10
    registry, store = MemoryRegistry(), MemoryStore()
    async with member(tmp_path, "a", registry) as stays:
        async with member(tmp_path, "b", registry, store=store) as goes:
            client = await user(goes, "u")
            await until(lambda: "user:u" in stays.hub.apps["default"].routes)
            await goes.drain()
        await client.close()
        # Told by it, whichever of them was home.
        await until(lambda: stays.recorder.users["gone"] == 1)
        assert goes.recorder.users["gone"] == 0


@on_loop
async def test_who_leaves_as_a_node_comes_is_told_to_be_gone_by_whoever_is_home(
    tmp_path: Path,
):  # H8
    registry = MemoryRegistry()
    grace = PresenceOptions(grace_s=1.0, takeover_s=1.0)
    async with member(tmp_path, "a", registry, presence=grace) as old:
        clients = [await user(old, f"u{n}") for n in range(12)]
        for client in clients:
            await client.close()
        await until(lambda: len(old.neighbourhood.presence) == 12)
        async with member(tmp_path, "b", registry, presence=grace) as new:
            await until(lambda: len(new.neighbourhood.presence) == 12)
            told = lambda: old.recorder.users["gone"] + new.recorder.users["gone"]  # noqa: E731
            await until(lambda: told() == 12)
            # Each by its home: some of them are at home on the one, some on the other.
            assert old.recorder.users["gone"] not in (0, 12)
            await asyncio.sleep(1.2)
            assert told() == 12


@on_loop
async def test_a_member_that_is_dead_delays_a_start_until_its_lease_is_over(tmp_path: Path):
    registry = MemoryRegistry()
    ghost = await haunt(registry)

    async def end() -> None:
        await asyncio.sleep(SHORT.lease_s)
        await ghost.close()

    ending = asyncio.ensure_future(end())
    began = time.monotonic()
    async with member(tmp_path, "a", registry, leases=SHORT) as node:
        assert SHORT.lease_s <= time.monotonic() - began < SHORT.lease_s + 5
        async with user(node, "u") as client:
            with pytest.raises(Unreachable):
                await client.send("user:nobody", 1)
    await ending


@on_loop
async def test_a_node_that_can_link_nobody_does_not_start_and_says_what_to_check(tmp_path: Path):
    registry = MemoryRegistry()
    ghost = await haunt(registry)
    with pytest.raises(ClusterError, match=r"linked: ghost;.*cluster.secret.*cluster.advertise"):
        async with member(tmp_path, "a", registry, leases=SHORT):
            pass
    # Nothing is held: with the ghost gone it starts, in the same folder.
    await ghost.close()
    async with member(tmp_path, "a", registry, leases=SHORT) as node:
        # Another secret is seen by whoever comes, and by nobody who is there.
        parts = Parts(
            registry=registry.open("b"), secret=b"another secret, as long as it has to be"
        )
        stranger = Node(
            options_of(
                tmp_path / "b", name="b", cluster=ClusterOptions(port=0, link=LINK), leases=SHORT
            ),
            parts=parts,
        )
        with pytest.raises(ClusterError, match="linked: a;"):
            await stranger.start()
        assert not node.failed.done()


@on_loop
async def test_a_node_that_links_some_but_not_all_starts(tmp_path: Path):
    registry = MemoryRegistry()
    async with member(tmp_path, "a", registry) as first:
        ghost = await haunt(registry)
        async with member(tmp_path, "b", registry, leases=SHORT) as second:
            assert [peer.name for peer in second.neighbourhood.cluster.peers] == ["a"]
            assert [peer.name for peer in first.neighbourhood.cluster.peers] == ["b"]
        await ghost.close()


@on_loop
async def test_a_user_that_the_store_says_is_on_a_node_to_come_is_waited_for(
    tmp_path: Path,
):  # H10, H12
    registry, store = MemoryRegistry(), MemoryStore()
    await store.change(TABLE, {"b/default/user:expected": b"", "c/default/user:never": b""})
    slow = LinkOptions(heartbeat_s=2.0, backoff_first_s=0.02, backoff_max_s=0.1)
    cluster = {
        "cluster": ClusterOptions(port=0, link=slow),
        "traffic": Traffic(answer_timeout_s=3.0),
    }
    async with (
        member(tmp_path, "a", registry, store=store, **cluster) as first,
        user(first, "sender") as sender,
    ):
        # Nobody is linked, and others are unreachable at once.
        with pytest.raises(Unreachable):
            await sender.send("user:nobody", 1)
        sending = asyncio.create_task(sender.send("user:expected", "hello"))
        async with (
            member(tmp_path, "b", registry, **cluster) as second,
            user(second, "expected") as receiver,
        ):
            await sending
            assert (await receiver.receive()).data == "hello"


@on_loop
async def test_what_nodes_wrote_that_never_came_is_forgotten(tmp_path: Path):  # H10
    registry, store = MemoryRegistry(), MemoryStore()
    await store.change(TABLE, {"gone/default/user:x": b"", "b/default/user:y": b""})
    # What a node that is there wrote stays, as does what this one writes.
    wanted = {"b/default/user:y", "a/default/user:here"}

    async def forgotten() -> bool:
        return set(await keys(store)) == wanted

    async with (
        member(tmp_path, "b", registry),
        member(tmp_path, "a", registry, store=store) as node,
        user(node, "here"),
    ):
        await until(forgotten)


@on_loop
async def test_ids_tell_nodes_where_something_is_and_others_nothing(tmp_path: Path):  # H2
    registry = MemoryRegistry()
    async with (
        member(tmp_path, "one", registry) as one,
        member(tmp_path, "two", registry) as two,
        user(one, "asks") as asks,
        user(two, "provides") as provides,
    ):
        tags = {
            name: hmac.new(SECRET, name.encode(), "sha256").hexdigest()[:8]
            for name in ("one", "two")
        }
        assert asks.session.partition(".")[2] == tags["one"]
        assert provides.session.partition(".")[2] == tags["two"]
        # Services that live here and there: answers find their way back.
        for n in range(8):
            await provides.provide(f"service:{n}", lambda data: data + 1)
            assert await asks.request(f"service:{n}", n) == n + 1


@pytest.mark.parametrize(
    ("dev", "metrics", "told"), [(False, False, False), (False, True, True), (True, False, True)]
)
@on_loop
async def test_the_open_metrics_tell_of_a_cluster_only_if_they_may(
    tmp_path: Path, dev: bool, metrics: bool, told: bool
):
    cluster = ClusterOptions(port=0, link=LINK, metrics=metrics)
    key = tmp_path / "key"
    key.write_text("k" * 64)
    access = Access(keys=[Key(id="k", file=str(key))])
    registry = MemoryRegistry()
    async with (
        member(tmp_path, "n", registry, dev=dev, cluster=cluster, access=access) as node,
        httpx.AsyncClient(base_url=node.addresses()["http"]) as http,
    ):
        page = (await http.get("/metrics")).text
    assert "chappe_sessions" in page
    assert ("chappe_links" in page) is told


@on_loop
async def test_a_node_alone_has_no_tag(tmp_path: Path):
    async with running(tmp_path) as node, user(node, "alice") as alice:
        assert "." not in alice.session


@on_loop
async def test_a_node_whose_name_another_run_takes_says_so(tmp_path: Path):  # H7
    registry = MemoryRegistry(RegistryOptions(lease_s=0.5, poll_s=0.1, timeout_s=0.2))
    async with member(tmp_path, "a", registry) as node:
        other = registry.open("other")
        later = Member(name="a", incarnation=2**53, url="ws://127.0.0.1:1")
        await other.membership.join(later)
        async with asyncio.timeout(PATIENCE_S):
            error = await asyncio.shield(node.failed)
        assert isinstance(error, ClusterError)
        assert "another node has become a" in str(error)
        await other.close()


@on_loop
async def test_a_registry_that_does_not_answer_is_an_error_and_nothing_is_held(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("x" * 40)
    options = {
        "registry": f"redis://127.0.0.1:{free_port()}",
        "leases": RegistryOptions(timeout_s=0.5),
        "cluster": ClusterOptions(port=0, secret=str(secret)),
    }
    with pytest.raises(ClusterError, match=r"redis://127\.0\.0\.1"):
        await Node(options_of(tmp_path, **options)).start()
    # Its folder is free again.
    async with running(tmp_path):
        pass


def test_a_cluster_without_a_secret_is_refused(tmp_path: Path):  # H6
    with pytest.raises(ConfigError, match=r"cluster\.secret"):
        options_of(tmp_path, registry="redis://127.0.0.1")


@on_loop
async def test_two_live_nodes_of_one_name_are_not_both_let_in(tmp_path: Path):  # H7
    registry = MemoryRegistry()
    async with member(tmp_path, "a", registry):
        late = registry.open("late")
        with pytest.raises(ClusterError):
            await late.membership.join(Member(name="a", incarnation=1, url="ws://127.0.0.1:1"))
        await late.close()
