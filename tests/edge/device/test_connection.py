"""Devices on real connections: cut anywhere, garbage, replaced, revoked, not reading (P2, P3)."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chappe.clock import SystemClock
from chappe.edge.acceptor import AcceptCounters, Acceptor
from chappe.edge.device import DevicePort, open_port
from chappe.push.comet.comet import Comet
from chappe.push.token import token_digest
from chappe.wire.push import (
    Auth,
    AuthSuccess,
    Command,
    Error,
    ExchangeKey,
    GetMessageList,
    Heartbeat,
    Message,
    MessageAck,
    MessageList,
    Ok,
    PushError,
    Response,
    Splitter,
    Subscribe,
    decode_response,
    encode_command,
)
from chappe.wire.pushcipher import DeviceAgreement, Opening
from chappe.wire.pushlink import Close, Why
from tests.loop import on_loop
from tests.push.comet.rig import IDENTITY, Rig, entropy


class Peer:
    """A socket that says commands and hears responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._splitter = Splitter()
        self._responses: list[Response] = []
        self.key: Opening

    def say(self, *commands: Command) -> None:
        self.writer.write(b"".join(map(encode_command, commands)))

    async def hear(self) -> Any:
        while not self._responses:
            data = await self.reader.read(65_536)
            assert data, "the connection has ended"
            self._responses += map(decode_response, self._splitter.feed(data))
        return self._responses.pop(0)

    async def rest(self) -> list[Response]:
        """Everything until the end."""
        data = await self.reader.read()
        return [*self._responses, *map(decode_response, self._splitter.feed(data))]

    async def login(self, client: str, token: str) -> None:
        agreement = DeviceAgreement(client, entropy(32), IDENTITY.public)
        self.say(Auth(client, token))
        offered = await self.hear()
        assert isinstance(offered, AuthSuccess), offered
        self.key = agreement.agree(offered.encrypt_key)
        self.say(ExchangeKey(agreement.secret_key))
        assert await self.hear() == Ok()

    def open(self, message: Message) -> bytes:
        struct = message.message
        return self.key.open(struct.head, struct.encrypted_content)


class RealRig(Rig):
    """Comets on the machine's clock."""

    make_port: Callable[[Comet, asyncio.AbstractEventLoop], DevicePort]

    def __init__(self, **options: Any) -> None:
        super().__init__(comets=0)
        self.clock = SystemClock()  # type: ignore[assignment]
        self.comets = [self.comet(1, **options)]
        self.port = 0
        self.peers: list[Peer] = []

    async def dial(self) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        self.peers.append(peer)
        return peer

    async def device(self, client: tuple[str, str] | None = None) -> Peer:
        peer = await self.dial()
        await peer.login(*(client or await self.client()))
        peer.say(GetMessageList())
        assert isinstance(await peer.hear(), MessageList)
        return peer


_PORTS: dict[str, Callable[[Comet, asyncio.AbstractEventLoop], DevicePort]] = {
    "polled": open_port,
    "transports": lambda comet, _: DevicePort(comet),
}


