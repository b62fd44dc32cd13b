"""Very many clients at once, in a process of its own: `python -m tests.faults.crowd FORM URL N`.

Prints one line when every connection was answered or lost, and closes them when told to.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
import time
from typing import cast
from urllib.parse import urlsplit

import uvloop

from chappe.client.websocket import masked_frame
from chappe.wire import packed, text
from chappe.wire.ops import Hello
from chappe.wire.websocket import FIN, TEXT

from .peer import upgrade

_TIMEOUT_S = 60.0


class Member(asyncio.Protocol):
    """One connection: upgrades if it must, says hello, waits for the reply."""

    def __init__(self, upgrade: bytes, hello: bytes) -> None:
        self._upgrade = upgrade
        self._hello = hello
        self._heard = b""
        self.answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        # Closed by reset: thousands of ports must not wait for a minute afterwards.
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.write(self._upgrade or self._hello)

    def data_received(self, data: bytes) -> None:
        self._heard += data
        if self._upgrade:
            if b"\r\n\r\n" in self._heard:
                self._heard = self._heard.partition(b"\r\n\r\n")[2]
                self._upgrade = b""
                self.transport.write(self._hello)
        elif not self.answered.done():
            # A reply to hello names the session, in either form.
            self.answered.set_result(len(self._heard) > 32)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_result(False)


def member(form: str, url: str, number: int) -> Member:
    hello = Hello(id=1, as_=f"user:crowd-{number}")
    if form == "tcp":
        return Member(b"", packed.frame(packed.encode_op(hello)))
    return Member(upgrade(url), masked_frame(FIN | TEXT, text.encode_op(hello), number))


async def connect(form: str, url: str, number: int) -> bool:
    parts = urlsplit(url)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            _, protocol = await loop.create_connection(
                lambda: member(form, url, number), parts.hostname, parts.port
            )
            return await protocol.answered
    except (OSError, TimeoutError):
        return False


async def crowd(form: str, url: str, count: int) -> None:
    begin = time.monotonic()
    answered = sum(await asyncio.gather(*(connect(form, url, n) for n in range(count))))
    report = {"answered": answered, "seconds": time.monotonic() - begin}
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    uvloop.run(crowd(sys.argv[1], sys.argv[2], int(sys.argv[3])))
