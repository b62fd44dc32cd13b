"""TLS on every edge, and nothing but TLS there."""

from __future__ import annotations

import datetime
import http.client
import socket
import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import chappe.blocking
from chappe.errors import ConnectionClosed
from chappe.wire.ops import Hello
from chappe.wire.packed import encode_op, frame

from .conftest import StartNode
from .peer import TcpPeer, dial, upgrade, wait_for_end
from .process import NodeProcess

EDGES = ("websocket", "tcp", "http")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate of its own making, for this machine."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "chappe test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder


@pytest.fixture(scope="module")
def context(certificate: Path) -> ssl.SSLContext:
    """What a client trusts."""
    return ssl.create_default_context(cafile=str(certificate / "cert.pem"))


@pytest.fixture(scope="module")
def node(certificate: Path, start_node: StartNode) -> Iterator[NodeProcess]:
    node = start_node(
        "handshake_timeout_s = 2.0\n"
        "[hub]\nhello_timeout_s = 2.0\nheartbeat_s = 0.5\nheartbeats_missed_max = 20\n"
        f'[tls]\ncert = "{certificate}/cert.pem"\nkey = "{certificate}/key.pem"\n'
    )
    yield node
    node.stop()
    # Strangers' mistakes are counted; they do not fill the log.
    assert [line for line in node.log().splitlines() if "[" in line and "drain" not in line] == []


def test_every_edge_says_that_it_speaks_tls(node: NodeProcess) -> None:
    schemes = {edge: urlsplit(url).scheme for edge, url in node.addresses.items()}
    assert schemes == {"websocket": "wss", "http": "https", "tcp": "tls", "comet": "tls"}


@pytest.mark.parametrize("edge", ["websocket", "tcp"])
def test_messages_travel_over_tls(node: NodeProcess, context: ssl.SSLContext, edge: str) -> None:
    with chappe.blocking.connect(node.addresses[edge], as_="user:a", tls=context) as client:
        client.subscribe("topic:a")
        for data in ("small", "x" * 500_000):
            client.publish("topic:a", data)
            assert client.receive(30).data == data


def test_http_travels_over_tls(node: NodeProcess, context: ssl.SSLContext) -> None:
    parts = urlsplit(node.addresses["http"])
    connection = http.client.HTTPSConnection("127.0.0.1", parts.port, context=context, timeout=30)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize("edge", ["websocket", "tcp"])
def test_sdk_trusts_no_stranger(node: NodeProcess, edge: str) -> None:
    with pytest.raises(ConnectionClosed):
        chappe.blocking.connect(node.addresses[edge], as_="user:a")


def plaintext(node: NodeProcess, edge: str) -> bytes:
    if edge == "tcp":
        return frame(encode_op(Hello(id=1, as_="user:a")))
    return upgrade(node.addresses[edge]) if edge == "websocket" else b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("edge", EDGES)
def test_plaintext_is_refused_without_an_answer(
    node: NodeProcess, context: ssl.SSLContext, edge: str
) -> None:
    with dial(node.addresses[edge]) as sock:
        sock.sendall(plaintext(node, edge))
        answer = wait_for_end(sock)
        # At most a TLS alert: nothing of what was asked for.
        assert not answer or answer[0] == 0x15
    test_messages_travel_over_tls(node, context, "websocket")


def test_handshakes_that_never_end_are_cut_off(node: NodeProcess) -> None:
    silent = [dial(node.addresses[edge]) for edge in EDGES for _ in range(10)]
    for number, sock in enumerate(silent):
        if number % 2:
            sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # a hello's beginning
    for sock in silent:
        wait_for_end(sock)
        sock.close()


def test_peer_that_shakes_hands_and_never_greets_is_cut_off(
    node: NodeProcess, context: ssl.SSLContext
) -> None:
    sock = dial(node.addresses["tcp"])
    with TcpPeer(context.wrap_socket(sock, server_hostname="127.0.0.1"), beats=True) as peer:
        assert peer.hear()["code"] == 4004


def test_old_tls_is_refused(node: NodeProcess) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    sock: socket.socket = dial(node.addresses["tcp"])
    with sock, pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(sock)
