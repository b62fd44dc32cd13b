"""The opening handshake: who gets in, who is told why not, and what it may cost."""

import asyncio

import pytest
import websockets

from tests.edge.wiring import masked, serving
from tests.loop import on_loop

KEY_ANSWER = b"ICX+Yqv66kxgM0FcWaLWlFLwTAI="  # of sixteen zero bytes, RFC 6455 4.2.2


def name_of(value) -> str:
    return str(value)[:40]


@on_loop
async def test_a_good_handshake_is_answered_with_its_key():
    async with serving() as served:
        peer = await served.dial()
        assert await peer.handshake("/ws") == 101
        answer = peer.response.lower()
        assert KEY_ANSWER in peer.response
        assert b"upgrade: websocket\r\n" in answer
        assert b"connection: upgrade\r\n" in answer
        assert b"sec-websocket-extensions" not in answer
        assert b"sec-websocket-protocol" not in answer


@on_loop
async def test_frames_may_come_with_the_handshake():
    async with serving() as served:
        peer = await served.dial()
        peer.send(
            b"GET /echo HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            masked(0x1, b"at once"),
        )
        assert b" 101 " in await peer.reader.readuntil(b"\r\n\r\n")
        assert await peer.frame() == (0x81, b"at once")


@on_loop
async def test_a_handshake_may_arrive_byte_by_byte():
    async with serving() as served:
        peer = await served.dial()
        for byte in (
            b"GET /ws?x=1 HTTP/1.1\r\nhost: h\r\nupgrade: WebSocket\r\n"
            b"connection: keep-alive, Upgrade\r\n"
            b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n"
        ):
            peer.send(bytes([byte]))
            await asyncio.sleep(0)
        assert b" 101 " in await peer.reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("version", [None, "", "0", "7", "8", "12", "14", "13, 8"])
@on_loop
async def test_any_other_version_is_told_the_one_spoken(version):
    async with serving() as served:
        peer = await served.dial()
        assert await peer.handshake("/ws", Sec_WebSocket_Version=version) == 426
        assert b"sec-websocket-version: 13\r\n" in peer.response.lower()
        assert not served.hub.sessions


@pytest.mark.parametrize("value", ["upgrade", "keep-alive, Upgrade", "Upgrade,keep-alive"])
@on_loop
async def test_upgrade_may_stand_among_other_words(value):
    async with serving() as served:
        peer = await served.dial()
        assert await peer.handshake("/ws", Connection=value) == 101


@on_loop
async def test_upgrade_may_stand_in_a_header_of_its_own():
    async with serving() as served:
        peer = await served.dial()
        headers = "Connection: Upgrade\r\n"
        assert await peer.handshake("/ws", headers, Connection="keep-alive") == 101


@pytest.mark.parametrize(
    "changes",
    [
        {"Sec_WebSocket_Key": None},
        {"Sec_WebSocket_Key": "short"},
        {"Sec_WebSocket_Key": "!" * 24},
        {"Upgrade": None},
        {"Upgrade": "h2c"},
        {"Connection": None},
        {"Connection": "close"},
        {"Connection": "not-upgrade"},
    ],
    ids=name_of,
)
@on_loop
async def test_a_handshake_with_a_wrong_header_is_refused(changes):
    async with serving() as served:
        peer = await served.dial()
        assert await peer.handshake("/ws", **changes) == 400
        await peer.reader.read()
        assert not served.hub.sessions


