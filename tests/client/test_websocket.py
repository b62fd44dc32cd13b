"""The WebSocket link against an independent server, and TLS on both links."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection, serve
from websockets.frames import CloseCode as WebSocketCloseCode

from chappe.client import ClientOptions, Disconnected, Reconnected, connect
from chappe.client.websocket import masked_frame
from chappe.edge.acceptor import AcceptCounters, Acceptor
from chappe.edge.tcp import TcpConnection
from chappe.errors import ConnectionClosed
from chappe.wire.ops import Delivery, Reply
from chappe.wire.packed import check_version, encode_op, read_client_ops

from .conftest import QUICK, Notices, serving

Script = Callable[[ServerConnection], Any]


@contextlib.asynccontextmanager
async def foreign(script: Script) -> AsyncIterator[str]:
    """A server of another make that answers hello and then follows a script."""

    async def handle(socket: ServerConnection) -> None:
        (hello,) = read_client_ops(check_version(await socket.recv()))
        await socket.send(encode_op(Reply(hello.id, True, session="s", heartbeat_s=5)))
        await script(socket)

    async with serve(handle, "127.0.0.1", 0, compression=None) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws"


@given(st.binary(max_size=70_000), st.integers(0, 2**32 - 1))
def test_a_masked_frame_is_what_another_library_reads(payload, key):
    from websockets.frames import Frame
    from websockets.streams import StreamReader

    reader = StreamReader()
    reader.feed_data(masked_frame(0x82, payload, key))
    parsing = Frame.parse(reader.read_exact, mask=True)
    with pytest.raises(StopIteration) as done:
        next(parsing)
    assert done.value.value.data == payload
    assert done.value.value.opcode == 2


def test_fragments_with_a_ping_between_make_one_message(run):
    async def test():
        ponged = asyncio.Event()

        async def script(socket: ServerConnection) -> None:
            body = encode_op(Delivery(message=5, from_="user:b", to="user:a", data64="aGk="))
            await socket.send(body[at : at + 3] for at in range(0, len(body), 3))
            await (await socket.ping(b"are you there"))
            ponged.set()
            await socket.wait_closed()

        async with foreign(script) as url, connect(url, as_="user:a") as alice:
            assert (await alice.receive()).data == b"hi"
            await ponged.wait()

    run(test())


def test_a_close_frame_is_answered_and_its_code_decides(run):
    async def test():
        codes: asyncio.Queue[int | None] = asyncio.Queue()

        async def script(socket: ServerConnection) -> None:
            await socket.close(4003, "revoked")
            codes.put_nowait(socket.close_code)

        async with foreign(script) as url, connect(url, as_="user:a") as alice:
            with pytest.raises(ConnectionClosed) as caught:
                await alice.receive()
            assert (caught.value.code, caught.value.reason) == (4003, "revoked")
            assert await codes.get() == 4003

    run(test())


def test_closing_the_client_says_goodbye_with_1000(run):
    async def test():
        seen: asyncio.Queue[int | None] = asyncio.Queue()

        async def script(socket: ServerConnection) -> None:
            await socket.wait_closed()
            seen.put_nowait(socket.close_code)

        async with foreign(script) as url:
            async with connect(url, as_="user:a"):
                pass
            assert await seen.get() == WebSocketCloseCode.NORMAL_CLOSURE

    run(test())


def test_text_where_packed_was_agreed_ends_the_client(run):
    async def test():
        async def script(socket: ServerConnection) -> None:
            await socket.send("{}")
            await socket.wait_closed()

        async with foreign(script) as url, connect(url, as_="user:a") as alice:
            with pytest.raises(ConnectionClosed, match="another form"):
                await alice.receive()

    run(test())


def test_a_wrong_path_is_refused_and_not_tried_again(run):
    async def test():
        async with serving() as service:
            url = service.url("websocket").replace("/ws", "/elsewhere")
            with pytest.raises(ConnectionClosed) as caught:
                await connect(url, as_="user:a")
            assert not caught.value.reconnect

    run(test())


def test_a_draining_hub_is_refused_for_now(run):
    async def test():
        async with serving() as service:
            service.hub.draining = True
            with pytest.raises(ConnectionClosed) as caught:
                await connect(service.url("websocket"), as_="user:a")
            assert caught.value.reconnect

    run(test())


def test_a_server_that_is_no_hub_raises_connection_closed(run):
    async def test():
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"hello, I am something else\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ConnectionClosed):
                await connect(f"ws://127.0.0.1:{port}/ws", as_="user:a")

    run(test())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
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
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.parametrize("scheme", ["wss", "tls"])
def test_tls_is_spoken_and_certificates_are_checked(run, certificate, scheme):
    async def test():
        from chappe.edge.origin import Origins
        from chappe.edge.websocket import WebSocketEdge

        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificate)
        trusting = ssl.create_default_context(cafile=str(certificate))
        async with serving() as service:
            loop, hub = asyncio.get_running_loop(), service.hub
            edge = WebSocketEdge(hub, Origins([]), loop=loop)
            factory = edge.protocol if scheme == "wss" else lambda: TcpConnection(hub)
            acceptor = Acceptor(loop, factory, "127.0.0.1", 0, server, AcceptCounters())
            url = f"{scheme}://127.0.0.1:{acceptor.port}" + ("/ws" if scheme == "wss" else "")
            notices = Notices()
            async with connect(
                url,
                as_="user:a",
                tls=trusting,
                options=ClientOptions(**QUICK),
                on_notice=notices,
                rng=Random(1),
            ) as alice:
                await alice.send("user:a", b"\xff")
                assert (await alice.receive()).data == b"\xff"
                service.session(alice).sink.abort()
                await notices.wait(Disconnected)
                await notices.wait(Reconnected)
            with pytest.raises(ConnectionClosed, match="certificate"):
                await connect(url, as_="user:a")
            acceptor.close()

    run(test())