@pytest.fixture(autouse=True, params=_PORTS)
def port_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All that is said here holds for both kinds of connections."""
    monkeypatch.setattr(RealRig, "make_port", staticmethod(_PORTS[request.param]), raising=False)
    kind: str = request.param
    return kind


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[RealRig]:
    loop = asyncio.get_running_loop()
    rig = RealRig(**options)
    port = rig.make_port(rig.comets[0], loop)
    acceptor = Acceptor(loop, port, "127.0.0.1", 0, None, AcceptCounters())
    rig.port = acceptor.port
    try:
        yield rig
    finally:
        acceptor.close()
        await rig.comets[0].drain()
        for peer in rig.peers:
            peer.writer.close()
        port.close()


@on_loop
async def test_a_device_gets_what_waits_and_what_comes_and_acknowledges_it() -> None:
    async with serving() as rig:
        client = await rig.client()
        waits, comes = rig.note(b"waits"), rig.note(b"comes")
        await rig.send(waits, client[0])
        peer = await rig.dial()
        await peer.login(*client)
        peer.say(GetMessageList())
        listed = await peer.hear()
        assert [peer.open(Message(each)) for each in listed.messages] == [b"waits"]
        await rig.send(comes, client[0])
        assert peer.open(await peer.hear()) == b"comes"
        peer.say(MessageAck((waits.id, comes.id)))
        assert await peer.hear() == Ok()
        await rig.rest()
        assert await rig.waiting(client[0]) == []


@on_loop
async def test_frames_may_come_byte_by_byte() -> None:
    async with serving() as rig:
        peer = await rig.device()
        for byte in encode_command(Heartbeat()) + encode_command(Subscribe(("news",))):
            peer.writer.write(bytes([byte]))
            await peer.writer.drain()
            await asyncio.sleep(0.001)
        assert [await peer.hear(), await peer.hear()] == [Ok(), Ok()]


@on_loop
async def test_frames_of_two_devices_do_not_mix_in_the_buffer_they_share() -> None:
    async with serving() as rig:
        one, other = await rig.device(), await rig.device()
        first, second = encode_command(Subscribe(("a" * 200,))), encode_command(Heartbeat())
        one.writer.write(first[:100])
        await asyncio.sleep(0.01)
        other.writer.write(second[:1])
        await asyncio.sleep(0.01)
        one.writer.write(first[100:])
        await asyncio.sleep(0.01)
        other.writer.write(second[1:])
        assert [await one.hear(), await other.hear()] == [Ok(), Ok()]


@pytest.mark.parametrize(
    "garbage", [b"\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff" + bytes(200_000), b"\0\1\6" * 9]
)
@on_loop
async def test_garbage_before_auth_is_answered_with_error_4_and_the_end(garbage: bytes) -> None:
    async with serving() as rig:
        peer = await rig.dial()
        peer.writer.write(garbage)
        (error,) = await peer.rest()
        assert isinstance(error, Error)
        assert error.code == PushError.BAD_ARGUMENTS


@on_loop
async def test_a_frame_of_65535_bytes_is_taken_from_a_device_that_is_known() -> None:
    async with serving() as rig:
        peer = await rig.device()
        names = ["a" * 255] * 254 + ["a" * (65_533 - 254 * 257 - 2)]
        frame = encode_command(Subscribe(tuple(names)))
        assert len(frame) == 2 + 65_535
        peer.writer.write(frame)
        assert await peer.hear() == Ok()


@on_loop
async def test_a_second_login_is_told_to_the_first_as_error_2() -> None:
    async with serving() as rig:
        client = await rig.client()
        first = await rig.device(client)
        second = await rig.device(client)
        (error,) = await first.rest()
        assert isinstance(error, Error)
        assert error.code == PushError.DUPLICATE
        second.say(Heartbeat())
        assert await second.hear() == Ok()


@on_loop
async def test_a_revoked_token_closes_its_live_session_within_a_second() -> None:
    async with serving() as rig:
        client, token = await rig.client()
        peer = await rig.device((client, token))
        await rig.states.user.revoke(token_digest(token))
        rig.comets[0].close(Close(client, Why.REVOKED, digest=token_digest(token)))
        (error,) = await asyncio.wait_for(peer.rest(), 1)
        assert isinstance(error, Error)
        assert error.code == PushError.TOKEN_EXPIRED
        again = await rig.dial()
        again.say(Auth(client, token))
        (refused,) = await again.rest()
        assert isinstance(refused, Error)
        assert refused.code == PushError.TOKEN_EXPIRED


@on_loop
async def test_more_connections_than_there_may_be_are_told_error_3() -> None:
    async with serving(sessions_max=1) as rig:
        await rig.device()
        peer = await rig.dial()
        (error,) = await peer.rest()
        assert isinstance(error, Error)
        assert error.code == PushError.SERVER


@on_loop
async def test_who_hangs_up_is_gone_and_its_route_too() -> None:
    async with serving() as rig:
        client = await rig.client()
        peer = await rig.device(client)
        peer.writer.close()
        while rig.comets[0].sessions.count:
            await asyncio.sleep(0.001)
        await rig.rest()
        assert await rig.states.route.find([client[0]]) == {}


@on_loop
async def test_a_device_that_does_not_read_is_cut_off_and_finds_what_waits() -> None:
    async with serving() as rig:
        client = await rig.client()
        peer = await rig.device(client)
        taken = peer.writer.get_extra_info("socket")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        sent = []
        while rig.comets[0].sessions.count:
            note = rig.note(bytes(60_000))
            sent.append(note.id)
            await rig.send(note, client[0])
            assert len(sent) < 1000
        assert rig.comets[0].counters.closed["slow"] == 1
        back = await rig.dial()
        await back.login(*client)
        back.say(GetMessageList())
        got: list[str] = []
        while len(got) < len(sent):
            some = await back.hear()
            messages = some.messages if isinstance(some, MessageList) else (some.message,)
            got += [message.id for message in messages]
            for each in messages:
                back.open(Message(each))
        assert sorted(got) == sorted(sent)


@on_loop
async def test_a_broadcast_to_many_keeps_nobody_waiting_for_all_of_it() -> None:
    async with serving() as rig:
        peers = [await rig.device() for _ in range(300)]
        for peer in peers:
            peer.say(Subscribe(("news",)))
            assert await peer.hear() == Ok()
        note = await rig.publish("news", content=b"to all")
        for peer in peers:
            message = await peer.hear()
            assert message.message.id == note.id
            assert peer.open(message) == b"to all"
        assert rig.comets[0].counters.handed["live"] == 300


@on_loop
async def test_who_reads_late_gets_all_of_it_in_order() -> None:
    async with serving() as rig:
        client = await rig.client()
        peer = await rig.device(client)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        session = rig.comets[0].audience.clients[client[0]]
        sent = []
        # Until more was written than the kernel takes.
        while not session.paused:
            note = rig.note(bytes(60_000))
            sent.append(note.id)
            await rig.send(note, client[0])
            await asyncio.sleep(0)
        # These wait in the outbox.
        for _ in range(2):
            note = rig.note(bytes(1000))
            sent.append(note.id)
            await rig.send(note, client[0])
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        got: list[str] = []
        while len(got) < len(sent):
            message = await peer.hear()
            peer.open(message)
            got.append(message.message.id)
        assert got == sent
        assert not session.paused
        peer.say(Heartbeat())
        assert await peer.hear() == Ok()


@on_loop
async def test_a_connection_that_breaks_while_it_is_written_to_is_lost() -> None:
    async with serving() as rig:
        client = await rig.client()
        peer = await rig.device(client)
        taken = peer.writer.get_extra_info("socket")
        # Closed with a reset, which the comet meets when it writes, or reads.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.writer.transport.abort()
        while rig.comets[0].sessions.count:
            await rig.send(rig.note(bytes(1000)), client[0])
            await asyncio.sleep(0.001)
        await rig.rest()
        assert await rig.states.route.find([client[0]]) == {}


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@on_loop
async def test_a_port_that_is_closed_lets_go_of_its_descriptors(port_kind: str) -> None:
    if port_kind != "polled":
        pytest.skip("transports are their loop's")

    async def serve_some() -> int:
        async with serving() as rig:
            for _ in range(3):
                await rig.device()
            held = _descriptors()
        for peer in rig.peers:
            await peer.writer.wait_closed()
        return held

    # What a loop opens once stays.
    await serve_some()
    before = _descriptors()
    assert await serve_some() >= before + 6
    while _descriptors() > before:
        await asyncio.sleep(0.01)
