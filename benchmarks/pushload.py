"""The load of push: very many devices, or subscribers of MQTT, in one process of several.

    python -m benchmarks.pushload    what it is to be as a line of JSON on standard input

It opens its connections, some under way at a time, and says so. From then on each line on standard
input is an `Order`: so many deliveries it takes, and says when it has them. It ends with its input.

A server is measured, and not this: there is no event loop and no object but one per connection. A
device says what a real one says, and one in some of them does all of it: it checks the comet's
signature, agrees on a key of its own and decrypts. The others have a key in common that they do not
use.
"""

from __future__ import annotations

import select
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from benchmarks.pushpeers import Devices, Peer, Peers, Subscribers

# Connections of one process that are being opened at a time.
UNDER_WAY = 64
_BYTES = 65_536
_EVENTS = 512
_STALL_S = 60.0
# Well within what a comet waits for a sign of life.
_BEAT_S = 100.0
_LOOPBACK = 127 << 24
_NO_PORT = getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24)


class Spec(msgspec.Struct, kw_only=True):
    """What a process of the load is to be."""

    protocol: str
    ports: list[int]
    # Its connections are numbered from here on.
    first: int
    count: int
    # The file with their clients and tokens, a line each.
    grants: str = ""
    identity: str = ""
    under_way: int = UNDER_WAY
    # Whether subscribers of MQTT acknowledge, which they say when they subscribe.
    acknowledge: bool = True
    # The certificate that servers show, if they are spoken to over TLS.
    certificate: str = ""
    sources: int = 8


class Opened(msgspec.Struct):
    """All are in: how long that took, and what a login took, in milliseconds, sorted."""

    seconds: float
    logins_ms: list[float]


class Order(msgspec.Struct):
    """What is to be taken, and whether it is acknowledged."""

    deliveries: int
    acknowledge: bool


class Taken(msgspec.Struct):
    """What was asked for has come."""

    deliveries: int
    # Decrypted, by those that do.
    checked: int


class PushLoad:
    """The connections of one process."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._poll = select.epoll()
        self._peers: dict[int, Peer] = {}
        self._all = _peers(spec)
        self._tls = None
        if spec.certificate:
            self._tls = ssl.create_default_context(cafile=spec.certificate)
        self._beaten_to, self._beat_at = 0, time.monotonic() + 1.0
        self._stdin = sys.stdin.fileno()

    def open(self) -> Opened:
        """Log all in."""
        spec, begun = self._spec, time.monotonic()
        moved, opened, before = begun, 0, 0
        while self._all.ready < spec.count:
            while opened < spec.count and opened - self._all.ready < spec.under_way:
                self._dial(spec.first + opened)
                opened += 1
            self._turn(1.0)
            if self._all.ready > before:
                before, moved = self._all.ready, time.monotonic()
            if time.monotonic() - moved > _STALL_S:
                raise SystemExit(f"only {self._all.ready} of {spec.count} are logged in")
        return Opened(time.monotonic() - begun, sorted(self._all.logins_ms))

    def serve(self) -> None:
        """Take what comes, and tell of it, until there is nobody to tell."""
        self._poll.register(self._stdin, select.EPOLLIN)
        wanted = told = 0
        while True:
            if self._turn(1.0):
                line = sys.stdin.readline()
                if not line:
                    return
                order = msgspec.json.decode(line, type=Order)
                self._all.acknowledge = order.acknowledge
                wanted = told + order.deliveries
            if wanted > told and self._all.deliveries >= wanted:
                told = self._all.deliveries
                wanted = told
                say(Taken(self._all.deliveries, self._all.checked))
            self._beat()

    def _dial(self, number: int) -> None:
        spec = self._spec
        made = socket.socket()
        # Several source addresses, and ports that are chosen when it is known to whom.
        made.setsockopt(socket.IPPROTO_IP, _NO_PORT, 1)
        source = _LOOPBACK + (1 << 8) + 1 + number % spec.sources
        made.bind((socket.inet_ntoa(source.to_bytes(4, "big")), 0))
        made.connect(("127.0.0.1", spec.ports[number % len(spec.ports)]))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            made = self._tls.wrap_socket(made, server_hostname="localhost")
        made.setblocking(False)
        peer = Peer(made, number, time.monotonic())
        self._peers[made.fileno()] = peer
        self._poll.register(made.fileno(), select.EPOLLIN)
        made.send(self._all.greet(peer))

    def _turn(self, timeout_s: float) -> bool:
        """Read what there is; whether somebody asks."""
        asked = False
        for descriptor, _ in self._poll.poll(timeout_s, _EVENTS):
            peer = self._peers.get(descriptor)
            if peer is None:
                asked = True
            elif self._tls is None:
                self._take(peer, peer.socket.recv(_BYTES))
            else:
                self._take_records(peer)
        return asked

    def _take_records(self, peer: Peer) -> None:
        try:
            while True:
                self._take(peer, peer.socket.recv(_BYTES))
        except ssl.SSLWantReadError:
            return

    def _take(self, peer: Peer, data: bytes) -> None:
        if not data:
            raise SystemExit(f"connection {peer.number} was closed")
        if peer.rest:
            data, peer.rest = peer.rest + data, b""
        if answer := self._all.take(peer, data):
            peer.socket.send(answer)

    def _beat(self) -> None:
        """Let the next share of all give a sign of life."""
        now = time.monotonic()
        if now < self._beat_at or not self._all.beat:
            return
        self._beat_at = now + 1.0
        peers = list(self._peers.values())
        until = self._beaten_to + 1 + int(len(peers) / _BEAT_S)
        for peer in peers[self._beaten_to : until]:
            peer.socket.send(self._all.beat)
        self._beaten_to = until if until < len(peers) else 0


def _peers(spec: Spec) -> Peers:
    if spec.protocol == "mqtt":
        return Subscribers(acknowledge=spec.acknowledge)
    lines = Path(spec.grants).read_text().splitlines()
    grants = [line.split() for line in lines[spec.first : spec.first + spec.count]]
    return Devices(grants, spec.first, bytes.fromhex(spec.identity), Random())


def say(what: msgspec.Struct) -> None:
    """Tell whoever started this."""
    sys.stdout.write(msgspec.json.encode(what).decode() + "\n")
    sys.stdout.flush()


def main(lines: Sequence[str] | None = None) -> None:
    """Be what the first line says."""
    spec = msgspec.json.decode(sys.stdin.readline() if lines is None else lines[0], type=Spec)
    load = PushLoad(spec)
    say(load.open())
    load.serve()


if __name__ == "__main__":
    main()
