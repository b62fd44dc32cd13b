"""Whoever takes for ever to say what it wants is cut off, while others are served."""

from __future__ import annotations

import socket
import time

from chappe.client.websocket import masked_frame
from chappe.wire.ops import Hello
from chappe.wire.packed import encode_op, frame
from chappe.wire.websocket import BINARY, FIN

from .conftest import Witness
from .peer import FORMS, TIMEOUT_S, connect, dial, upgrade, wait_for_end
from .process import Api, NodeProcess

CONFIG = """
handshake_timeout_s = 1.0
[hub]
heartbeat_s = 0.5
heartbeats_missed_max = 20
hello_timeout_s = 1.0
[http]
header_timeout_s = 1.0
body_timeout_s = 1.0
keep_alive_s = 1
[push.comet]
login_s = 1.0
"""
_HELLO = encode_op(Hello(id=1, as_="user:slow"))
_BODY = b'{"to":"topic:a","data":"' + b"x" * 10_000
_POST = b"POST /v1/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20000\r\n\r\n"


class Dribbler:
    """A connection on which a byte is sent now and then."""

    def __init__(self, sock: socket.socket, script: bytes) -> None:
        self._sock = sock
        self._left = script
        self._heard = b""
        sock.setblocking(False)

    def step(self) -> bool:
        """Send the next byte; False once the other side has ended it."""
        try:
            self._sock.send(self._left[:1])
            self._left = self._left[1:]
            self._heard = self._sock.recv(4096)
        except BlockingIOError:
            assert self._left, "the script ended before the connection"
            return True
        except ConnectionError:
            return False
        return bool(self._heard)

    def close(self) -> None:
        self._sock.close()


def dribblers(node: NodeProcess) -> dict[str, Dribbler]:
    """One of each kind."""
    at = node.addresses
    return {
        "upgrade": Dribbler(dial(at["websocket"]), upgrade(at["websocket"])),
        "websocket hello": Dribbler(
            connect(at, "packed").sock, masked_frame(FIN | BINARY, _HELLO, 0) + b"x" * 1000
        ),
        "tcp hello": Dribbler(dial(at["tcp"]), frame(_HELLO[:-1] + b"x" * 1000)),
        "http head": Dribbler(dial(at["http"]), b"GET /metrics HTTP/1.1\r\nx: " + b"y" * 1000),
        "http body": Dribbler(_begun(at["http"]), _BODY),
    }


def _begun(url: str) -> socket.socket:
    sock = dial(url)
    sock.sendall(_POST)
    return sock


def test_dribbled_handshakes_are_cut_off_while_others_are_served(
    node: NodeProcess, witness: Witness
) -> None:
    left = {f"{name} {n}": d for n in range(20) for name, d in dribblers(node).items()}
    deadline = time.monotonic() + TIMEOUT_S
    while left:
        assert time.monotonic() < deadline, f"still connected: {sorted(left)}"
        for name, dribbler in list(left.items()):
            if not dribbler.step():
                left.pop(name).close()
        witness.notices_nothing()
        time.sleep(0.05)  # how slowly they send


def test_silent_strangers_are_cut_off(node: NodeProcess, witness: Witness) -> None:
    for sock in [dial(url) for url in node.addresses.values()]:
        with sock:
            wait_for_end(sock)
    witness.notices_nothing()


def test_strangers_who_beat_and_never_greet_are_told_why(node: NodeProcess) -> None:
    for peer in [connect(node.addresses, form, beats=True) for form in FORMS]:
        with peer:
            assert peer.hear_op("closed")["code"] == 4004


def test_what_strangers_held_is_given_back(node: NodeProcess, api: Api, witness: Witness) -> None:
    sockets = [dial(node.addresses["tcp"]) for _ in range(50)]
    for sock in sockets:
        while sock.recv(4096):
            pass
        sock.close()
    # The witness alone is left; the sessions of strangers are gone from the table.
    assert api.metric("sessions", edge="websocket") == 1
    assert api.metric("sessions", edge="tcp") == 0
