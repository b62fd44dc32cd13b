"""Who is at the other end of a push server: devices of Chappe, subscribers of MQTT."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from random import Random
from typing import Protocol

from chappe.wire.push import (
    Auth,
    ExchangeKey,
    GetMessageList,
    Heartbeat,
    Message,
    MessageAck,
    decode_response,
    encode_command,
)
from chappe.wire.pushcipher import DeviceAgreement, Opening

# One device in so many does all that a device does.
CHECKING = 200
TOPIC = b"t"
_LIST = encode_command(GetMessageList())
_OK, _ERROR, _AUTH_SUCCESS, _MESSAGE_LIST, _MESSAGE = 0, 1, 2, 4, 5
_CONNACK, _PUBLISH, _SUBACK = 0x20, 0x30, 0x90


class Peer:
    """One connection."""

    __slots__ = ("begun", "number", "opening", "ready", "rest", "socket")

    def __init__(self, at: socket.socket, number: int, begun: float) -> None:
        self.socket = at
        self.number = number
        self.begun = begun
        self.ready = False
        self.rest = b""
        self.opening: DeviceAgreement | Opening | None = None


class Peers(Protocol):
    """What all connections of a process have in common."""

    # What is said from time to time, if anything is.
    beat: bytes
    # Whether what is delivered is acknowledged.
    acknowledge: bool
    ready: int
    deliveries: int
    checked: int
    logins_ms: list[float]

    def greet(self, peer: Peer) -> bytes:
        """What is said first."""
        ...

    def take(self, peer: Peer, data: bytes) -> bytes:
        """Take what was read; what is answered."""
        ...


class Devices:
    """Devices that log in, ask for what waits, and take what comes."""

    beat = encode_command(Heartbeat())

    def __init__(
        self,
        grants: Sequence[Sequence[str]],
        first: int,
        identity: bytes,
        rng: Random,
    ) -> None:
        self._grants = grants
        self._first = first
        self._identity = identity
        self.acknowledge = True
        self._rng = rng
        shared = DeviceAgreement("", rng.randbytes(32), identity)
        self._exchange = encode_command(ExchangeKey(shared.secret_key))
        self.ready = self.deliveries = self.checked = 0
        self.logins_ms: list[float] = []
        # The acknowledgement of the note that was delivered last: most get the same.
        self._last: tuple[bytes, bytes] = (b"", b"")

    def greet(self, peer: Peer) -> bytes:
        client, token = self._grants[peer.number - self._first]
        if peer.number % CHECKING == 0:
            peer.opening = DeviceAgreement(client, self._rng.randbytes(32), self._identity)
        return encode_command(Auth(client, token))

    def take(self, peer: Peer, data: bytes) -> bytes:
        at, end, answer = 0, len(data), b""
        while end - at >= 2:
            stop = at + 2 + (data[at] << 8 | data[at + 1])
            if stop > end:
                break
            kind = data[at + 2]
            if kind == _MESSAGE:
                answer += self._deliver(peer, data[at + 2 : stop])
            elif kind != _OK or not peer.ready:
                answer += self._answer(peer, kind, data[at + 2 : stop])
            at = stop
        peer.rest = data[at:]
        return answer

    def _deliver(self, peer: Peer, frame: bytes) -> bytes:
        self.deliveries += 1
        if isinstance(peer.opening, Opening):
            message = decode_response(frame)
            assert isinstance(message, Message)
            peer.opening.open(message.message.head, message.message.encrypted_content)
            self.checked += 1
        if not self.acknowledge:
            return b""
        # Behind the frame's type and the note's: a length and an id.
        note = frame[4 : 4 + frame[3]] if not frame[2] else b""
        if self._last[0] != note:
            self._last = (note, encode_command(MessageAck((note.decode(),))))
        return self._last[1]

    def _answer(self, peer: Peer, kind: int, frame: bytes) -> bytes:
        if kind == _AUTH_SUCCESS:
            if not isinstance(peer.opening, DeviceAgreement):
                return self._exchange
            agreement, key = peer.opening, frame[3:]
            peer.opening = agreement.agree(key)
            return encode_command(ExchangeKey(agreement.secret_key))
        if kind == _OK:
            return _LIST
        if kind == _MESSAGE_LIST and not peer.ready:
            peer.ready = True
            self.ready += 1
            self.logins_ms.append((time.monotonic() - peer.begun) * 1000)
            return b""
        raise SystemExit(f"device {peer.number}: {decode_response(frame)}")


class Subscribers:
    """Subscribers of one topic, over MQTT 3.1.1; those who acknowledge do so by its QoS 1."""

    beat = b""

    def __init__(self, *, acknowledge: bool) -> None:
        self.acknowledge = acknowledge
        self._qos = int(acknowledge)
        self.ready = self.deliveries = self.checked = 0
        self.logins_ms: list[float] = []

    def greet(self, peer: Peer) -> bytes:
        return connect(f"r{peer.number}") + _packet(
            0x82, b"\0\1" + _text(TOPIC) + bytes((self._qos,))
        )

    def take(self, peer: Peer, data: bytes) -> bytes:
        at, end, answer = 0, len(data), b""
        while end - at >= 2:
            size, body = data[at + 1], at + 2
            if size > 127:
                if end - at < 3:
                    break
                size, body = (size & 127) + (data[at + 2] << 7), at + 3
            if body + size > end:
                break
            kind = data[at] & 0xF0
            if kind == _PUBLISH:
                self.deliveries += 1
                if self._qos:
                    number = body + 2 + len(TOPIC)
                    answer += b"\x40\2" + data[number : number + 2]
            elif kind == _SUBACK:
                self.ready += 1
                self.logins_ms.append((time.monotonic() - peer.begun) * 1000)
            elif kind != _CONNACK or data[body + 1]:
                raise SystemExit(f"subscriber {peer.number} was refused: {data[at:]!r}")
            at = body + size
        peer.rest = data[at:]
        return answer


def connect(name: str) -> bytes:
    """How somebody connects, and is forgotten when it leaves."""
    return _packet(0x10, b"\0\4MQTT\4\2\0\0" + _text(name.encode()))


def publish(payload: bytes, qos: int, number: int) -> bytes:
    """Say something to all subscribers."""
    packet_id = number.to_bytes(2, "big") if qos else b""
    return _packet(_PUBLISH | qos << 1, _text(TOPIC) + packet_id + payload)


def _packet(kind: int, body: bytes) -> bytes:
    size = len(body)
    length = bytes((size,)) if size < 128 else bytes((size & 127 | 128, size >> 7))
    return bytes((kind,)) + length + body


def _text(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text
