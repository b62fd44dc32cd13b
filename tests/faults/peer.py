"""Peers that do what no SDK would: bytes on a socket, said and heard one by one.

All three forms have one face: ops go out as structs or as raw bodies, and come back as dicts. The
end of a connection is heard as `{"op": "closed", "code": ...}`, 1006 when there was no goodbye.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from chappe.client.websocket import masked_frame
from chappe.wire import packed, text
from chappe.wire.ops import CODES, Hello, Op, Pong
from chappe.wire.packed import LENGTH, check_version, frame, read_hub_ops
from chappe.wire.websocket import BINARY, CLOSE, FIN, PING, PONG, TEXT

FORMS = ("text", "packed", "tcp")
TIMEOUT_S = 30.0
_NAMES = {code: op.__struct_config__.tag for op, code in CODES.items()}
ABNORMAL = {"op": "closed", "code": 1006, "reason": ""}


def dial(url: str, receive_buffer: int | None = None) -> socket.socket:
    """A plain connection to the port of a URL."""
    parts = urlsplit(url)
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(TIMEOUT_S)
    try:
        sock.connect((parts.hostname or "", parts.port or 0))
    except OSError:
        sock.close()
        raise
    return sock


def upgrade(url: str) -> bytes:
    """The head of a WebSocket's first request."""
    host = urlsplit(url).netloc
    return (
        f"GET /ws HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


class Peer:
    """One connection on which ops travel; `beats` says whether it answers pings."""

    def __init__(self, sock: socket.socket, *, beats: bool = False) -> None:
        self.sock = sock
        self.beats = beats
        self._buffer = bytearray()
        self._heard: deque[dict[str, Any]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def say(self, *ops: Op) -> None:
        """Send ops, in one write."""
        self.sock.sendall(b"".join(self.framed(self.body(op)) for op in ops))

    def say_body(self, body: bytes) -> None:
        """Send a body that no encoder would make."""
        self.sock.sendall(self.framed(body))

    def greet(self, as_: str, **fields: Any) -> dict[str, Any]:
        """Say hello and hear what comes back."""
        self.say(Hello(id=1, as_=as_, **fields))
        return self.hear()

    def ask(self, op: Op) -> dict[str, Any]:
        """Send an op and hear its reply; what comes before it is left out."""
        self.say(op)
        return self.hear_op("reply", "closed")

    def hear_op(self, *names: str) -> dict[str, Any]:
        """The next op of one of these names."""
        return next(op for op in self if op["op"] in names)

    def hear(self) -> dict[str, Any]:
        """The next op, beats apart; the end of the connection is one."""
        while not self._heard:
            try:
                self._heard.extend(self.read())
            except (ConnectionError, EOFError):
                return ABNORMAL
        return self._heard.popleft()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """What is heard until the end, that included."""
        while True:
            op = self.hear()
            yield op
            if op["op"] == "closed":
                return

    def take(self, size: int) -> bytes:
        """So many bytes; raises EOFError at the end, TimeoutError when nothing comes."""
        while len(self._buffer) < size:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError
            self._buffer += data
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def body(self, op: Op) -> bytes:
        raise NotImplementedError

    def framed(self, body: bytes) -> bytes:
        raise NotImplementedError

    def read(self) -> Iterable[dict[str, Any]]:
        """Read one frame, and give the ops it holds."""
        raise NotImplementedError


class TcpPeer(Peer):
    """Packed ops behind lengths."""

    def body(self, op: Op) -> bytes:
        return packed.encode_op(op)

    def framed(self, body: bytes) -> bytes:
        return frame(body)

    def read(self) -> Iterable[dict[str, Any]]:
        (size,) = LENGTH.unpack(self.take(4))
        for op in _unpacked(self.take(size)):
            if op["op"] != "ping":
                yield op
            elif self.beats:
                self.say(Pong())


class WebSocketPeer(Peer):
    """Ops in frames, as text or packed."""

    def __init__(self, sock: socket.socket, form: str, *, beats: bool = False) -> None:
        super().__init__(sock, beats=beats)
        self._text = form == "text"

    def body(self, op: Op) -> bytes:
        return text.encode_op(op) if self._text else packed.encode_op(op)

    def framed(self, body: bytes) -> bytes:
        return masked_frame(FIN | (TEXT if self._text else BINARY), body, 0x01020304)

    def read(self) -> Iterable[dict[str, Any]]:
        first, second = self.take(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack(">H", self.take(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self.take(8))
        body, kind = self.take(size), first & 0x0F
        if kind == TEXT:
            yield msgspec.json.decode(body)
        elif kind == BINARY:
            yield from _unpacked(body)
        elif kind == CLOSE:
            yield {"op": "closed", "code": int.from_bytes(body[:2]), "reason": body[2:].decode()}
        elif kind == PING and self.beats:
            self.sock.sendall(masked_frame(FIN | PONG, body, 0))


def _unpacked(body: bytes) -> Iterator[dict[str, Any]]:
    for op in read_hub_ops(check_version(body)):
        code: Any = op.__struct_config__.tag
        fields = {f.encode_name: getattr(op, f.name) for f in msgspec.structs.fields(op)}
        yield {"op": _NAMES[code], **{k: v for k, v in fields.items() if v is not None}}


def connect(
    addresses: Any, form: str, *, beats: bool = False, receive_buffer: int | None = None
) -> Peer:
    """Connect in one of the forms, up to where hello may be said."""
    if form == "tcp":
        return TcpPeer(dial(addresses["tcp"], receive_buffer), beats=beats)
    peer = WebSocketPeer(dial(addresses["websocket"], receive_buffer), form, beats=beats)
    peer.sock.sendall(upgrade(addresses["websocket"]))
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        head += peer.take(1)
    assert head.startswith(b"HTTP/1.1 101 "), head
    return peer


def wait_for_end(sock: socket.socket) -> bytes:
    """Read until the other side ends the connection, however it does; return what came."""
    received = bytearray()
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(1 << 16):
            received += data
    return bytes(received)
