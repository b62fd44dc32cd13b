"""Packed ops on a byte stream: cut anywhere, wrong in any way, gone at any moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chappe.clock import SystemClock
from chappe.edge.acceptor import AcceptCounters, Acceptor
from chappe.edge.tcp import TcpConnection
from chappe.errors import CloseCode
from chappe.hub.hub import Hub
from chappe.hub.options import HubOptions
from chappe.wire.limits import Limits
from chappe.wire.ops import (
    Closed,
    Delivery,
    Error,
    Hello,
    Op,
    Ping,
    Pong,
    Publish,
    Reply,
    Send,
    Subscribe,
)
from chappe.wire.packed import Splitter, encode_op, encode_ops, frame, read_hub_ops
from tests.hubs import make_hub
from tests.loop import on_loop


class Peer:
    """A socket that says bytes and hears ops."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._splitter = Splitter(1 << 22)
        self._ops: list[Any] = []

    def say(self, *ops: Op) -> None:
        self.writer.write(b"".join(frame(encode_op(op)) for op in ops))

    async def hear(self) -> Any:
        while not self._ops:
            data = await self.reader.read(65_536)
            assert data, "the connection has ended"
            self._ops += [op for a in self._splitter.feed(data) for op in read_hub_ops(a)]
        return self._ops.pop(0)

    async def rest(self) -> list[Any]:
        """Everything until the end."""
        data = await self.reader.read()
        self._ops += [op for a in self._splitter.feed(data) for op in read_hub_ops(a)]
        return self._ops


class Service:
    """A hub behind a TCP port."""

    def __init__(self, hub: Hub, port: int) -> None:
        self.hub = hub
        self.port = port
        self.peers: list[Peer] = []

    async def dial(self, name: str | None = None) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        self.peers.append(peer)
        if name is not None:
            peer.say(Hello(id=0, as_=f"user:{name}"))
            assert (await peer.hear()).ok
        return peer


@asynccontextmanager
async def serving(
    options: HubOptions | None = None, limits: Limits | None = None
) -> AsyncIterator[Service]:
    loop, clock = asyncio.get_running_loop(), SystemClock()
    hub = make_hub(loop, clock, options=options, limits=limits)
    acceptor = Acceptor(loop, lambda: TcpConnection(hub), "127.0.0.1", 0, None, AcceptCounters())
    service = Service(hub, acceptor.port)
    try:
        yield service
    finally:
        acceptor.close()
        hub.stop()
        for peer in service.peers:
            peer.writer.close()


@on_loop
async def test_a_frame_may_come_byte_by_byte() -> None:
    async with serving() as service:
        peer = await service.dial()
        for byte in frame(encode_op(Hello(id=1, as_="user:a"))):
            peer.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await peer.hear()).ok


@on_loop
async def test_many_frames_and_many_ops_in_a_frame_may_come_at_once() -> None:
    async with serving() as service:
        peer = await service.dial()
        many = encode_ops([encode_op(Ping(id=n)) for n in range(2, 40)])
        hello, last = frame(encode_op(Hello(id=1, as_="user:a"))), encode_op(Ping(id=40))
        peer.writer.write(hello + frame(many) + frame(last))
        assert isinstance(await peer.hear(), Reply)
        assert [(await peer.hear()).id for _ in range(39)] == list(range(2, 41))


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x40\x00\x00\x00\x01", CloseCode.MESSAGE_TOO_BIG),  # a gigabyte declared
        (b"\xff\xff\xff\xff\x01", CloseCode.MESSAGE_TOO_BIG),
        (b"\x00\x00\x00\x00\x01", CloseCode.PROTOCOL_ERROR),
        (b"\x00\x00\x00\x02\x07\xc0", CloseCode.PROTOCOL_ERROR),  # version 7
        (b"GET / HTTP/1.1\r\n\r\n", CloseCode.MESSAGE_TOO_BIG),
    ],
)
@on_loop
async def test_what_loses_the_rest_of_the_stream_is_told_and_closed(data: bytes, code: int) -> None:
    async with serving() as service:
        other = await service.dial("other")
        peer = await service.dial("a")
        peer.writer.write(data)
        error, closed = await peer.rest()
        assert isinstance(error, Error)
        assert error.reason
        assert isinstance(closed, Closed)
        assert closed.code == code
        other.say(Ping(id=1))
        assert isinstance(await other.hear(), Pong)


