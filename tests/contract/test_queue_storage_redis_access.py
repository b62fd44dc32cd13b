"""Ways to a Redis that keeps queues: users and passwords, a socket, TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import structlog

from chappe.errors import Overload
from chappe.queues.redis import open_redis
from tests.contract.storages import (
    LIMITS,
    InRedis,
    committed,
    made,
    opened,
    started,
    stored,
)
from tests.loop import on_loop
from tests.node.certificate import make_certificate
from tests.servers import RedisServer, free_port


@on_loop
async def test_a_user_and_a_password_are_used_and_never_told(own_server: RedisServer):
    own_server.tell("ACL", "SETUSER", "ann", "on", ">s3cret", "~*", "&*", "+@all")
    own_server.tell("ACL", "SETUSER", "default", "off")
    place = f"127.0.0.1:{own_server.port}"
    with structlog.testing.capture_logs() as logs:
        async with started(InRedis(f"redis://ann:s3cret@{place}")) as storage:
            await made(storage)
        storage = open_redis(f"redis://ann:wr0ng@{place}", LIMITS, timeout_s=1.0)
        await storage.start()
        with pytest.raises(Overload) as refused:
            await opened(storage)
        await storage.close()
    told = f"{refused.value} {logs}"
    assert place in told
    assert "s3cret" not in told
    assert "wr0ng" not in told


@on_loop
async def test_a_socket_of_the_same_machine_will_do(tmp_path: Path):
    path = tmp_path / "r.sock"
    server = await asyncio.to_thread(RedisServer, tmp_path / "redis", {"unixsocket": str(path)})
    try:
        async with started(InRedis(f"unix://{path}")) as storage:
            state = await made(storage)
            await committed(storage, state, stored(state, 1))
    finally:
        server.kill()


@on_loop
async def test_a_redis_over_tls(tmp_path: Path):
    certificate, key = make_certificate(tmp_path)
    port = free_port()
    settings = {"tls-port": str(port), "tls-auth-clients": "no", "tls-cert-file": str(certificate)}
    settings |= {"tls-key-file": str(key), "tls-ca-cert-file": str(certificate)}
    server = await asyncio.to_thread(RedisServer, tmp_path / "redis", settings)
    try:
        url = f"rediss://127.0.0.1:{port}"
        async with started(InRedis(f"{url}?ssl_ca_certs={certificate}")) as storage:
            state = await made(storage)
            await committed(storage, state, stored(state, 1))
        # One that nobody vouches for is not spoken to.
        async with started(InRedis(url, timeout_s=2.0)) as storage:
            with pytest.raises(Overload, match=r"(?i)certificate"):
                await opened(storage)
    finally:
        server.kill()
