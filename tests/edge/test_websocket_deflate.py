"""permessage-deflate on a real socket: both ways, in fragments, and never past the bound."""

import zlib

import pytest
import websockets
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

from chappe.wire.limits import Limits
from chappe.wire.websocket import deflate, inflate
from tests.edge.wiring import masked, serving
from tests.loop import on_loop

OFFER = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
CONTINUATION, TEXT, BINARY = 0x0, 0x1, 0x2
RSV1 = 0b100


@pytest.mark.parametrize(
    "factory",
    [
        ClientPerMessageDeflateFactory(),
        ClientPerMessageDeflateFactory(server_no_context_takeover=True),
        ClientPerMessageDeflateFactory(client_no_context_takeover=True),
        ClientPerMessageDeflateFactory(client_max_window_bits=9),
        ClientPerMessageDeflateFactory(client_max_window_bits=True),
        ClientPerMessageDeflateFactory(server_max_window_bits=15),
    ],
)
@on_loop
async def test_an_independent_client_agrees_on_compression(factory):
    async with serving() as served:
        client = await websockets.connect(f"{served.url}/echo", extensions=[factory])
        async with client:
            assert client.protocol.extensions
            for message in ("", "a", "grüß " * 1000, bytes(100_000), "again " * 1000):
                await client.send(message)
                assert await client.recv() == message


@on_loop
async def test_an_offer_that_cannot_be_taken_leaves_the_connection_uncompressed():
    factory = ClientPerMessageDeflateFactory(server_max_window_bits=9)
    async with serving() as served:
        client = await websockets.connect(f"{served.url}/echo", extensions=[factory])
        async with client:
            assert not client.protocol.extensions
            await client.send("plain")
            assert await client.recv() == "plain"


@on_loop
async def test_a_compressed_message_may_come_in_fragments():
    body = deflate(b"abc" * 1000)
    async with serving() as served:
        peer = await served.connect(headers=OFFER)
        peer.send(masked(TEXT, body[:5], fin=False, rsv=RSV1), masked(0x9, b"between"))
        assert await peer.frame() == (0x8A, b"between")
        peer.send(masked(CONTINUATION, body[5:9], fin=False), masked(CONTINUATION, body[9:]))
        first, answer = await peer.frame()
        assert first == 0xC1
        assert inflate(answer, 10_000) == b"abc" * 1000


@on_loop
async def test_a_hub_reads_compressed_ops_and_compresses_long_answers():
    async with serving() as served:
        peer = await served.connect("/ws", OFFER)
        peer.send(masked(TEXT, deflate(b'{"op":"hello","id":1,"as":"user:a"}'), rsv=RSV1))
        assert (await peer.hear())["ok"]
        payload = b'"' + b"x" * 5000 + b'"'
        op = b'{"op":"send","id":2,"to":"user:a","data":' + payload + b"}"
        peer.send(masked(TEXT, deflate(op), rsv=RSV1))
        seen = [await peer.frame(), await peer.frame()]
        (compressed,) = [body for first, body in seen if first == 0xC1]
        assert payload in inflate(compressed, 10_000)


@on_loop
async def test_compressed_text_must_be_utf8():
    async with serving() as served:
        peer = await served.connect(headers=OFFER)
        peer.send(masked(TEXT, deflate(b"\xff"), rsv=RSV1))
        assert await peer.closed() == 1007


@on_loop
async def test_what_is_not_compressed_although_it_says_so_is_refused():
    async with serving() as served:
        peer = await served.connect(headers=OFFER)
        peer.send(masked(BINARY, b"\xff\xff\xff", rsv=RSV1))
        assert await peer.closed() == 1007


@pytest.mark.parametrize("path", ["/echo", "/ws"])
@on_loop
async def test_what_inflates_past_the_bound_is_refused(path):
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = b"".join(squeeze.compress(bytes(1_000_000)) for _ in range(100))
    bomb += squeeze.flush(zlib.Z_SYNC_FLUSH)[:-4]
    assert len(bomb) < 100_000
    async with serving() as served:
        peer = await served.connect(path, OFFER)
        peer.send(masked(BINARY, bomb, rsv=RSV1))
        assert await peer.closed() == 1009


@on_loop
async def test_the_bound_on_inflated_bytes_is_exact():
    limits = Limits(message_bytes_max=1000, inflated_bytes_max=5000)
    async with serving(limits=limits) as served:
        peer = await served.connect(headers=OFFER)
        peer.send(masked(BINARY, deflate(bytes(5000)), rsv=RSV1))
        _, answer = await peer.frame()
        assert inflate(answer, 5000) == bytes(5000)
        peer.send(masked(BINARY, deflate(bytes(5001)), rsv=RSV1))
        assert await peer.closed() == 1009