@on_loop
async def test_an_op_that_cannot_be_read_is_told_and_the_third_closes() -> None:
    async with serving() as service:
        peer = await service.dial("a")
        peer.writer.write(frame(b"\x01\xc1") + frame(encode_op(Ping(id=1))))
        assert isinstance(await peer.hear(), Error)
        assert isinstance(await peer.hear(), Pong)
        peer.writer.write(frame(b"\x01\x91\x63") + frame(b"\x01\x93\x04\xa1x\x01"))
        *errors, closed = await peer.rest()
        assert [type(op).__mro__[1] for op in errors] == [Error, Error]
        assert closed.code == CloseCode.MALFORMED


@on_loop
async def test_a_full_node_says_so_and_closes() -> None:
    async with serving(HubOptions(connections_max=1)) as service:
        first = await service.dial("a")
        second = await service.dial()
        (closed,) = await second.rest()
        assert closed.code == CloseCode.TRY_AGAIN_LATER
        first.say(Ping(id=1))
        assert isinstance(await first.hear(), Pong)


@pytest.mark.parametrize("how", ["close", "reset"])
@on_loop
async def test_somebody_gone_as_a_message_comes_keeps_nothing_from_the_others(how: str) -> None:
    async with serving() as service:
        sender, stays = await service.dial("sender"), await service.dial("stays")
        for n in range(20):
            goer = socket.create_connection(("127.0.0.1", service.port))
            goer.sendall(frame(encode_op(Hello(id=1, as_="user:goes"))))
            while "user:goes" not in service.hub.apps["default"].endpoints:
                await asyncio.sleep(0.001)
            # Both lie in the kernel when the loop looks next: it sees the end and the message in
            # one turn, whichever comes first.
            if how == "reset":
                goer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            goer.close()
            op = Send(id=n, to=["user:goes", "user:stays"], data64="")
            sender.say(op)
            reply = await asyncio.wait_for(sender.hear(), 5)
            assert reply.verdicts["user:stays"] == "ok"
            assert isinstance(await asyncio.wait_for(stays.hear(), 5), Delivery)


@on_loop
async def test_a_reader_that_never_reads_is_bounded_and_others_go_on() -> None:
    options = HubOptions(outbox_bytes_max=100_000, topic_policy="close")
    async with serving(options) as service:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", service.port))
        hello = Hello(id=1, as_="user:slow")
        for op in (hello, Subscribe(id=2, to="topic:t")):
            slow.sendall(frame(encode_op(op)))
        quick = await service.dial("quick")
        quick.say(Subscribe(id=1, to="topic:t"))
        assert (await quick.hear()).ok
        for _ in range(2000):
            quick.say(Publish(to="topic:t", data64="AAAA" * 2000))
            assert isinstance(await quick.hear(), Delivery)
            assert service.hub.outboxes.held_bytes <= 110_000
            if "user:slow" not in service.hub.apps["default"].endpoints:
                break
        assert service.hub.recorder.closed == {CloseCode.SLOW_CONSUMER: 1}  # type: ignore[attr-defined]
        slow.close()


@on_loop
async def test_who_speaks_before_it_has_read_the_goodbye_still_reads_it() -> None:
    async with serving() as service:
        peer = await service.dial("a")
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (session,) = service.hub.sessions.values()
        service.hub.close(session, CloseCode.REVOKED, "the token was revoked")
        sock: socket.socket = peer.writer.get_extra_info("socket")
        for _ in range(3):
            await asyncio.sleep(0.01)
            peer.say(Pong())
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        (closed,) = await peer.rest()
        assert closed.code == CloseCode.REVOKED
        # Its own end ends the rest of it, and nobody waits for the time limit.
        peer.writer.close()
        while not session.sink._transport.is_closing():  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
