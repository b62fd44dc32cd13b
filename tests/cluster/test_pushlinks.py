"""Links of push: processes of it over a mesh of their own, in seats of the registry (P1)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import msgspec
import pytest

from chappe.clock import SystemClock
from chappe.cluster import pushlinks
from chappe.cluster.mesh import Mesh, open_stream
from chappe.cluster.options import ClusterOptions
from chappe.cluster.pushlinks import PushLinks
from chappe.cluster.seated import SeatedMembership
from chappe.edge.acceptor import AcceptCounters, Acceptor
from chappe.errors import ClusterError, Overload, Unreachable
from chappe.push.comets import CometCard, Handed
from chappe.push.note import Note
from chappe.registry.coordination import Coordination
from chappe.registry.membership import Member
from chappe.registry.memory import MemoryRegistry
from chappe.registry.options import RegistryOptions
from chappe.wire.pushlink import (
    Close,
    Deliver,
    Delivered,
    Look,
    Present,
    PushOp,
    Subscribed,
    Why,
    Withdraw,
    decode_push_ops,
    encode_push_ops,
)
from tests.cluster.meshes import QUICK, SECRET
from tests.loop import on_loop

NOTE = Note("p1", "j1", "app", 7, 1, 2, b"\x00\xff", collapse="k", user="ann", once=True)


class Desk:
    """A comet that keeps what it is asked, and has the clients that it was given."""

    def __init__(self, *clients: str) -> None:
        self.clients = set(clients)
        self.asked: list[tuple[Note, str]] = []
        self.told: list[Close | Withdraw | Subscribed] = []
        self.looks = 0
        self.full = False
        self.news = asyncio.Event()

    def deliver(self, note: Note, clients: list[str], came_from: str = "") -> Handed:
        if self.full:
            raise Overload("full")
        self.asked.append((note, came_from))
        here = self.clients & set(clients)
        return Handed(len(here), tuple(sorted(set(clients) - here)))

    def broadcast(self, note: Note, came_from: str = "") -> Handed:
        self.asked.append((note, came_from))
        return Handed(len(self.clients))

    def close(self, op: Close) -> None:
        self._tell(op)

    def withdraw(self, op: Withdraw) -> None:
        self._tell(op)

    def subscribed(self, op: Subscribed) -> None:
        self._tell(op)

    def look(self) -> None:
        self.looks += 1

    def _tell(self, op: Close | Withdraw | Subscribed) -> None:
        self.told.append(op)
        self.news.set()


class Town:
    """Processes of push, each with its own view of one registry."""

    def __init__(self) -> None:
        self.registry = MemoryRegistry(RegistryOptions(lease_s=3.0, poll_s=0.1))

    def coordination(self, name: str) -> Coordination:
        found = self.registry.open(name).coordination
        assert found is not None
        return found

    @asynccontextmanager
    async def process(
        self,
        name: str,
        server: int,
        desk: Desk | None = None,
        *,
        sends: bool = True,
        cluster: str = "chappe/push",
    ) -> AsyncIterator[PushLinks]:
        loop = asyncio.get_running_loop()
        links = PushLinks(loop, server, name, sends=sends)
        if desk is not None:
            links.open(desk, f"tcp://{name}:7405")
        mesh = Mesh(
            loop=loop,
            clock=SystemClock(),
            me=Member(name=name, incarnation=1, url=""),
            secret=SECRET,
            membership=SeatedMembership(self.coordination(name), "/push/processes", 3.0),
            owner=links,
            dial=open_stream(loop),
            listen=lambda factory, host, port, tls: Acceptor(
                loop, factory, host, port, tls, AcceptCounters()
            ),
            entropy=os.urandom,
            rng=Random(),
            options=ClusterOptions(cluster=cluster, port=0, link=QUICK),
        )
        await links.link(mesh)
        try:
            yield links
        finally:
            await links.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens between two meshes, which nobody else is told."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


@on_loop
async def test_every_process_knows_the_comets_that_live_and_who_is_none_is_not_among_them():
    town = Town()
    async with town.process("admin", 1) as admin, town.process("b", 2, Desk()) as b:
        async with town.process("c", 3, Desk()) as c:
            wanted = {2: CometCard(2, "b", "tcp://b:7405"), 3: CometCard(3, "c", "tcp://c:7405")}
            for links in (admin, b, c):
                await until(lambda links=links: links.living() == wanted)
        # One that has gone is forgotten by all.
        await until(lambda: admin.living().keys() == b.living().keys() == {2})


@on_loop
async def test_a_note_is_handed_over_whole_wherever_its_comet_is_and_who_is_absent_is_told():
    town, here, there = Town(), Desk("c1"), Desk("c2")
    async with town.process("a", 1, here) as a, town.process("b", 2, there):
        await until(lambda: len(a.living()) == 2)
        assert await a.deliver(1, NOTE, ["c1", "c9"]) == Handed(1, ("c9",))
        assert await a.deliver(2, NOTE, ["c1", "c2"]) == Handed(1, ("c1",))
        assert await a.broadcast(2, NOTE) == Handed(1)
        assert here.asked == [(NOTE, "")]
        assert there.asked == [(NOTE, "a")] * 2


@on_loop
async def test_what_comets_are_told_arrives_in_order():
    town, desk = Town(), Desk()
    ops = [
        Close("c1", Why.REPLACED, 5),
        Close("c2", Why.REVOKED, 0, b"digest"),
        Withdraw("app", "p1", ["c1"], "news"),
        Subscribed("app", "c3"),
    ]
    async with town.process("a", 1) as a, town.process("b", 2, desk):
        await until(lambda: bool(a.living()))
        for op in ops:
            a.tell(2, op)
        await until(lambda: len(desk.told) == len(ops))
        assert desk.told == ops
        # Nobody is there: nothing happens.
        a.tell(9, ops[0])


@on_loop
async def test_a_comet_that_is_not_there_is_unreachable_and_one_that_is_full_hands_over_nothing():
    town, desk = Town(), Desk("c1")
    async with town.process("a", 1) as a, town.process("b", 2, desk):
        await until(lambda: bool(a.living()))
        with pytest.raises(Unreachable, match="comet 9"):
            await a.deliver(9, NOTE, ["c1"])
        desk.full = True
        assert await a.deliver(2, NOTE, ["c1"]) == Handed(0)


@on_loop
async def test_whoever_waits_for_an_answer_learns_that_the_link_broke():
    town = Town()
    async with town.process("a", 1) as a:
        async with town.process("b", 2, Desk()) as b:
            await until(lambda: bool(a.living()))
            b._desk = None  # so that it answers nothing
            asked = asyncio.create_task(a.deliver(2, NOTE, ["c1"]))
            await asyncio.sleep(0)
        with pytest.raises(Unreachable, match="link broke"):
            await asked


@on_loop
async def test_an_answer_that_does_not_come_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(pushlinks, "ANSWER_S", 0.05)
    town = Town()
    async with town.process("a", 1) as a, town.process("b", 2, Desk()) as b:
        await until(lambda: bool(a.living()))
        b._desk = None
        with pytest.raises(Overload, match="no answer in time"):
            await a.deliver(2, NOTE, ["c1"])


@on_loop
async def test_what_waits_for_a_comet_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pushlinks, "WAITING_BYTES_MAX", 300)
    town = Town()
    async with town.process("a", 1) as a, town.process("b", 2, Desk("c1")):
        await until(lambda: bool(a.living()))
        asked = [asyncio.create_task(a.deliver(2, NOTE, ["c1"])) for _ in range(20)]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Handed, Overload}


@on_loop
async def test_a_comet_looks_for_what_was_sent_before_and_when_whoever_sends_is_gone():  # P7
    town, desk = Town(), Desk("c1")
    async with town.process("b", 2, desk):
        async with town.process("a", 1) as admin:
            with pytest.raises(Unreachable):
                await admin.deliver(2, NOTE, ["c1"])
            await until(lambda: 2 in admin.living())
            await until(lambda: desk.looks == 1)
        # What it sent last may not have come.
        await until(lambda: desk.looks == 2)
        # Who sends nothing leaves nothing behind.
        async with town.process("c", 3, Desk(), sends=False) as comet:
            await until(lambda: 2 in comet.living())
            await comet.deliver(2, NOTE, ["c1"])
        assert desk.looks == 2


@on_loop
async def test_a_comet_learns_that_something_was_refused_when_it_takes_more(
    monkeypatch: pytest.MonkeyPatch,
):
    town, desk = Town(), Desk("c1")
    async with town.process("a", 1) as admin, town.process("b", 2, desk):
        await until(lambda: 2 in admin.living() and desk.looks == 1)
        monkeypatch.setattr(pushlinks, "ASKED_MAX", 1)
        first = asyncio.create_task(admin.deliver(2, NOTE, ["c1"]))
        await asyncio.sleep(0)
        with pytest.raises(Overload):
            await admin.deliver(2, NOTE, ["c1"])
        assert await first == Handed(1)
        await until(lambda: desk.looks == 2)


class Wire:
    """A link that keeps what is written; it takes nothing while it is paused."""

    name = "b"

    def __init__(self, body_bytes_max: int = 16 * 1024 * 1024) -> None:
        self.body_bytes_max = body_bytes_max
        self.paused = False
        self.frames: list[bytes] = []
        self.ended = ""

    def write(self, body: bytes) -> None:
        if len(body) > self.body_bytes_max:
            raise ValueError("body: does not fit")
        self.frames.append(body)

    def reset(self, reason: str) -> None:
        self.ended = reason

    def ops(self) -> list[PushOp]:
        return [op for frame in self.frames for op in decode_push_ops(frame)]


async def wired(desk: Desk | None = None, **bounds: int) -> tuple[PushLinks, Wire]:
    """Links to one other comet, number 2, that was told what it is told at first."""
    links, wire = PushLinks(asyncio.get_running_loop(), 1, "a"), Wire(**bounds)
    if desk is not None:
        links.open(desk, "")
    links.link_up(wire)  # type: ignore[arg-type]
    links.received(wire, [encode_push_ops([Present(2, "tcp://b:1", True)])])  # type: ignore[arg-type]
    await asyncio.sleep(0)
    wire.frames.clear()
    return links, wire


CLIENTS = [f"c{number:015}" for number in range(1000)]


@on_loop
async def test_frames_are_no_larger_than_links_take_whatever_is_in_them():
    links, wire = await wired(body_bytes_max=100_000)
    wire.paused = True
    told = [Withdraw("app", f"p{number}", CLIENTS, "日" * 200) for number in range(100)]
    for op in told:
        links.tell(2, op)
    wire.paused = False
    links.writable(wire)  # type: ignore[arg-type]
    assert wire.ops() == told
    assert all(len(frame) <= 100_000 for frame in wire.frames)
    assert not wire.ended


@on_loop
async def test_answers_that_name_many_are_split_as_well():
    links, wire = await wired(Desk(), body_bytes_max=100_000)
    asked = [Deliver(number, msgspec.msgpack.encode(NOTE), CLIENTS) for number in range(100)]
    links.received(wire, [encode_push_ops(asked)])  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert wire.ops() == [Delivered(number, 0, CLIENTS) for number in range(100)]
    assert all(len(frame) <= 100_000 for frame in wire.frames)


@on_loop
async def test_words_that_find_no_room_are_refused_and_the_comet_is_told_to_look():
    links, wire = await wired()
    wire.paused = True
    for _ in range(5000):
        links.tell(2, Withdraw("app", "p1", CLIENTS))
    line = links._by_server[2]
    assert line.size <= 1.5 * pushlinks.WAITING_BYTES_MAX
    wire.paused = False
    links.writable(wire)  # type: ignore[arg-type]
    await asyncio.sleep(0)
    *told, last = wire.ops()
    assert last == Look()
    assert 0 < len(told) < 5000
    assert sum(map(len, wire.frames)) <= 1.5 * pushlinks.WAITING_BYTES_MAX


@on_loop
async def test_what_no_frame_holds_is_refused_and_disturbs_nobody():
    links, wire = await wired(body_bytes_max=1000)
    word = Subscribed("app", "c1")
    links.tell(2, Withdraw("app", "p1", CLIENTS))
    links.tell(2, word)
    with pytest.raises(Overload):
        await links.deliver(2, NOTE, CLIENTS)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    # The comet looks: once for the first, as soon as it can be told, and once for the last.
    assert wire.ops() == [Look(), word, Look()]
    assert not wire.ended


@on_loop
async def test_whoever_cannot_reach_one_that_the_registry_knows_does_not_see_all():
    town = Town()
    async with town.process("a", 1) as admin, town.process("b", 2, Desk()):
        await until(lambda: 2 in admin.living())
        assert admin.complete
        async with town.process("c", 3, Desk(), cluster="strangers/push"):
            await until(lambda: not admin.complete)
            assert admin.living().keys() == {2}
        await until(lambda: admin.complete)


@on_loop
async def test_without_a_seat_nobody_joins():
    class Away(Coordination):
        async def sit(self, path: str, value: bytes):  # type: ignore[no-untyped-def]
            raise ClusterError("away")

    membership = SeatedMembership(Away(), "/push/processes", 0.1)  # type: ignore[abstract]
    with pytest.raises(ClusterError, match="no seat"):
        await membership.join(Member(name="a", incarnation=1, url=""))


@on_loop
async def test_of_two_runs_with_one_name_the_later_one_is_the_member():
    town = Town()
    first = SeatedMembership(town.coordination("a"), "/row", 3.0)
    second = SeatedMembership(town.coordination("b"), "/row", 3.0)
    await second.join(Member(name="a", incarnation=2, url="ws://new:1"))
    await first.join(Member(name="a", incarnation=1, url="ws://old:1"))
    members = await anext(aiter(second.watch()))
    assert {name: member.url for name, member in members.items()} == {"a": "ws://new:1"}
    await first.close()
    await second.close()
