"""Lockstep: the same work again and again, each time all of it at once.

What a node pays for a message depends on how many it finds when it wakes, and that on whoever else
uses the machine. So a node is stopped while its work is laid out, goes on when all of it waits in
its sockets, and is stopped when all is delivered: whatever else runs, it finds the same. Its own
CPU time in between is what counts, to the nanosecond. Turns are short, and taken in one way after
the other, so that what disturbs one of them disturbs the others; and of many turns the cheaper ones
count, as others on the machine only ever add to them.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.server import Server, ServerError
from benchmarks.switched import OFF, ON

_MARK = b"@!~@"
_PAYLOAD = "x" * 124 + _MARK.decode()
_MASK = bytes(4)
_UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_TIMEOUT_S = 20.0
_PAUSE_S = 0.02


@dataclass(frozen=True)
class Drill:
    """Who sends how much to whom in one round."""

    protocol: str
    # One publisher and so many subscribers, or so many senders with a receiver each.
    shape: str
    count: int
    # How many messages a sender has in one write.
    chunk: int

    @property
    def deliveries(self) -> int:
        """How many a round has."""
        return self.count * self.chunk

    def rounds(self, messages: int) -> int:
        """How many rounds have at least so many messages."""
        sent = self.deliveries if self.shape == "pairs" else self.chunk
        return -(-messages // sent)


def _json(op: dict[str, object]) -> bytes:
    body = msgspec.json.encode(op)
    if len(body) < 126:
        return bytes((0x81, 0x80 | len(body))) + _MASK + body
    return bytes((0x81, 0xFE)) + len(body).to_bytes(2, "big") + _MASK + body


def _packed(op: list[object]) -> bytes:
    body = b"\x01" + msgspec.msgpack.encode(op)
    return len(body).to_bytes(4, "big") + body


class _Line:
    """One connection."""

    def __init__(self, port: int, protocol: str, address: str) -> None:
        self._packed = protocol == "packed"
        self.socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tail = b""
        if self._packed:
            self._ask(_packed([1, 1, address]))
        else:
            self._ask(_UPGRADE)
            self._ask(_json({"op": "hello", "id": 1, "as": address}))

    def _ask(self, said: bytes) -> None:
        self.socket.sendall(said)
        if not self.socket.recv(65_536):
            raise ServerError("chappe closed a connection")

    def subscribe(self, topic: str) -> None:
        op = {"op": "subscribe", "id": 2, "to": topic}
        self._ask(_packed([6, 2, topic]) if self._packed else _json(op))

    def chunk(self, op: str, to: str, count: int) -> bytes:
        """So many messages in one write."""
        if self._packed:
            code = {"send": 4, "publish": 5}[op]
            one: list[object] = [code, None, to, _PAYLOAD.encode(), True]
            return _packed([one] * count if count > 1 else one)
        return _json({"op": op, "to": to, "data": _PAYLOAD}) * count

    def receive(self, count: int) -> None:
        """Read until so many messages were delivered; raises ServerError."""
        while count > 0:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ServerError("chappe closed a connection")
            data = self._tail + data
            count -= data.count(_MARK)
            self._tail = data[1 - len(_MARK) :] if not data.endswith(_MARK) else b""


def cpu_ns(server: Server) -> int:
    """The CPU time of all threads of a server's process, see clock_getcpuclockid(3)."""
    return time.clock_gettime_ns(~server.process.pid << 3 | 2)


class Crew:
    """The clients of one node."""

    def __init__(self, server: Server, drill: Drill) -> None:
        self._server = server
        self._pid = server.process.pid
        self._drill = drill
        port, protocol = int(server.ports[drill.protocol]), drill.protocol
        senders = 1 if drill.shape == "fan" else drill.count
        self._receivers = [_Line(port, protocol, f"user:r{n:06}") for n in range(drill.count)]
        self._senders = [_Line(port, protocol, f"user:s{n:06}") for n in range(senders)]
        if drill.shape == "fan":
            for line in self._receivers:
                line.subscribe("topic:t")
        self._work = [
            line.chunk("publish", "topic:t", drill.chunk)
            if drill.shape == "fan"
            else line.chunk("send", f"user:r{n:06}", drill.chunk)
            for n, line in enumerate(self._senders)
        ]
        os.kill(self._pid, signal.SIGSTOP)

    def turn(self, rounds: int) -> int:
        """Let the node do its work so often; the CPU nanoseconds it took."""
        # What it does by the clock, and did not while it was stopped, it does now.
        self._round()
        os.kill(self._pid, signal.SIGCONT)
        time.sleep(_PAUSE_S)
        os.kill(self._pid, signal.SIGSTOP)
        return sum(self._round() for _ in range(rounds))

    def _round(self) -> int:
        for line, work in zip(self._senders, self._work, strict=True):
            line.socket.sendall(work)
        began = cpu_ns(self._server)
        os.kill(self._pid, signal.SIGCONT)
        try:
            for line in self._receivers:
                line.receive(self._drill.chunk)
        finally:
            os.kill(self._pid, signal.SIGSTOP)
        return cpu_ns(self._server) - began

    def close(self) -> None:
        """Let the node go on, without them."""
        os.kill(self._pid, signal.SIGCONT)
        for line in (*self._receivers, *self._senders):
            line.socket.close()


class Cost(NamedTuple):
    """The CPU microseconds that a delivery took, off and on, and the share of them that was not the
    kernel's."""

    off: float
    on: float
    user: float


def switched_costs(server: Server, drill: Drill, messages: int, turns: int) -> Cost:
    """Let one that can be switched (switched.py) take so many turns either way; raises
    ServerError."""
    rounds = drill.rounds(messages)
    user, kernel = _ticks(server)
    spent: dict[signal.Signals, list[int]] = {OFF: [], ON: []}
    crew = Crew(server, drill)
    try:
        for turn in range(2 * turns):
            # Off, on, on, off: whatever grows with time grows for both.
            way = ON if turn % 4 in (1, 2) else OFF
            os.kill(server.process.pid, way)
            spent[way].append(crew.turn(rounds))
    finally:
        crew.close()
    user, kernel = (now - then for now, then in zip(_ticks(server), (user, kernel), strict=True))
    server.settle()
    deliveries = rounds * drill.deliveries
    off, on = (sorted(each)[len(each) // 4] / 1000 / deliveries for each in spent.values())
    return Cost(off, on, user / (user + kernel))


def _ticks(server: Server) -> tuple[int, int]:
    """The CPU time of its process, its own and the kernel's, in the kernel's ticks: see proc(5)."""
    said = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(said[11]), int(said[12])
