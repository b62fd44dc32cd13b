"""A connection to a mesh's port that can say anything, with the secret or without."""

from __future__ import annotations

import asyncio
import os

from chappe.wire.link import Credentials, Dialling, FrameKind, Frames, link_key, write_ping
from tests.cluster.meshes import SECRET
from tests.edge.wiring import Peer as RawPeer
from tests.edge.wiring import masked

BINARY = 0x2


class Intruder(RawPeer):
    """Speaks to a link's acceptor byte by byte."""

    frames: Frames

    @classmethod
    async def connect(cls, port: int) -> Intruder:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    @classmethod
    async def upgrade(cls, port: int) -> Intruder:
        """Connect and be let through to the handshake between nodes."""
        peer = await cls.connect(port)
        assert await peer.handshake("/link") == 101
        return peer

    @classmethod
    async def prove(cls, port: int, name: str, *, incarnation: int = 1, attempt: int = 0):
        """Be a node: a proven peer that is not up until it says something."""
        peer = await cls.upgrade(port)
        credentials = Credentials(
            key=link_key(SECRET), cluster="chappe", name=name, incarnation=incarnation
        )
        handshake = Dialling(credentials, os.urandom(32), attempt=attempt)
        peer.say_raw(handshake.hello())
        proof = handshake.take(await peer.hear_raw())
        assert proof is not None
        peer.say_raw(proof)
        assert handshake.take(await peer.hear_raw()) is None
        peer.frames = Frames(16 * 1024 * 1024)
        return peer

    def say_raw(self, message: bytes) -> None:
        self.send(masked(BINARY, message))

    async def hear_raw(self) -> bytes:
        first, payload = await self.frame()
        assert first == 0x80 | BINARY, (first, payload)
        return payload

    def frame_of(self, body: bytes, kind: FrameKind = FrameKind.BODY) -> bytes:
        """The next numbered frame."""
        return self.frames.head(kind) + body

    def come_up(self) -> None:
        self.say_raw(self.frame_of(write_ping(1.0), FrameKind.PING))

    async def hung_up(self) -> bytes:
        """Wait until the other side hangs up; return what it still said."""
        rest = b""
        try:
            while data := await self.reader.read(65_536):
                rest += data
        except ConnectionResetError:
            pass
        self.writer.close()
        return rest
