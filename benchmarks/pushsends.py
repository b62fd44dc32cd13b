"""Notes to one device each, through the API, as an app's servers send them: signed, one by one."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from dataclasses import dataclass, field
from random import Random

from benchmarks.load import LoadError
from benchmarks.pushservers import PushLayout

_CONNECTIONS = 16
_PATH = "/v1/push/send"


@dataclass
class Sends:
    """What was sent, and what that took."""

    connections: int = _CONNECTIONS
    count: int = 0
    seconds: float = 0.0
    took_ms: list[float] = field(default_factory=list)
    cpu_us: dict[str, float] = field(default_factory=dict)


def send_for(layout: PushLayout, clients: list[str], seconds: float, size: int) -> Sends:
    """Send for so long; raises LoadError."""
    sends = Sends()
    content = b64encode(b"x" * size).decode()
    rng = Random(7)

    async def one() -> None:
        port = int(layout.desk.ports["http"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.monotonic() < end:
            body = json.dumps({"client": rng.choice(clients), "data64": content}).encode()
            begun = time.monotonic()
            writer.write(_request(layout, body))
            status, answer = await _response(reader)
            if status != 200:
                raise LoadError(f"push: {_PATH} answers {status}: {answer[:200]!r}")
            sends.took_ms.append((time.monotonic() - begun) * 1000)
        writer.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(_CONNECTIONS)))

    begun = time.monotonic()
    end = begun + seconds
    asyncio.run(all_of_them())
    sends.count, sends.seconds = len(sends.took_ms), time.monotonic() - begun
    return sends


def _request(layout: PushLayout, body: bytes) -> bytes:
    headers = {"Host": "127.0.0.1", "Content-Type": "application/json"}
    headers |= {"Content-Length": str(len(body)), **layout.signed(_PATH, body)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {_PATH} HTTP/1.1\r\n{lines}\r\n".encode() + body


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
    return int(head.split(b" ", 2)[1]), await reader.readexactly(int(length))
