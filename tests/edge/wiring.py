"""A hub behind a WebSocket edge on a real socket, and a client that can break every rule."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from chappe.clock import SystemClock
from chappe.edge.origin import Origins
from chappe.edge.websocket import WebSocketEdge
from chappe.endpoints.application import Application
from chappe.hub.hub import Hub
from chappe.hub.options import HubOptions
from chappe.wire.limits import Limits
from tests.hubs import make_hub


@dataclass
class Served:
    """A running edge."""

    hub: Hub
    port: int
    peers: list[Peer] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def connect(self, path: str = "/echo", headers: str = "") -> Peer:
        """A raw connection whose handshake went well."""
        peer = await self.dial()
        status = await peer.handshake(path, headers)
        assert status == 101, peer.response
        return peer

    async def dial(self) -> Peer:
        """A raw connection before its handshake."""
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port))
        self.peers.append(peer)
        return peer


@asynccontextmanager
async def serving(
    *,
    echo: bool = True,
    deflate: bool = True,
    origins: tuple[str, ...] = (),
    loopback: bool = False,
    limits: Limits | None = None,
    options: HubOptions | None = None,
    handshake_timeout_s: float = 5.0,
) -> AsyncIterator[Served]:
    """A hub that lets everybody in, on a free port."""
    loop, clock = asyncio.get_running_loop(), SystemClock()
    hub = make_hub(loop, clock, options=options, limits=limits)
    Application.embedded(hub, loop)
    edge = WebSocketEdge(
        hub,
        Origins(origins, loopback=loopback),
        loop=loop,
        deflate=deflate,
        echo=echo,
        handshake_timeout_s=handshake_timeout_s,
    )
    protocols: list[Any] = []

    def protocol() -> Any:
        protocols.append(edge.protocol())
        return protocols[-1]

    server = await loop.create_server(protocol, "127.0.0.1", 0)
    served = Served(hub, server.sockets[0].getsockname()[1])
    hub.start()
    try:
        yield served
    finally:
        server.close()
        hub.stop()
        for peer in served.peers:
            peer.writer.transport.abort()
        for each in protocols:
            await each.transport.wait_disconnected()


def masked(opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0) -> bytes:
    """A client's frame; the lengths are not checked, so that a wrong one can be made."""
    size = len(payload)
    key = os.urandom(4)
    body = bytes(byte ^ key[n % 4] for n, byte in enumerate(payload))
    return header(opcode, size, fin=fin, rsv=rsv) + key + body


def header(opcode: int, size: int, *, fin: bool = True, rsv: int = 0, mask: bool = True) -> bytes:
    """The header of a frame, as far as the mask's key."""
    first = fin << 7 | rsv << 4 | opcode
    bit = mask << 7
    if size < 126:
        return bytes([first, bit | size])
    if size < 65_536:
        return bytes([first, bit | 126]) + size.to_bytes(2, "big")
    return bytes([first, bit | 127]) + size.to_bytes(8, "big")


class Peer:
    """A client that writes what it is told and reads by the letter of RFC 6455."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.response = b""

    async def handshake(self, path: str = "/echo", headers: str = "", **changes: str | None) -> int:
        """Ask for an upgrade and return the status; a change of None leaves a header out."""
        standard: dict[str, str | None] = {
            "Host": "127.0.0.1",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": b64encode(bytes(16)).decode(),
            "Sec-WebSocket-Version": "13",
        }
        standard |= {name.replace("_", "-"): value for name, value in changes.items()}
        lines = [f"{name}: {value}\r\n" for name, value in standard.items() if value is not None]
        return await self.ask(f"GET {path} HTTP/1.1\r\n{''.join(lines)}{headers}\r\n".encode())

    async def ask(self, request: bytes) -> int:
        """Send a request and return its status."""
        self.send(request)
        self.response = await self.reader.readuntil(b"\r\n\r\n")
        return int(self.response.split(b" ", 2)[1])

    def send(self, *frames: bytes) -> None:
        """Write frames as one segment."""
        self.writer.write(b"".join(frames))

    def say(self, **op: Any) -> None:
        """Send an op as text."""
        self.send(masked(0x1, msgspec.json.encode(op)))

    async def hear(self) -> dict[str, Any]:
        """The next op, which must be text."""
        first, payload = await self.frame()
        assert first == 0x81, (first, payload)
        return msgspec.json.decode(payload)  # type: ignore[no-any-return]

    async def hello(self, name: str = "user:a") -> None:
        self.say(op="hello", id=1, **{"as": name})
        assert (await self.hear())["ok"]

    async def frame(self) -> tuple[int, bytes]:
        """The next frame as (first byte, payload)."""
        first, size = await self.reader.readexactly(2)
        assert not size & 0x80, "a server's frame is not masked"
        if size == 126:
            size = int.from_bytes(await self.reader.readexactly(2), "big")
        elif size == 127:
            size = int.from_bytes(await self.reader.readexactly(8), "big")
        return first, await self.reader.readexactly(size)

    async def closed(self, *, answer: bool = True) -> int:
        """Read the close frame and the end of the stream behind it; return the code.

        Before it, a hub may say in an op of its own what was wrong.
        """
        first, payload = await self.frame()
        if first == 0x81 and msgspec.json.decode(payload).get("op") == "error":
            first, payload = await self.frame()
        assert first == 0x88, (first, payload)
        if answer:
            self.send(masked(0x8, payload[:2]))
        assert await self.reader.read() == b"", "something came after the close frame"
        self.writer.close()
        return int.from_bytes(payload[:2], "big") if payload else 1005
