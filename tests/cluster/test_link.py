"""Links on real sockets: what is carried, what ends them, and what strangers get (H6)."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from chappe.cluster.counters import MeshCounters
from chappe.cluster.link import Link
from chappe.cluster.options import ClusterTls, LinkOptions
from chappe.cluster.tls import LinkTls, link_tls
from chappe.errors import ConfigError
from chappe.wire.link import FrameKind, write_ping, write_pong
from tests.cluster.intruder import BINARY, Intruder
from tests.cluster.meshes import DROWSY, QUICK, SECRET, Board, Peer, all_linked, make_peer, started
from tests.edge.wiring import header, masked
from tests.loop import on_loop
from tests.node.certificate import make_certificate


def pair(**other: object) -> tuple[Peer, Peer]:
    board = Board()
    return make_peer("a", board, **other), make_peer("b", board, **other)  # type: ignore[arg-type]


@on_loop
async def test_bodies_of_any_size_arrive_in_order_each_once_both_ways():
    a, b = pair()
    async with started(a, b):
        await all_linked(a, b)
        largest = QUICK.frame_bytes_max - 16
        bodies = [b"", b"1", b"x" * 125, b"y" * 70_000, b"z" * largest, b"last"]
        for one, other in ((a, b), (b, a)):
            for body in bodies:
                one.links[other.name].write(body)
            await other.witness.until(
                lambda one=one, other=other: len(other.witness.bodies.get(one.name, [])) == 6
            )
            assert other.witness.bodies[one.name] == bodies
            with pytest.raises(ValueError, match="do not fit"):
                one.links[other.name].write(bytes(largest + 1))
        assert a.links["b"].frames_out >= 6
        assert a.links["b"].bytes_out > largest
        assert b.links["a"].bytes_in > largest


@on_loop
async def test_what_one_read_brings_is_handed_over_together():
    a, b = pair()
    async with started(a, b):
        await all_linked(a, b)
        for number in range(50):
            a.links["b"].write(str(number).encode())
        await b.witness.until(lambda: len(b.witness.bodies.get("a", [])) == 50)
        assert len(b.witness.reads) < 10


@on_loop
async def test_an_owner_may_write_a_lot_as_soon_as_the_link_is_up():
    a, b = pair()
    a.witness.on_up = b.witness.on_up = lambda link: [  # type: ignore[assignment]
        link.write(b"s" * 50_000) for _ in range(20)
    ]
    async with started(a, b):
        for one, other in ((a, "b"), (b, "a")):
            await one.witness.until(
                lambda one=one, other=other: len(one.witness.bodies.get(other, [])) == 20
            )
        assert a.witness.ups == b.witness.ups == 1


@on_loop
async def test_a_link_tells_its_round_trip_and_how_far_the_clocks_are_apart():
    class Ahead:
        def wall_ms(self) -> int:
            return 9_000_000

        def wall_us(self) -> int:
            return self.wall_ms() * 1000

        def monotonic(self) -> float:
            return 0.0

    class Behind(Ahead):
        def wall_ms(self) -> int:
            return 8_995_000

    board = Board()
    a, b = make_peer("a", board, clock=Ahead()), make_peer("b", board, clock=Behind())
    beats: list[tuple[str, int, int]] = []
    a.mesh.on_beat = lambda *beat: beats.append(beat)
    async with started(a, b):
        await all_linked(a, b)
        for link, offset_ms in ((a.links["b"], -5000), (b.links["a"], 5000)):
            async with asyncio.timeout(10):
                while link.round_trip_s is None:
                    await asyncio.sleep(QUICK.heartbeat_s / 4)
            assert 0 <= link.round_trip_s < 10
            assert link.clock_offset_ms is not None
            # Half a round trip is all that it can be wrong by.
            assert abs(link.clock_offset_ms - offset_ms) <= link.round_trip_s * 1000
        (peer, ahead_us, round_trip_us) = beats[0]
        assert (peer, round(ahead_us / 1_000_000)) == ("b", -5)
        assert 0 <= round_trip_us < 10_000_000


@on_loop
async def test_resets_are_counted_under_few_names_whatever_their_reasons():
    counters, link = MeshCounters(lambda: 0.0), make_link()
    for number in range(100):
        counters.went_down(link, f"a frame cannot be read: {number}")
        counters.went_down(link, f"reason {number}")
    assert counters.resets["a frame cannot be read"] == 100
    assert len(counters.resets) <= 33
    assert counters.resets.total() == 200


def make_link() -> Link:
    """A link that never was."""
    b = make_peer("b", Board())
    return b.mesh._accept().link  # type: ignore[no-any-return]


@on_loop
async def test_a_pong_that_answers_no_ping_tells_nothing():
    b = make_peer("b", Board())
    async with started(b):
        peer, link = await proven(b)
        peer.say_raw(peer.frame_of(write_pong(write_ping(0.5), 0), FrameKind.PONG))
        peer.say_raw(peer.frame_of(b"then this"))
        await b.witness.until(lambda: "a" in b.witness.bodies)
        assert link.round_trip_s is None
        assert link.clock_offset_ms is None
        peer.writer.close()


@on_loop
async def test_a_reset_is_told_at_once_and_once_and_a_new_link_is_made():
    a, b = pair()
    async with started(a, b):
        await all_linked(a, b)
        for one, other in ((a, b), (b, a)):
            old = one.links[other.name]
            old.reset("because")
            assert one.witness.downs[-1] == (other.name, "because")
            assert other.name not in one.links
            old.reset("again")
            old.write(b"nobody hears this")
            await other.witness.until(lambda one=one, other=other: one.name not in other.links)
            await all_linked(a, b)
            assert one.links[other.name] is not old
        assert a.mesh.counters.resets["because"] == 1
        assert a.mesh.counters.resets["again"] == 0
        assert not b.witness.bodies


@on_loop
async def test_a_link_is_paused_while_its_peer_does_not_read_and_tells_when_it_does():
    a, b = pair(link=msgspec.structs.replace(QUICK, heartbeat_s=60))
    async with started(a, b):
        await all_linked(a, b)
        to_b, at_b = a.links["b"], b.links["a"]
        at_b._transport.pause_reading()
        sent = 0
        while not to_b.paused:
            to_b.write(b"x" * 500_000)
            sent += 1
            assert sent < 200
            await asyncio.sleep(0)
        assert not a.witness.writables
        at_b._transport.resume_reading()
        await a.witness.until(lambda: a.witness.writables == 1)
        assert not to_b.paused
        await b.witness.until(lambda: len(b.witness.bodies.get("a", [])) == sent)


async def proven(b: Peer, name: str = "a") -> tuple[Intruder, Link]:
    """A peer of our own making, up."""
    peer = await Intruder.prove(b.port, name)
    peer.come_up()
    await b.linked_to(name)
    return peer, b.links[name]


@on_loop
async def test_a_frame_that_comes_twice_is_handed_over_once():
    b = make_peer("b", Board())
    async with started(b):
        peer, link = await proven(b)
        first, second = peer.frame_of(b"1"), peer.frame_of(b"2")
        for frame in (first, first, second, first, second):
            peer.say_raw(frame)
        peer.say_raw(peer.frame_of(b"3"))
        await b.witness.until(lambda: b.witness.bodies.get("a", [])[-1:] == [b"3"])
        assert b.witness.bodies["a"] == [b"1", b"2", b"3"]
        assert link.duplicates == 3
        peer.writer.close()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda peer: masked(BINARY, (99).to_bytes(8, "big") + b"\0body"), "gap"),
        (lambda peer: masked(BINARY, b"short"), "protocol"),
        (lambda peer: masked(BINARY, peer.frame_of(b"", 77)), "protocol"),
        (lambda peer: masked(BINARY, peer.frame_of(b"odd", FrameKind.PING)), "protocol"),
        (lambda peer: masked(BINARY, peer.frame_of(b"odd", FrameKind.PONG)), "protocol"),
        (lambda peer: masked(0x1, b"text"), "protocol"),
        (lambda peer: masked(BINARY, b"part", fin=False), "protocol"),
        (lambda peer: masked(BINARY, b"bits", rsv=4), "protocol"),
        (lambda peer: masked(0x9, b"ping"), "protocol"),
        (lambda peer: masked(0x3, b"no such opcode"), "protocol"),
        (lambda peer: header(BINARY, 16 * 1024 * 1024 + 1) + bytes(4), "protocol"),
        (lambda peer: header(BINARY, 4, mask=False) + b"bare", "protocol"),
        (lambda peer: masked(0x8, b"\x03\xe8bye"), "goodbye"),
    ],
)
def test_whatever_is_no_frame_ends_the_link_after_what_came_before_it(wrong, reason: str):
    @on_loop
    async def run() -> None:
        b = make_peer("b", Board())
        async with started(b):
            peer, _ = await proven(b)
            peer.say_raw(peer.frame_of(b"before"))
            await b.witness.until(lambda: "a" in b.witness.bodies)
            peer.send(wrong(peer))
            await b.witness.until(lambda: bool(b.witness.downs))
            assert b.witness.downs == [("a", reason)]
            assert b.witness.bodies["a"] == [b"before"]
            await peer.hung_up()

    run()


@on_loop
async def test_a_proven_peer_is_not_up_before_its_first_frame_and_has_little_time_for_it():
    options = msgspec.structs.replace(QUICK, handshake_timeout_s=1.0)
    b = make_peer("b", Board(), link=options)
    async with started(b):
        peer = await Intruder.prove(b.port, "a")
        await peer.hung_up()
        assert not b.witness.ups
        assert b.mesh.counters.refused["timeout"] == 1


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /link HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        b"GET /link HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        b"Origin: https://a.example\r\n\r\n",
    ],
)
def test_whoever_asks_for_something_else_finds_nothing(request_: bytes):
    @on_loop
    async def run() -> None:
        b = make_peer("b", Board())
        async with started(b):
            peer = await Intruder.connect(b.port)
            assert await peer.ask(request_) == 404
            told = (peer.response + await peer.hung_up()).lower()
            assert not any(word in told for word in (b"chappe", b"cluster", b"node", b"link"))

    run()


@on_loop
async def test_strangers_get_a_nonce_at_most_and_are_dropped():
    b = make_peer("b", Board(), link=msgspec.structs.replace(QUICK, handshake_timeout_s=2.0))
    async with started(b):
        silent = await Intruder.upgrade(b.port)
        garbage = await Intruder.upgrade(b.port)
        garbage.say_raw(b"hello, who is there?")
        guess = await Intruder.upgrade(b.port)
        guess.say_raw(b"\x01" + b"n" * 32)
        assert len(await guess.hear_raw()) == 33
        guess.say_raw(b"\x03" + b"p" * 100)
        chatty = await Intruder.upgrade(b.port)
        chatty.send(header(BINARY, 10 * 1024 * 1024) + bytes(100_000))
        for stranger in (silent, garbage, guess, chatty):
            assert await stranger.hung_up() == b""
        refused = b.mesh.counters.refused
        assert (refused["timeout"], refused["garbage"], refused["secret"]) == (1, 2, 1)
        assert b.mesh.counters.auth_failures == 3
        assert not b.witness.ups


@on_loop
async def test_any_number_of_strangers_takes_a_bounded_place_and_keeps_no_node_out():
    options = msgspec.structs.replace(QUICK, strangers_max=8, handshake_timeout_s=20.0)
    board = Board()
    a, b = make_peer("a", board), make_peer("b", board, link=options)
    async with started(b):
        strangers = [await Intruder.upgrade(b.port) for _ in range(100)]
        async with started(a):
            await all_linked(a, b)
        assert len(b.mesh._strangers) <= 8
        assert b.mesh.counters.refused["crowded"] >= 92
        for stranger in strangers[:90]:
            await stranger.hung_up()
        for stranger in strangers[90:]:
            stranger.writer.close()


@on_loop
async def test_no_log_line_holds_the_secret_and_strangers_do_not_fill_the_log():
    with capture_logs() as lines:
        board = Board()
        a, b = make_peer("a", board), make_peer("b", board)
        wrong = make_peer("c", board, secret=b"another secret, as long as it has to be")
        async with started(a, b, wrong):
            await a.linked_to("b")
            for _ in range(20):
                stranger = await Intruder.upgrade(b.port)
                stranger.say_raw(b"\x01" + b"n" * 32)
                await stranger.hear_raw()
                stranger.say_raw(b"\x03" + b"p" * 100)
                await stranger.hung_up()
            assert b.mesh.counters.refused["secret"] >= 20
    text = repr(lines)
    assert SECRET.decode() not in text
    assert b.mesh._credentials.key.hex() not in text
    refusals = [line for line in lines if line["event"] == "link.refused"]
    assert any("another secret" in line["reason"] for line in refusals)
    # Three meshes, a line a second each.
    assert len(refusals) < 20


class Passage:
    """Forwards connections to a port, until it is frozen: then neither side hears anything."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.open = asyncio.Event()
        self.open.set()

    async def start(self, target: int) -> int:
        self._target = target
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, there[1]]
        for source, target in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self._pump(source, target))
            self._tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                await self.open.wait()
                target.write(data)
        except ConnectionError:
            pass
        await self.open.wait()
        target.close()

    async def stop(self) -> None:
        self.open.set()
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks)


