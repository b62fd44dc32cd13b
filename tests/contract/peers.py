"""One kind of peer for each edge, all with the same few words.

A peer says ops and hears ops; how they travel is its own affair. None of them is the project's own
client: what another implementation would see is what is tested.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket

from chappe.edge.memory import MemoryTransport
from chappe.edge.tcp import TcpConnection
from chappe.node.node import Node
from chappe.wire import packed, text
from chappe.wire.ops import ClientOp, Delivery, Hello, Op, Ping, Publish, Reply, Send

TIMEOUT_S = 10.0


def payload(data: Any) -> dict[str, Any]:
    """The payload fields of an op: bytes, or any JSON value."""
    if isinstance(data, bytes):
        return {"data64": b64encode(data).decode()}
    return {"data": msgspec.Raw(msgspec.json.encode(data))}


def send(to: str | list[str], data: Any) -> Send:
    return Send(to=to, **payload(data))


def publish(to: str, data: Any) -> Publish:
    return Publish(to=to, **payload(data))


def value_of(delivery: Delivery) -> Any:
    """The payload of a delivery in either form."""
    if isinstance(delivery.data64, str):
        return b64decode(delivery.data64)
    data = bytes(delivery.data)  # type: ignore[arg-type]
    return data if delivery.data64 else msgspec.json.decode(data)


class Peer(ABC):
    """Somebody on an edge."""

    def __init__(self) -> None:
        self._waiting: deque[Op] = deque()
        self._serial = 0

    async def hello(self, name: str, **fields: Any) -> Reply:
        """Say who one is."""
        return await self.ask(Hello(as_=name, **fields))

    async def ask(self, op: ClientOp) -> Reply:
        """Say an op and wait for its reply; what comes before it is kept."""
        self._serial += 1
        op.id = self._serial
        await self.say(op)
        while True:
            heard = await self.hear()
            if isinstance(heard, Reply) and heard.id == op.id:
                return heard
            self._waiting.append(heard)

    async def receive(self) -> Delivery:
        """The next message."""
        while True:
            op = self._waiting.popleft() if self._waiting else await self.hear()
            if isinstance(op, Delivery):
                return op

    async def values(self, count: int) -> list[Any]:
        """The payloads of the next messages."""
        return [value_of(await self.receive()) for _ in range(count)]

    async def hear(self) -> Op:
        """The next op, beats left out."""
        async with asyncio.timeout(TIMEOUT_S):
            while isinstance(op := await self.next_op(), Ping):
                pass
            return op

    @abstractmethod
    async def say(self, op: ClientOp) -> None:
        """Send an op."""

    @abstractmethod
    async def next_op(self) -> Op:
        """Wait for an op."""

    @abstractmethod
    def fall_silent(self) -> None:
        """Stay connected, and answer nothing any more."""

    @abstractmethod
    async def close(self) -> None:
        """Go."""


class WebSocketPeer(Peer):
    """Frames by the `websockets` package."""

    def __init__(self, socket: ClientConnection, form: str) -> None:
        super().__init__()
        self._socket = socket
        self._form = form
        self._split: deque[Op] = deque()

    async def say(self, op: ClientOp) -> None:
        if self._form == "packed":
            await self._socket.send(packed.encode_op(op))
        else:
            await self._socket.send(text.encode_op(op).decode())

    async def next_op(self) -> Op:
        while not self._split:
            data = await self._socket.recv()
            if isinstance(data, str):
                assert self._form == "text"
                self._split.append(text.decode_hub_op(data.encode()))
            else:
                assert self._form == "packed"
                self._split += packed.read_hub_ops(packed.check_version(data))
        return self._split.popleft()

    def fall_silent(self) -> None:
        self._socket.transport.pause_reading()

    async def close(self) -> None:
        self._socket.transport.resume_reading()
        await self._socket.close()


class StreamPeer(Peer, asyncio.Protocol):
    """Packed frames on a byte stream: a socket, or memory."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        super().__init__()
        self._splitter = packed.Splitter(1 << 22)
        self._ops: asyncio.Queue[Op] = asyncio.Queue()
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        for array in self._splitter.feed(data):
            for op in packed.read_hub_ops(array):
                self._ops.put_nowait(op)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()

    async def say(self, op: ClientOp) -> None:
        self.transport.write(packed.frame(packed.encode_op(op)))

    async def next_op(self) -> Op:
        return await self._ops.get()

    def fall_silent(self) -> None:
        """It answers no ping as it is."""

    async def close(self) -> None:
        self.transport.close()
        await self._lost.wait()


