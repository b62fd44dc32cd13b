"""A client of a few lines: speaks packed ops on a stream and remembers what it heard."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw

from chappe.simulation import Trace
from chappe.wire.ops import (
    Closed,
    Delivery,
    Dropped,
    Hello,
    Op,
    Ping,
    Pong,
    Publish,
    Reply,
    Send,
    Subscribe,
    Unsubscribe,
)
from chappe.wire.packed import Splitter, encode_op, frame, read_hub_ops

BODY_BYTES_MAX = 1024 * 1024


class Subscription:
    """From when to when a topic's messages may come, by the client's own words and answers."""

    def __init__(self, asked: float) -> None:
        self.asked = asked
        self.granted: float | None = None
        self.ending: float | None = None
        self.ended: float | None = None


class ScriptedClient(asyncio.Protocol):
    """One connection of one user."""

    transport: asyncio.Transport

    def __init__(self, name: str, user: str, trace: Trace, serial: str) -> None:
        self.name = name
        self.user = user
        self.serial = serial
        self.session = ""
        self.deliveries: list[tuple[float, Delivery]] = []
        self.subscriptions: dict[str, list[Subscription]] = {}
        self.dropped = 0
        self.closed_code: int | None = None
        self.lost = asyncio.Event()
        self.silent = False
        self.said = 0
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter(BODY_BYTES_MAX)
        self._replies: dict[int, asyncio.Future[Reply]] = {}
        self._request = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for array in self._splitter.feed(data):
            for op in read_hub_ops(array):
                self._hear(op)

    def connection_lost(self, exc: Exception | None) -> None:
        self._trace.record("client.lost", client=self.serial, error=type(exc).__name__)
        self.lost.set()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(ConnectionError("lost"))
        self._replies.clear()

    def _hear(self, op: Op) -> None:
        self._trace.record("client.heard", client=self.serial, op=repr(op))
        if isinstance(op, Reply):
            reply = self._replies.pop(op.id)
            if not reply.done():
                reply.set_result(op)
        elif isinstance(op, Delivery):
            self.deliveries.append((self._loop.time(), op))
        elif isinstance(op, Ping):
            if not self.silent:
                self.say(Pong())
        elif isinstance(op, Dropped):
            self.dropped += op.n
        elif isinstance(op, Closed):
            self.closed_code = op.code
        else:
            raise AssertionError(f"a hub does not say {op}")

    def say(self, op: Op) -> None:
        self.transport.write(frame(encode_op(op)))

    async def ask(self, kind: Any, **fields: Any) -> Reply:
        """Say an op and wait for its reply; raises ConnectionError when there will be none."""
        if self.lost.is_set():
            raise ConnectionError("lost")
        self._request += 1
        number = self._request
        self._replies[number] = reply = self._loop.create_future()
        self.say(kind(id=number, **fields))
        return await reply

    async def hello(self) -> None:
        reply = await self.ask(Hello, as_=self.user)
        assert reply.ok, reply
        assert reply.session
        self.session = reply.session

    async def publish(self, to: str, payload: bytes) -> Reply:
        return await self.ask(Publish, to=to, data=Raw(payload))

    async def send(self, to: str | list[str], payload: bytes) -> Reply:
        return await self.ask(Send, to=to, data=Raw(payload))

    async def subscribe(self, to: str) -> None:
        spans = self.subscriptions.setdefault(to, [])
        if not spans or spans[-1].ending is not None:
            spans.append(Subscription(self._loop.time()))
        assert (await self.ask(Subscribe, to=to)).ok
        spans[-1].granted = self._loop.time()

    async def unsubscribe(self, to: str) -> None:
        spans = self.subscriptions.get(to, [])
        if spans and spans[-1].ending is None:
            spans[-1].ending = self._loop.time()
        assert (await self.ask(Unsubscribe, to=to)).ok
        if spans:
            spans[-1].ended = self._loop.time()