@pytest.mark.parametrize(
    "request_line",
    [
        b"POST /ws HTTP/1.1",
        b"HEAD /ws HTTP/1.1",
        b"GET /ws HTTP/1.0",
        b"GET /ws",
        b"GET",
        b"\xff\xfe\xfd",
        b"GET /ws HTTP/1.1 extra",
    ],
)
@on_loop
async def test_a_request_line_that_is_no_handshake_is_refused(request_line):
    async with serving() as served:
        peer = await served.dial()
        status = await peer.ask(
            request_line + b"\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert 400 <= status < 500
        await peer.reader.read()
        assert not served.hub.sessions


@pytest.mark.parametrize(
    "line",
    [b"no colon here", b": no name", b"Bad\x00Name: x", b"X: a\x00b", b"X: \xff\xfe", b" folded"],
)
@on_loop
async def test_a_garbled_header_lets_nobody_in_and_disturbs_nobody(line):
    async with serving() as served:
        other = await served.connect()
        peer = await served.dial()
        peer.send(
            b"GET /ws HTTP/1.1\r\nHost: h\r\n" + line + b"\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            b"Sec-WebSocket-Version: 13\r\n\r\n"
        )
        answer = await peer.reader.read(200)
        # A value may hold bytes above ASCII (RFC 9110 5.5); nothing else of these may pass.
        assert answer == b"" or b" 400 " in answer or (b" 101 " in answer and b"\xff" in line)
        other.send(masked(0x1, b"still here"))
        assert await other.frame() == (0x81, b"still here")


@pytest.mark.parametrize("path", ["/", "/wss", "/ws/", "/WS", "/echo/x", "/%77s", "http://h/ws"])
@on_loop
async def test_any_other_path_is_not_found(path):
    async with serving() as served:
        assert await (await served.dial()).handshake(path) == 404


@on_loop
async def test_there_is_no_echo_outside_of_development():
    async with serving(echo=False) as served:
        assert await (await served.dial()).handshake("/echo") == 404
        assert await (await served.dial()).handshake("/ws") == 101


@on_loop
async def test_headers_without_end_are_cut_off():
    async with serving() as served:
        peer = await served.dial()
        peer.send(b"GET /ws HTTP/1.1\r\n")
        sent = 0
        line = b"X-Padding: " + b"x" * 1000 + b"\r\n"
        try:
            while sent < 4_000_000 and not peer.reader.at_eof():
                peer.send(line)
                sent += len(line)
                await peer.writer.drain()
                await asyncio.sleep(0)
            answer = await peer.reader.read()
        except ConnectionError:
            answer = b""
        assert b" 101 " not in answer
        assert sent < 1_000_000


@on_loop
async def test_a_request_of_too_many_bytes_at_once_is_refused():
    async with serving() as served:
        peer = await served.dial()
        peer.send(b"GET /ws HTTP/1.1\r\nX: " + b"x" * 200_000 + b"\r\n\r\n")
        try:
            answer = await peer.reader.read()
        except ConnectionError:
            answer = b""
        assert b" 101 " not in answer


@on_loop
async def test_a_handshake_that_takes_too_long_is_cut_off():
    async with serving(handshake_timeout_s=0.05) as served:
        silent, slow = await served.dial(), await served.dial()
        slow.send(b"GET /ws HTTP/1.1\r\n")
        assert await silent.reader.read() == b""
        assert await slow.reader.read() == b""


@pytest.mark.parametrize(
    ("origins", "loopback", "headers", "status"),
    [
        ((), False, "", 101),
        ((), False, "Origin: https://a.example\r\n", 403),
        (("https://a.example",), False, "Origin: https://a.example\r\n", 101),
        (("https://a.example",), False, "origin: https://a.example\r\n", 101),
        (("https://a.example",), False, "Origin: https://b.example\r\n", 403),
        (("https://a.example",), False, "Origin: https://a.example.evil.example\r\n", 403),
        (("https://a.example",), False, "Origin: https://evil.example/https://a.example\r\n", 403),
        (("https://a.example",), False, "Origin: http://a.example\r\n", 403),
        (("https://a.example",), False, "Origin: https://a.example:444\r\n", 403),
        (("https://a.example",), False, "Origin: HTTPS://A.EXAMPLE\r\n", 403),
        (("https://a.example",), False, "Origin: null\r\n", 403),
        (("https://a.example",), False, "Origin:\r\n", 403),
        (
            ("https://a.example",),
            False,
            "Origin: https://a.example\r\nOrigin: https://b.example\r\n",
            403,
        ),
        (
            ("https://a.example",),
            False,
            "Origin: https://a.example\r\nOrigin: https://a.example\r\n",
            403,
        ),
        ((), False, "Origin: http://localhost:8080\r\n", 403),
        ((), True, "Origin: http://localhost:8080\r\n", 101),
        ((), True, "Origin: http://127.0.0.1\r\n", 101),
        ((), True, "Origin: http://[::1]:9\r\n", 101),
        ((), True, "Origin: http://localhost.evil.example\r\n", 403),
        ((), True, "Origin: http://evil.example#localhost\r\n", 403),
        ((), True, "Origin: http://evil.example@localhost\r\n", 403),
        ((), True, "Origin: http://localhost@evil.example\r\n", 403),
        ((), True, "Origin: file://localhost\r\n", 403),
        ((), True, "Origin: null\r\n", 403),
        ((), True, "Origin: http://[broken\r\n", 403),
    ],
    ids=name_of,
)
@on_loop
async def test_only_pages_of_allowed_origins_may_connect(origins, loopback, headers, status):
    async with serving(origins=origins, loopback=loopback) as served:
        peer = await served.dial()
        assert await peer.handshake("/ws", headers) == status


@on_loop
async def test_a_draining_hub_says_so():
    async with serving() as served:
        served.hub.drain("maintenance", 100)
        assert await (await served.dial()).handshake("/ws") == 503


@on_loop
async def test_an_independent_client_gets_in_and_out():
    async with serving() as served:
        async with websockets.connect(f"{served.url}/echo") as client:
            assert client.response.headers["Sec-WebSocket-Extensions"].startswith(
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
            )
            for message in ("", "grüß dich", b"\x00\xff", "x" * 300_000, bytes(300_000)):
                await client.send(message)
                assert await client.recv() == message
            await (await client.ping())
        assert client.close_code == 1000


@on_loop
async def test_an_independent_client_is_served_without_compression():
    async with serving(deflate=False) as served:
        client = await websockets.connect(f"{served.url}/echo")
        async with client:
            assert "Sec-WebSocket-Extensions" not in client.response.headers
            await client.send(["frag", "men", "ted"])
            assert await client.recv() == "fragmented"