class PollPeer(Peer):
    """Requests and long polls over HTTP."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        super().__init__()
        self._http = http
        self._session = ""
        self._batch: int | None = None
        self._ops: deque[Op] = deque()

    async def hello(self, name: str, **fields: Any) -> Reply:
        opened = (await self._http.post("/v1/poll", json={"as": name, **fields})).json()
        self._session = opened.get("session", "")
        known = {n: v for n, v in opened.items() if n in Reply.__struct_fields__}
        return Reply(id=0, **known)

    async def ask(self, op: ClientOp) -> Reply:
        answer = await self._post(op)
        return Reply(id=0, **answer)

    async def say(self, op: ClientOp) -> None:
        await self._post(op)

    async def _post(self, op: ClientOp) -> dict[str, Any]:
        path = f"/v1/poll/{self._session}/ops"
        answer = await self._http.post(path, content=text.encode_op(op))
        return answer.json()  # type: ignore[no-any-return]

    async def next_op(self) -> Op:
        while not self._ops:
            body = {"session": self._session, "wait_ms": 5000}
            if self._batch is not None:
                body["ack"] = self._batch
            answer = (await self._http.post("/v1/poll", json=body)).json()
            assert answer["ok"], answer
            self._batch = answer["batch"]
            raw = [msgspec.json.encode(message) for message in answer["messages"]]
            self._ops += [text.decode_hub_op(item) for item in raw]
        return self._ops.popleft()

    def fall_silent(self) -> None:
        """It says nothing unless it polls."""

    async def close(self) -> None:
        await self._http.delete(f"/v1/poll/{self._session}")
        await self._http.aclose()


EDGES = ("websocket-text", "websocket-packed", "websocket-deflated", "tcp", "memory", "poll")


class Meeting:
    """A node, and whoever comes to it on any edge."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._peers: list[Peer] = []

    async def connect(self, edge: str) -> Peer:
        """Somebody who has not said hello."""
        where, loop = self.node.addresses(), asyncio.get_running_loop()
        peer: Peer
        if edge.startswith("websocket"):
            compression = "deflate" if edge == "websocket-deflated" else None
            socket = await connect_websocket(
                where["websocket"], compression=compression, ping_interval=None, proxy=None
            )
            assert bool(socket.protocol.extensions) is bool(compression)
            peer = WebSocketPeer(socket, "packed" if edge == "websocket-packed" else "text")
        elif edge == "tcp":
            host, port = where["tcp"].removeprefix("tcp://").split(":")
            _, peer = await loop.create_connection(StreamPeer, host, int(port))
        elif edge == "memory":
            peer = StreamPeer()
            MemoryTransport.join(loop, peer, TcpConnection(self.node.hub, "memory"))
        else:
            http = httpx.AsyncClient(base_url=where["http"], timeout=20, trust_env=False)
            peer = PollPeer(http)
        self._peers.append(peer)
        return peer

    async def join(self, edge: str, name: str, **fields: Any) -> Peer:
        """Somebody who has said hello."""
        peer = await self.connect(edge)
        reply = await peer.hello(f"user:{name}", **fields)
        assert reply.ok, reply
        return peer

    async def leave(self, peer: Peer) -> None:
        """Let somebody go."""
        self._peers.remove(peer)
        await peer.close()

    async def until(self, condition: Any) -> None:
        """Wait until something that the node does on its own has happened."""
        async with asyncio.timeout(TIMEOUT_S):
            while not await condition():
                await asyncio.sleep(0.005)

    async def end(self) -> None:
        """Let everybody go."""
        for peer in self._peers:
            await peer.close()


@asynccontextmanager
async def meeting(node: Node) -> AsyncIterator[Meeting]:
    """Bring peers together on a node."""
    gathered = Meeting(node)
    try:
        yield gathered
    finally:
        await gathered.end()
