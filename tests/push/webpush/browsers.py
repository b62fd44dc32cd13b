"""Browsers that decrypt what they get, and a push service on real sockets that answers as told."""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from chappe.push.webpush.subscription import Subscription


def text(octets: bytes) -> str:
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


class Browser:
    """A receiver, written from RFC 8188 and RFC 8291 apart from what it tests."""

    def __init__(self, endpoint, key=None, auth=b"0123456789abcdef") -> None:
        self.endpoint = endpoint
        number = Random(endpoint).randrange(1, 2**255)
        self.key = key or ec.derive_private_key(number, ec.SECP256R1())
        self.auth = auth
        self.point = self.key.public_key().public_bytes(
            Encoding.X962, PublicFormat.UncompressedPoint
        )

    @property
    def subscription(self) -> Subscription:
        return Subscription(self.endpoint, self.point, self.auth)

    def to_json(self) -> dict:
        keys = {"p256dh": text(self.point), "auth": text(self.auth)}
        return {"endpoint": self.endpoint, "expirationTime": None, "keys": keys}

    def decrypt(self, body: bytes) -> bytes:
        salt, size, length = body[:16], int.from_bytes(body[16:20]), body[20]
        sender, record = body[21 : 21 + length], body[21 + length :]
        assert len(record) <= size, "one record"
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        shared = self.key.exchange(ec.ECDH(), public)
        info = b"WebPush: info\0" + self.point + sender
        material = HKDF(SHA256(), 32, self.auth, info).derive(shared)
        secret = HKDF(SHA256(), 16, salt, b"Content-Encoding: aes128gcm\0").derive(material)
        nonce = HKDF(SHA256(), 12, salt, b"Content-Encoding: nonce\0").derive(material)
        padded = AESGCM(secret).decrypt(nonce, record, None).rstrip(b"\0")
        assert padded[-1:] == b"\2", "the last record"
        return padded[:-1]

    def read(self, request: Request) -> dict:
        return json.loads(self.decrypt(request.body))


class Request(NamedTuple):
    """What came."""

    target: str
    headers: dict[str, str]
    body: bytes

    def claims(self, origin: str) -> dict:
        """What is signed with the key that is shown; raises for what is not (RFC 8292)."""
        scheme, _, rest = self.headers["authorization"].partition(" ")
        assert scheme == "vapid"
        fields = dict(field.strip().split("=", 1) for field in rest.split(","))
        point = urlsafe_b64decode(fields["k"] + "=" * (-len(fields["k"]) % 4))
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
        options = {"verify_exp": False, "require": ["aud", "exp"]}
        claims = jwt.decode(fields["t"], key, ["ES256"], options, audience=origin)
        return {**claims, "k": fields["k"]}


Respond = Callable[[Request], bytes | Awaitable[bytes | None] | None]


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class PushService:
    """Takes requests; answers with what `respond` gives, and not at all where it gives None."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.respond: Respond = lambda request: answer(201)
        self.came = asyncio.Event()
        self.port = 0
        # Answers of this size go on until the other side closes.
        self.endless = False
        self.bytes_written = 0
        self.hung_up = asyncio.Event()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def browser(self, name: str = "a") -> Browser:
        return Browser(f"{self.origin}/push/{name}")

    async def requested(self, count: int) -> list[Request]:
        """The first so many."""
        while len(self.requests) < count:
            self.came.clear()
            await self.came.wait()
        return self.requests[:count]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                request = await self._read(reader)
                self.requests.append(request)
                self.came.set()
                said = self.respond(request)
                if asyncio.iscoroutine(said):
                    said = await said
                if said is None:
                    await reader.read()
                    return
                writer.write(said)
                while self.endless:
                    writer.write(bytes(65536))
                    await writer.drain()
                    self.bytes_written += 65536
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.hung_up.set()
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        assert method == "POST"
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Request(target, headers, body)


@asynccontextmanager
async def push_service(tls: ssl.SSLContext | None = None) -> AsyncIterator[PushService]:
    """One on a free port of this machine."""
    service = PushService()
    tasks: set[asyncio.Task] = set()

    async def serve(reader, writer):
        tasks.add(asyncio.current_task())
        await service.serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
