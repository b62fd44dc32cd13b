"""The web as a device asks it: over HTTP, bounded, and clear about what can be tried again."""

import asyncio
import base64
import json
import ssl
from contextlib import asynccontextmanager

import pytest

from chappe.device import Device, Grant, Note
from chappe.device.web import ANSWER_BYTES_MAX, HttpWeb
from chappe.errors import BadRequest, Forbidden, Overload, Unreachable
from tests.device.comet import FAST, Comet, StillClock
from tests.loop import on_loop
from tests.node.certificate import make_certificate

ANSWER = {
    "ok": True,
    "client": "c1",
    "token": "t",
    "comet": "tcp://127.0.0.1:7405",
    "identity": base64.b64encode(bytes(range(32))).decode(),
    "expires_ms": 5,
}


@asynccontextmanager
async def http(*answers: tuple[int, bytes]):
    """A server that gives these answers, the last one again and again; and what it was asked."""
    asked, left = [], list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = next(int(h[15:]) for h in head.split("\r\n") if h.lower().startswith("content-l"))
        asked.append((head.split(" HTTP")[0], json.loads(await reader.readexactly(size))))
        status, body = left.pop(0) if len(left) > 1 else left[0]
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", asked
    finally:
        server.close()


@on_loop
async def test_a_grant_is_asked_for_and_read():
    async with http((200, json.dumps(ANSWER).encode())) as (url, asked):
        grant = await HttpWeb(url, 5).grant("shop", "d1")
    assert asked == [("POST /v1/push/devices", {"app": "shop", "device": "d1"})]
    assert grant == Grant(
        client="c1",
        token="t",
        comet="tcp://127.0.0.1:7405",
        identity=bytes(range(32)),
        expires_ms=5,
    )


@on_loop
async def test_clicks_are_told_a_hundred_at_a_time():
    notes = [Note(f"p{n}", f"j{n}", 1, 7, b"") for n in range(150)]
    async with http((200, b'{"ok":true,"counted":1}')) as (url, asked):
        await HttpWeb(url, 5).click("c1", "t", notes)
    assert [path for path, _ in asked] == ["POST /v1/push/clicks"] * 2
    assert asked[0][1] == {
        "client": "c1",
        "token": "t",
        "clicks": [{"job": f"j{n}", "note": f"p{n}"} for n in range(100)],
    }
    assert len(asked[1][1]["clicks"]) == 50


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (403, b'{"ok":false,"error":"forbidden","reason":"app: not open"}', Forbidden),
        (401, b'{"ok":false,"error":"forbidden","reason":"token: expired"}', Forbidden),
        (404, b'{"ok":false,"error":"unreachable","reason":"app: none"}', BadRequest),
        (400, b"not JSON", BadRequest),
        (429, b"", Overload),
        (503, b'{"ok":false,"error":"overload","reason":"no comet"}', Overload),
        (502, b"<html>", Overload),
        (200, b"{}", BadRequest),
        (200, b"\xff", BadRequest),
        (200, json.dumps(ANSWER | {"identity": "AAAA"}).encode(), BadRequest),
        (200, json.dumps(ANSWER | {"comet": "nowhere"}).encode(), BadRequest),
        (200, b" " * (ANSWER_BYTES_MAX + 1), Overload),
    ],
)
@on_loop
async def test_a_refusal_says_whether_to_try_again(status, body, error):
    async with http((status, body)) as (url, _):
        with pytest.raises(error) as caught:
            await HttpWeb(url, 5).grant("shop", "d1")
    assert type(caught.value) is error


@on_loop
async def test_nobody_there_may_be_somebody_later():
    with pytest.raises(Unreachable, match="web: "):
        await HttpWeb("http://127.0.0.1:1", 5).grant("shop", "d1")


@on_loop
async def test_a_device_finds_its_comet_by_http():
    async with Comet() as comet:
        comet.waiting["p1"] = (1, "p1", b"hello")
        comet.token = "t"
        identity = base64.b64encode(comet.public).decode()
        answer = ANSWER | {"comet": comet.address, "identity": identity, "expires_ms": 2**60}
        async with (
            http((503, b""), (200, json.dumps(answer).encode())) as (url, _),
            Device(app="shop", device="d1", web=url, options=FAST) as device,
        ):
            assert (await anext(device)).content == b"hello"


@on_loop
async def test_a_comet_may_speak_tls(tmp_path):  # P4
    cert, key = make_certificate(tmp_path)
    here = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    here.load_cert_chain(cert, key)
    there = ssl.create_default_context(cafile=str(cert))
    async with Comet(tls=here) as comet:
        comet.waiting["p1"] = (1, "p1", b"hello")
        grant = Grant(
            client="c1",
            token=comet.token,
            comet=comet.address,
            identity=comet.public,
            expires_ms=2**60,
        )

        async def give() -> Grant:
            return grant

        settings = {"app": "a", "device": "d", "grants": give, "options": FAST}
        async with Device(**settings, tls=there, clock=StillClock()) as device:
            assert (await anext(device)).content == b"hello"
        # One that trusts nobody's own certificates stays outside, quietly.
        async with Device(**settings, clock=StillClock()) as device:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(device), 0.3)
