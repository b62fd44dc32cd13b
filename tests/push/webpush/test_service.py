"""The way to push services, on real sockets: bounded, and never into private networks."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import subprocess
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from chappe.push.webpush.options import WebPushOptions
from chappe.push.webpush.service import (
    ANSWER_BYTES_MAX,
    Answer,
    Blocked,
    PushServices,
    Unanswered,
)
from tests.loop import on_loop
from tests.push.webpush.browsers import answer, push_service

PRIVATE = WebPushOptions(allow_private=True, timeout_s=5)


async def post(url, options=PRIVATE, **more):
    services = PushServices(options, **more)
    try:
        return await services.post(url, {"ttl": "5"}, b"body")
    finally:
        await services.close()


def leads_to(*addresses):
    async def resolve(host, port):
        return list(addresses)

    return resolve


@on_loop
async def test_a_message_is_posted_and_its_answer_read():
    async with push_service() as service:
        service.respond = lambda request: answer(429, "Retry-After: 120", body=b"slowly")
        assert await post(f"{service.origin}/push/a?b=c") == Answer(429, 120.0)
        (request,) = service.requests
        assert (request.target, request.body) == ("/push/a?b=c", b"body")
        assert request.headers["ttl"] == "5"
        assert request.headers["host"] == f"127.0.0.1:{service.port}"


@pytest.mark.parametrize("said", ["Wed, 21 Oct 2026 07:28:00 GMT", "-1", "1e9", "99999999999999"])
@on_loop
async def test_a_time_to_come_again_that_makes_no_sense_is_not_read(said):
    async with push_service() as service:
        service.respond = lambda request: answer(503, f"Retry-After: {said}")
        assert await post(service.origin) == Answer(503, None)


@on_loop
async def test_a_connection_is_used_again():
    async with push_service() as service:
        services = PushServices(PRIVATE)
        for _ in range(3):
            assert (await services.post(service.origin, {}, b"")).status == 201
        await services.close()
        assert service.connections == 1


@on_loop
async def test_a_redirection_is_not_followed():
    async with push_service() as service, push_service() as other:
        service.respond = lambda request: answer(307, f"Location: {other.origin}/x")
        assert (await post(service.origin)).status == 307
        assert not other.connections


@on_loop
async def test_one_that_does_not_answer_is_waited_for_so_long_and_no_longer():
    async with push_service() as service:
        service.respond = lambda request: None
        began = asyncio.get_running_loop().time()
        with pytest.raises(Unanswered):
            await post(service.origin, WebPushOptions(allow_private=True, timeout_s=0.2))
        assert 0.15 < asyncio.get_running_loop().time() - began < 4


@on_loop
async def test_one_that_is_down_or_hangs_up_or_talks_nonsense_is_not_answered():
    async with push_service() as service:
        for said in (b"", b"HTTP/1.1 2x1 No\r\n\r\n", b"SSH-2.0-x\r\n\r\n"):
            service.respond = lambda request, said=said: said + b"\0" * 9
            with pytest.raises(Unanswered):
                await post(service.origin, WebPushOptions(allow_private=True, timeout_s=0.5))
        port = service.port
    with pytest.raises(Unanswered):
        await post(f"http://127.0.0.1:{port}/")


@on_loop
async def test_an_endless_answer_is_cut_off():
    async with push_service() as service:
        service.respond = lambda request: (
            b"HTTP/1.1 201 Created\r\nContent-Length: 999999999\r\n\r\n"
        )
        service.endless = True
        assert (await post(service.origin)).status == 201
        await service.hung_up.wait()
        # What was on its way: buffers of the kernel, not of ours.
        assert service.bytes_written < 32 * 1024 * 1024
        assert ANSWER_BYTES_MAX < 64 * 1024


@on_loop
async def test_endless_headers_are_cut_off():
    async with push_service() as service:
        service.respond = lambda request: b"HTTP/1.1 201 Created\r\nX: " + b"x" * 1_000_000
        with pytest.raises(Unanswered):
            await post(service.origin)


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("8.8.8.8", "127.0.0.1"), ("::1",)])
@on_loop
async def test_a_name_that_leads_into_a_private_network_is_not_connected_to(addresses):
    async with push_service() as service:
        url = f"http://push.example:{service.port}/x"
        with pytest.raises(Blocked, match="not public"):
            await post(url, WebPushOptions(timeout_s=5), resolve=leads_to(*addresses))
        assert not service.connections


@on_loop
async def test_an_address_in_the_endpoint_itself_is_looked_at_as_well():
    async with push_service() as service:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(Blocked):
                await post(f"http://{host}:{service.port}/x", WebPushOptions(timeout_s=5))
        assert not service.connections


@on_loop
async def test_a_connection_with_this_machine_at_both_ends_is_given_up_before_anything_is_sent(
    monkeypatch,
):
    # A public address of this machine: tests have none, so loopback is taken for one.
    monkeypatch.setattr("chappe.push.webpush.service.is_public", lambda address: True)
    async with push_service() as service:
        with pytest.raises(Blocked, match="at this machine"):
            await post(service.origin, WebPushOptions(timeout_s=5))
        assert not service.requests


@on_loop
async def test_the_next_address_is_tried_where_one_does_not_answer():
    async with push_service() as service:
        url = f"http://push.example:{service.port}/x"
        # Nobody listens at the first one.
        assert (await post(url, resolve=leads_to("127.0.0.2", "127.0.0.1"))).status == 201
        with pytest.raises(Unanswered):
            await post(url, resolve=leads_to())


@on_loop
async def test_a_name_that_nobody_knows_is_not_answered():
    async def resolve(host, port):
        raise OSError("no such name")

    with pytest.raises(Unanswered):
        await post("https://push.example/x", resolve=resolve)


def certify(folder, name):
    """A context of a server with a certificate of its own, which is written down to be trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(named)
        .issuer_name(named)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, SHA256())
    )
    path = folder / "certificate.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(private)
    path.write_bytes(certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, folder / "key.pem")
    return context, path


@on_loop
async def test_who_is_connected_to_has_to_prove_the_name_and_not_the_address(tmp_path, monkeypatch):
    context, trusted = certify(tmp_path, "push.example")
    async with push_service(context) as service:
        url = f"https://push.example:{service.port}/x"
        resolve = leads_to("127.0.0.1")
        with pytest.raises(Unanswered):
            await post(url, resolve=resolve)
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        assert (await post(url, resolve=resolve)).status == 201
        with pytest.raises(Unanswered):
            await post(url.replace("push.", "other."), resolve=resolve)
        assert len(service.requests) == 1


def test_who_sends_nothing_to_browsers_does_not_load_what_sends():
    said = "import sys, chappe.push.webpush.opening; print('httpcore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
