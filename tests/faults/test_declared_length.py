"""A length that is only declared takes no memory."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct

import msgspec
import pytest

from chappe.wire.ops import Publish
from chappe.wire.websocket import BINARY, FIN, TEXT

from .conftest import Witness
from .peer import FORMS, connect, dial, wait_for_end
from .process import Api, NodeProcess

GIGABYTE = 1 << 30
PEERS = 20
GROWTH_BYTES_MAX = 8 << 20


def declaration(form: str, size: int) -> bytes:
    """The beginning of a frame that is to be so large."""
    if form == "tcp":
        return struct.pack(">IB", size, 1)
    kind = TEXT if form == "text" else BINARY
    return struct.pack(">BBQI", FIN | kind, 0x80 | 127, size, 0)


def send_for_ever(sock: socket.socket, data: bytes) -> None:
    """Send until the other side has had enough."""
    with contextlib.suppress(ConnectionError):
        while True:
            sock.sendall(data)


@pytest.mark.parametrize("greeted", [False, True], ids=["stranger", "greeted"])
@pytest.mark.parametrize("form", FORMS)
def test_declared_gigabyte_is_refused_before_it_is_read(
    node: NodeProcess, witness: Witness, form: str, greeted: bool
) -> None:
    before = node.resident_bytes()
    peers = [connect(node.addresses, form) for _ in range(PEERS)]
    for number, peer in enumerate(peers):
        if greeted:
            assert peer.greet(f"user:mallory-{number}")["ok"]
        peer.sock.sendall(declaration(form, GIGABYTE) + b"x" * 1000)
    for peer in peers:
        with peer:
            assert peer.hear_op("closed")["code"] == 1009
    assert node.resident_bytes() - before < GROWTH_BYTES_MAX
    witness.notices_nothing()


def test_declared_gigabyte_of_fragments_is_refused_at_the_bound(
    node: NodeProcess, witness: Witness
) -> None:
    before = node.resident_bytes()
    with connect(node.addresses, "text") as peer:
        assert peer.greet("user:mallory")["ok"]
        size = 128 * 1024
        head = struct.pack(">BBQI", TEXT, 0x80 | 127, size, 0)
        peer.sock.sendall(head + b" " * size)
        more = struct.pack(">BBQI", 0, 0x80 | 127, size, 0) + b" " * size
        for _ in range(8):
            peer.sock.sendall(more)
        assert peer.hear_op("closed")["code"] == 1009
    assert node.resident_bytes() - before < GROWTH_BYTES_MAX
    witness.notices_nothing()


def test_declared_gigabyte_is_refused_over_http(node: NodeProcess, witness: Witness) -> None:
    before = node.resident_bytes()
    sockets = []
    paths = (b"/v1/send", b"/v1/publish", b"/v1/poll", b"/v1/tokens/revoke")
    for path, length in itertools.product(paths, (b"1073741824", b"9" * 18)):
        sockets.append(sock := dial(node.addresses["http"]))
        sock.sendall(_head(path) + b"content-length: " + length + b"\r\n\r\n" + b"x" * 100)
    for sock in sockets:
        with sock:
            assert wait_for_end(sock).startswith(b"HTTP/1.1 413 ")
    assert node.resident_bytes() - before < GROWTH_BYTES_MAX
    witness.notices_nothing()


def test_body_that_never_ends_is_refused_over_http(node: NodeProcess, witness: Witness) -> None:
    before = node.resident_bytes()
    with dial(node.addresses["http"]) as sock:
        sock.sendall(_head(b"/v1/send") + b"transfer-encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        send_for_ever(sock, chunk)
    assert node.resident_bytes() - before < GROWTH_BYTES_MAX
    witness.notices_nothing()


def test_head_that_never_ends_is_refused_over_http(node: NodeProcess, witness: Witness) -> None:
    for edge in ("http", "websocket"):
        with dial(node.addresses[edge]) as sock:
            sock.sendall(b"GET /ws HTTP/1.1\r\n")
            send_for_ever(sock, b"x: " + b"y" * 995 + b"\r\n")
    witness.notices_nothing()


def test_what_is_allowed_but_only_declared_takes_no_memory_either(
    node: NodeProcess, witness: Witness
) -> None:
    before = node.resident_bytes()
    megabyte = (1 << 20) - 64
    peers = [connect(node.addresses, form) for form in FORMS for _ in range(PEERS)]
    for number, peer in enumerate(peers):
        assert peer.greet(f"user:mallory-{number}")["ok"]
        peer.sock.sendall(declaration(FORMS[number // PEERS], megabyte) + b"xx")
    witness.notices_nothing()
    assert node.resident_bytes() - before < GROWTH_BYTES_MAX
    for peer in peers:
        peer.sock.close()


@pytest.mark.parametrize("form", FORMS)
def test_largest_message_is_taken(node: NodeProcess, api: Api, form: str) -> None:
    with connect(node.addresses, form) as peer:
        assert peer.greet("user:big")["ok"]
        data = b'"' + b"x" * ((1 << 20) - 200) + b'"'
        assert peer.ask(Publish(id=2, to="topic:big", data=msgspec.Raw(data)))["ok"]


def _head(path: bytes) -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\nhost: localhost\r\n"
