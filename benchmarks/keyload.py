"""The load of keys: sessions that read and count, as a process of its own.

    python -m benchmarks.keyload    what it is to be as a line of JSON on standard input

It connects, says so, and from then on each line on standard input is how many messages every
session is to have by then; it says when all have them. It ends with its input, and fails when one
of them came twice, or another one in its place.

A server is measured, and not this: raw sockets, no event loop, no compression; and as whoever
writes on this machine pays for waking who reads, it looks only now and then.
"""

from __future__ import annotations

import os
import re
import select
import socket
import sys
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from benchmarks.load import LoadError

_BYTES = 65_536
_TIMEOUT_S = 30.0
_STALL_S = 60.0
_PAUSE_S = 0.002
_TEXT, _PING, _PONG = 0x1, 0x9, 0xA
_NUMBER = re.compile(rb'"(\d{8})x')
# Of Engine.IO 4, and of the protocol in its messages.
_OPEN, _JOIN, _JOINED, _BEAT, _BEAT_ANSWER = b"0", b"40", b"40", b"2", b"3"


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """Who is to connect, and where."""

    port: int
    path: str
    sessions: int
    engineio: bool


class Counting(Protocol):
    """How many messages somebody has, and the sum of their numbers."""

    count: int
    total: int


class Reader:
    """One session: counts its messages, and answers signs of life."""

    __slots__ = ("_engineio", "_rest", "_socket", "count", "total")

    def __init__(self, spec: Spec) -> None:
        self._engineio = spec.engineio
        self._rest = b""
        self.count = self.total = 0
        self._socket = socket.create_connection(("127.0.0.1", spec.port), _TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._upgrade(spec)
        if spec.engineio:
            self._await(_OPEN)
            self._say(_TEXT, _JOIN)
            self._await(_JOINED)
        else:
            # It is told when it has its key.
            self._await(b"{")
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """What is polled."""
        return self._socket.fileno()

    def read(self) -> int:
        """Take what there is; how many messages that were."""
        data = self._socket.recv(_BYTES)
        if not data:
            raise LoadError("a server hung up")
        before = self.count
        for opcode, payload in self._frames(data):
            if opcode == _PING:
                self._say(_PONG, payload)
            elif self._engineio and payload == _BEAT:
                self._say(_TEXT, _BEAT_ANSWER)
            elif found := _NUMBER.search(payload):
                self.count += 1
                self.total += int(found[1])
            else:
                raise LoadError(f"nobody asked for {payload[:64]!r}")
        return self.count - before

    def _upgrade(self, spec: Spec) -> None:
        self._socket.sendall(
            f"GET {spec.path} HTTP/1.1\r\nHost: 127.0.0.1:{spec.port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = self._socket.recv(_BYTES)
            answer += data
            if not data:
                raise LoadError(f"no upgrade: {answer[:200]!r}")
        head, _, self._rest = answer.partition(b"\r\n\r\n")
        if b" 101 " not in head[:16]:
            raise LoadError(f"no upgrade: {head[:200]!r}")

    def _await(self, start: bytes) -> None:
        frames = list(self._frames(b""))
        while not frames:
            frames = list(self._frames(self._socket.recv(_BYTES)))
        if len(frames) != 1 or not frames[0][1].startswith(start):
            raise LoadError(f"nobody expected {frames!r}")

    def _frames(self, data: bytes) -> list[tuple[int, bytes]]:
        """Whole frames, as opcode and payload; what is left of one waits."""
        data, found, at = self._rest + data, [], 0
        while len(data) - at >= 2:
            size, start = data[at + 1], at + 2
            if size == 126:
                start += 2
                size = int.from_bytes(data[at + 2 : start], "big")
            if len(data) < start + size:
                break
            found.append((data[at] & 0x0F, data[start : start + size]))
            at = start + size
        self._rest = data[at:]
        return found

    def _say(self, opcode: int, payload: bytes) -> None:
        """A short frame, masked with zeroes: a client's have to be masked."""
        self._socket.send(bytes((0x80 | opcode, 0x80 | len(payload), 0, 0, 0, 0)) + payload)


def main() -> None:
    """Connect, and count for as long as somebody asks."""
    spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=Spec)
    readers = [Reader(spec) for _ in range(spec.sessions)]
    print("connected", flush=True)
    poll = select.epoll()
    orders = sys.stdin.fileno()
    poll.register(orders, select.EPOLLIN)
    of_fd = {reader.fileno(): reader for reader in readers}
    for fd in of_fd:
        poll.register(fd, select.EPOLLIN)
    wanted = taken = 0
    while True:
        events = poll.poll(_STALL_S)
        if not events and wanted:
            raise LoadError(f"{taken} of {wanted * len(readers)} messages came")
        for fd, _ in events:
            if fd != orders:
                taken += of_fd[fd].read()
            elif line := os.read(orders, 64):
                wanted = int(line)
            else:
                return
        if wanted and taken >= wanted * len(readers):
            check(readers, wanted)
            print("taken", flush=True)
            wanted = 0
        time.sleep(_PAUSE_S)


def check(readers: Sequence[Counting], wanted: int) -> None:
    """Each has the numbers from 1 on, each of them once; raises LoadError."""
    total = wanted * (wanted + 1) // 2
    for reader in readers:
        if (reader.count, reader.total) != (wanted, total):
            raise LoadError(f"{reader.count} messages came instead of {wanted}, or others")


if __name__ == "__main__":
    main()
