"""Accepting: paused, not broken, when descriptors run out."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from chappe.edge.acceptor import AcceptCounters, Acceptor
from chappe.errors import ConfigError
from tests.loop import on_loop
from tests.node.certificate import make_certificate


class Greeter(asyncio.Protocol):
    """Says hello and goes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.write(b"hello")
        stream.close()


async def read_from(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = await reader.read()
    writer.close()
    return data


@on_loop
async def test_connections_are_accepted_and_counted_until_it_closes() -> None:
    counters = AcceptCounters()
    acceptor = Acceptor(asyncio.get_running_loop(), Greeter, "127.0.0.1", 0, None, counters)
    assert await asyncio.gather(*(read_from(acceptor.port) for _ in range(200))) == [b"hello"] * 200
    assert (counters.accepted, counters.failed, counters.pauses) == (200, 0, 0)
    acceptor.close()
    with pytest.raises(ConnectionRefusedError):
        await read_from(acceptor.port)


@on_loop
async def test_a_shared_port_is_listened_on_by_several_and_others_are_refused() -> None:
    loop = asyncio.get_running_loop()
    counters = [AcceptCounters(), AcceptCounters()]
    first = Acceptor(loop, Greeter, "127.0.0.1", 0, None, counters[0], shared=True)
    second = Acceptor(loop, Greeter, "127.0.0.1", first.port, None, counters[1], shared=True)
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{first.port}"):
        Acceptor(loop, Greeter, "127.0.0.1", first.port, None, AcceptCounters())
    assert await asyncio.gather(*(read_from(first.port) for _ in range(200))) == [b"hello"] * 200
    # The kernel spreads them; that one gets all of 200 does not happen.
    assert all(counter.accepted for counter in counters)
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("host", "port"),
    [("203.0.113.1", 0), ("nowhere.invalid", 0), ("127.0.0.1", 70_000), ("::zz", 0)],
)
@on_loop
async def test_an_address_that_cannot_be_had_is_named(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on {host}:{port}"):
        Acceptor(asyncio.get_running_loop(), Greeter, host, port, None, AcceptCounters())


@on_loop
async def test_a_handshake_that_fails_or_takes_too_long_is_counted_and_closed(
    tmp_path: Path,
) -> None:
    cert, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    counters = AcceptCounters()
    acceptor = Acceptor(
        asyncio.get_running_loop(),
        Greeter,
        "127.0.0.1",
        0,
        context,
        counters,
        tls_timeout_s=0.1,
    )
    with socket.create_connection(("127.0.0.1", acceptor.port)) as silent:
        silent.setblocking(False)
        loop = asyncio.get_running_loop()
        assert await asyncio.wait_for(loop.sock_recv(silent, 100), 5) == b""
    reader, writer = await asyncio.open_connection("127.0.0.1", acceptor.port)
    writer.write(b"no handshake at all")
    await reader.read()
    writer.close()
    async with asyncio.timeout(5):
        while counters.failed < 2:
            await asyncio.sleep(0.005)
    acceptor.close()


EXHAUSTED = """
import asyncio, os, resource, socket
from chappe.edge.acceptor import AcceptCounters, Acceptor

class Greeter(asyncio.Protocol):
    def connection_made(self, transport):
        transport.write(b"hello")
        transport.close()

async def main():
    counters = AcceptCounters()
    acceptor = Acceptor(asyncio.get_running_loop(), Greeter, "127.0.0.1", 0, None, counters)
    client = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    loop = asyncio.get_running_loop()
    # The kernel completes it without anybody accepting.
    client.connect(("127.0.0.1", acceptor.port))
    client.setblocking(False)
    async with asyncio.timeout(10):
        while counters.pauses < 2:
            await asyncio.sleep(0.01)
    assert counters.accepted == 0
    for descriptor in taken:
        os.close(descriptor)
    assert await asyncio.wait_for(loop.sock_recv(client, 100), 10) == b"hello"
    assert counters.accepted == 1
    acceptor.close()
    client.close()
    print("recovered")

{run}(main())
"""


@pytest.mark.parametrize("run", ["asyncio.run", "__import__('uvloop').run"])
def test_without_descriptors_accepting_pauses_and_recovers(run: str) -> None:
    script = EXHAUSTED.replace("{run}", run)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout[-10:]) == (0, "recovered\n"), done.stderr