@on_loop
async def test_a_half_open_link_is_found_by_both_sides_and_made_anew():
    board, view = Board(), Board()
    a = make_peer("a", view, link=DROWSY)
    b = make_peer("b", board, link=DROWSY)
    passage = Passage()
    async with started(a, b):
        port = await passage.start(b.port)
        view.put(msgspec.structs.replace(b.mesh.me, url=f"ws://127.0.0.1:{port}"))
        await all_linked(a, b)
        passage.open.clear()
        await a.witness.until(lambda: ("b", "silence") in a.witness.downs)
        await b.witness.until(lambda: ("a", "silence") in b.witness.downs)
        assert not a.links
        passage.open.set()
        await all_linked(a, b)
        await passage.stop()


def certificates(folder: Path, *, mutual: bool = False) -> LinkTls:
    folder.mkdir()
    cert, key = map(str, make_certificate(folder))
    return link_tls(ClusterTls(cert=cert, key=key, ca=cert, mutual=mutual))


@pytest.mark.parametrize("mutual", [False, True])
def test_links_run_over_tls(tmp_path: Path, mutual: bool):
    tls = certificates(tmp_path / "cluster", mutual=mutual)

    @on_loop
    async def run() -> None:
        a, b = pair(tls=tls)
        async with started(a, b):
            assert a.mesh.me.url.startswith("wss://127.0.0.1:")
            await all_linked(a, b)
            a.links["b"].write(b"over TLS")
            await b.witness.until(lambda: b.witness.bodies.get("a") == [b"over TLS"])
        assert b.witness.downs == [("a", "goodbye")]

    run()


