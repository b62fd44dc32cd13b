"""The mesh: one link per pair, whatever happens (H6)."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import msgspec
import pytest

from chappe.cluster.mesh import open_stream
from chappe.errors import ClusterError, ConfigError
from chappe.registry.membership import Member, Members
from chappe.registry.memory import MemoryRegistry
from tests.cluster.intruder import Intruder
from tests.cluster.meshes import (
    QUICK,
    Board,
    BoardMembership,
    Peer,
    all_linked,
    make_peer,
    started,
)
from tests.loop import on_loop


@on_loop
async def test_three_nodes_of_a_registry_link_and_each_hears_each():
    registry = MemoryRegistry()
    handles = [registry.open(name) for name in "abc"]
    peers = [
        make_peer(name, Board(), membership=handle.membership)
        for name, handle in zip("abc", handles, strict=True)
    ]
    async with started(*peers):
        await all_linked(*peers)
        for peer in peers:
            for name, link in peer.links.items():
                link.write(f"{peer.name} to {name}".encode())
        for peer, other in itertools.permutations(peers, 2):
            await peer.witness.until(
                lambda peer=peer, other=other: (
                    peer.witness.bodies.get(other.name) == [f"{other.name} to {peer.name}".encode()]
                )
            )
    for handle in handles:
        await handle.close()


@on_loop
async def test_the_smaller_name_dials():
    board = Board()
    a, b = make_peer("a", board), make_peer("b", board)
    async with started(b), started(a):
        await all_linked(a, b)
        assert a.links["b"].dialled
        assert not b.links["a"].dialled


@on_loop
async def test_seven_nodes_that_join_at_once_have_one_link_per_pair():
    board = Board()
    peers = [make_peer(name, board) for name in "abcdefg"]
    async with started(*peers):
        await all_linked(*peers)
        assert sum(peer.mesh.counters.opened for peer in peers) == 7 * 6
        for peer in peers:
            assert not peer.mesh.counters.resets
            assert not peer.mesh.counters.refused
    for peer in peers:
        assert not peer.links
        assert len(peer.witness.downs) == peer.witness.ups == 6


@pytest.mark.parametrize(
    "wrong", [{"secret": b"another secret, as long as it has to be"}, {"cluster": "other"}]
)
def test_a_node_of_another_cluster_gets_no_link_and_disturbs_nobody(wrong: dict[str, Any]):
    @on_loop
    async def run() -> None:
        board = Board()
        a, b, d = (make_peer(name, board) for name in "abd")
        c = make_peer("c", board, **wrong)
        async with started(a, b, c, d):
            await a.linked_to("b", "d")
            await b.linked_to("a", "d")
            async with asyncio.timeout(10):
                # a and b dial c, c dials d: each of the two sides refuses.
                while not (c.mesh.counters.refused["secret"] and d.mesh.counters.auth_failures):
                    await asyncio.sleep(0.01)
            assert not c.witness.ups
            assert not a.witness.downs
            assert d.witness.ups == 2

    run()


@on_loop
async def test_a_node_that_leaves_says_goodbye_and_is_not_dialled_again():
    board = Board()
    a, b = make_peer("a", board), make_peer("b", board)
    async with started(a):
        async with started(b):
            await all_linked(a, b)
        await a.linked_to()
        assert a.witness.downs == [("b", "goodbye")]
        assert b.witness.downs == [("a", "stopped")]
        assert not a.mesh._diallers


async def crash(peer: Peer) -> None:
    """End a node without a word to the registry."""
    peer.mesh._membership = BoardMembership(Board())
    await peer.mesh.stop()


@on_loop
async def test_a_node_that_comes_back_is_linked_in_its_new_run():
    board = Board()
    a, b, c = (make_peer(name, board) for name in "abc")
    async with started(a, b, c):
        await all_linked(a, b, c)
        await crash(b)
        await a.linked_to("c")
        again = make_peer("b", board, incarnation=2)
        async with started(again):
            await all_linked(a, again, c)
            assert a.links["b"].incarnation == c.links["b"].incarnation == 2


@on_loop
async def test_a_new_run_replaces_a_link_to_the_old_one_that_still_stands():
    board = Board()
    a, c = make_peer("a", board), make_peer("c", board)
    old, new = make_peer("b", board), make_peer("b", board, incarnation=2)
    async with started(a, c, old):
        await all_linked(a, old, c)
        async with started(new):
            await all_linked(a, new, c)
            await new.linked_to("a", "c")
            await old.linked_to()
            # a dialled the new run because the registry said so; c was dialled by it.
            assert ("b", "replaced") in a.witness.downs
            assert ("b", "replaced") in c.witness.downs
            assert a.links["b"].incarnation == c.links["b"].incarnation == 2
            # The old run goes on dialling c, and does not get in.
            async with asyncio.timeout(10):
                while not c.mesh.counters.refused["stale"]:
                    await asyncio.sleep(0.01)
            assert c.links["b"].incarnation == 2
            assert c.witness.ups == 3


@on_loop
async def test_of_two_links_from_one_run_the_later_stays_whichever_comes_up_last():
    b = make_peer("b", Board())
    async with started(b):
        late = await Intruder.prove(b.port, "a", attempt=1)
        first = await Intruder.prove(b.port, "a", attempt=2)
        first.come_up()
        await b.linked_to("a")
        second = await Intruder.prove(b.port, "a", attempt=3)
        second.come_up()
        await b.witness.until(lambda: b.witness.ups == 2)
        assert b.witness.downs == [("a", "replaced")]
        await first.hung_up()
        late.come_up()
        assert b"older link" in await late.hung_up()
        assert b.links["a"].attempt == 3
        assert b.witness.ups == 2
        second.writer.close()


@on_loop
async def test_who_should_be_dialled_may_not_dial():
    a = make_peer("a", Board())
    async with started(a):
        peer = await Intruder.prove(a.port, "b")
        peer.come_up()
        assert b"the smaller name dials" in await peer.hung_up()
        assert not a.witness.ups


@on_loop
async def test_a_member_that_vanished_keeps_its_link_but_is_not_dialled_again():
    board = Board()
    a, b = make_peer("a", board), make_peer("b", board)
    async with started(a, b):
        await all_linked(a, b)
        member = board.members["b"]
        board.drop("b")
        a.links["b"].write(b"still there?")
        await b.witness.until(lambda: b.witness.bodies.get("a") == [b"still there?"])
        assert not a.witness.downs
        a.links["b"].reset("test")
        # Longer than any backoff: it would have been dialled by now.
        await asyncio.sleep(2 * QUICK.backoff_max_s)
        assert not a.links
        board.put(member)
        await all_linked(a, b)


class FailingWatch(BoardMembership):
    """A registry whose watch breaks after the first view."""

    breaks = 1

    async def watch(self) -> AsyncIterator[Members]:  # type: ignore[override]
        async for view in super().watch():
            yield view
            if self.breaks:
                self.breaks -= 1
                raise ClusterError("the registry is gone")


@on_loop
async def test_a_registry_that_fails_cuts_no_link_and_is_asked_again():
    board = Board()
    b = make_peer("b", board)
    a = make_peer("a", board, membership=FailingWatch(board))
    c = make_peer("c", board)
    async with started(b), started(a):
        await all_linked(a, b)
        async with started(c):
            await all_linked(a, b, c)
            assert not a.witness.downs


def test_a_mesh_whose_registry_refuses_it_does_not_listen():
    class Refusing(BoardMembership):
        async def join(self, member: Member) -> None:
            raise ClusterError("the name is held")

    @on_loop
    async def run() -> None:
        board = Board()
        peer = make_peer("a", board, membership=Refusing(board))
        with pytest.raises(ClusterError, match="held"):
            await peer.mesh.start()
        with pytest.raises(ConnectionRefusedError):
            await Intruder.connect(peer.port)

    run()


@on_loop
async def test_nodes_that_know_only_addresses_find_out_who_is_who_and_never_dial_themselves():
    # As headless services of Kubernetes give them: no name, no incarnation, itself among them (H7).
    board = Board()
    loop = asyncio.get_running_loop()
    dials: Counter[tuple[str, int]] = Counter()

    def counting(name: str) -> Any:
        async def dial(factory: Any, host: str, port: int, *rest: Any) -> object:
            dials[name, port] += 1
            return await open_stream(loop)(factory, host, port, *rest)

        return dial

    peers = [make_peer(name, board, joins=False, dial=counting(name)) for name in "abcd"]
    async with started(*peers):
        for peer in peers:
            # Another spelling, so that it cannot know its own address by looking.
            board.put(
                Member(name=f"ip-{peer.port}", incarnation=0, url=f"ws://localhost:{peer.port}")
            )
        await all_linked(*peers)
        # Longer than any backoff: whoever dials again without a need has done so.
        await asyncio.sleep(3 * QUICK.backoff_max_s)
        for peer in peers:
            assert peer.witness.ups == 3
            assert not peer.witness.downs
            assert dials[peer.name, peer.port] == 1
            assert peer.mesh.counters.refused["itself"] == 2  # both ends
        before = dials.copy()
        await asyncio.sleep(3 * QUICK.backoff_max_s)
        assert dials == before
        # A link that is lost is made again, by the one whose it is to dial.
        peers[2].links["b"].reset("test")
        await peers[2].witness.until(lambda: peers[2].witness.ups == 4)
        await all_linked(*peers)
        assert peers[1].links["c"].dialled


@on_loop
async def test_one_node_at_two_addresses_gets_one_link():
    board = Board()
    a, b = (make_peer(name, board, joins=False) for name in "ab")
    async with started(a, b):
        for host in ("127.0.0.1", "localhost"):
            board.put(Member(name=host, incarnation=0, url=f"ws://{host}:{b.port}"))
        await all_linked(a, b)
        await asyncio.sleep(3 * QUICK.backoff_max_s)
        assert (a.witness.ups, b.witness.ups) == (1, 1)


@on_loop
async def test_a_member_whose_url_makes_no_sense_is_logged_and_disturbs_nobody():
    board = Board()
    a, b = make_peer("a", board), make_peer("b", board)
    for number, url in enumerate(
        ["", "http://x:1", "ws://x", "ws://x:port", "ws://[::1", "ws://:1"]
    ):
        board.put(Member(name=f"odd{number}", incarnation=1, url=url))
    async with started(a, b):
        await a.linked_to("b")
        await b.linked_to("a")


@on_loop
async def test_the_url_that_others_dial_has_the_real_port():
    board = Board()
    a = make_peer("a", board)
    me = Member(name="b", incarnation=1, url="ws://localhost:0")
    b = make_peer("b", board, me=me)
    async with started(a, b):
        assert board.members["a"].url == f"ws://127.0.0.1:{a.port}"
        assert board.members["b"].url == f"ws://localhost:{b.port}"
        assert b.port
        await all_linked(a, b)


@pytest.mark.parametrize(
    ("member", "field"),
    [
        (Member(name="", incarnation=1, url=""), "name"),
        (Member(name="x" * 256, incarnation=1, url=""), "name"),
        (Member(name="a\nb", incarnation=1, url=""), "name"),
        (Member(name="a", incarnation=0, url=""), "incarnation"),
    ],
)
def test_a_node_without_a_proper_name_or_run_is_refused(member: Member, field: str):
    @on_loop
    async def run() -> None:
        with pytest.raises(ConfigError, match=rf"cluster\.{field}"):
            make_peer("a", Board(), me=member)

    run()


def test_a_short_secret_is_refused():
    @on_loop
    async def run() -> None:
        with pytest.raises(ConfigError, match=r"cluster\.secret"):
            make_peer("a", Board(), secret=b"short")

    run()


class Longest(Random):
    """Draws the longest of all waits."""

    def uniform(self, a: float, b: float) -> float:
        return b


@on_loop
async def test_a_link_that_never_holds_is_dialled_ever_more_seldom():
    board = Board()
    loop = asyncio.get_running_loop()
    options = msgspec.structs.replace(QUICK, backoff_first_s=0.1, backoff_max_s=10.0)
    a, b = make_peer("a", board, link=options, rng=Longest()), make_peer("b", board)
    b.witness.on_up = lambda link: loop.call_soon(link.reset, "full")
    began = loop.time()
    async with started(a, b):
        await a.witness.until(lambda: a.witness.ups == 4)
        assert loop.time() - began >= 0.1 + 0.2 + 0.4


@on_loop
async def test_an_older_run_than_the_registry_knows_is_not_linked():
    board = Board()
    a = make_peer("a", board)
    b = make_peer("b", board, joins=False)
    async with started(a, b):
        board.put(msgspec.structs.replace(b.mesh.me, incarnation=5))
        async with asyncio.timeout(10):
            while not a.mesh.counters.refused["stale"]:
                await asyncio.sleep(0.01)
        assert not a.witness.ups
        assert not b.witness.ups
        board.put(b.mesh.me)
        await all_linked(a, b)