@pytest.mark.parametrize("wrong", ["authority", "no certificate"])
def test_who_has_no_certificate_of_the_cluster_gets_no_link(tmp_path: Path, wrong: str):
    mutual = wrong == "no certificate"
    ours = certificates(tmp_path / "ours", mutual=mutual)
    if mutual:
        # Believes our authority, and has nothing to show.
        client = ssl.create_default_context(cafile=str(tmp_path / "ours" / "cert.pem"))
    else:
        client = certificates(tmp_path / "theirs").client

    @on_loop
    async def run() -> None:
        board = Board()
        a = make_peer("a", board, tls=LinkTls(server=ours.server, client=client))
        b = make_peer("b", board, tls=ours)
        async with started(a, b):
            async with asyncio.timeout(10):
                while not a.mesh.counters.refused.total():
                    await asyncio.sleep(0.02)
            assert not a.witness.ups
            assert not b.witness.ups

    run()


@on_loop
async def test_a_node_with_tls_does_not_link_in_the_clear():
    board = Board()
    a = make_peer("a", board)
    board_member = msgspec.structs.replace(a.mesh.me, name="b", url="wss://127.0.0.1:1")
    async with started(a):
        board.put(board_member)
        async with asyncio.timeout(10):
            while not a.mesh.counters.refused["unreachable"]:
                await asyncio.sleep(0.02)


def test_certificates_that_cannot_be_read_are_named():
    with pytest.raises(ConfigError, match=r"cluster\.tls: /no/cert"):
        link_tls(ClusterTls(cert="/no/cert", key="/no/key", ca="/no/ca"))


def test_the_default_time_until_a_peer_is_dead_is_three_beats_of_five_seconds():
    assert LinkOptions().silence_s == 15
