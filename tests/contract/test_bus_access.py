"""What a user of Redis must be allowed for a bus, as the documentation says it, and no more."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chappe import BusAway, Hub, KeysOptions
from chappe.errors import ConfigError
from tests.contract.keyed import served, talking
from tests.keys.rig import until
from tests.loop import on_loop
from tests.node.certificate import make_certificate
from tests.servers import RedisCluster, RedisServer, free_port

PAGE = Path(__file__).parents[2] / "docs" / "keys.md"
KINDS = ("one", "cluster")


def rules(kind: str) -> list[str]:
    """What the documentation gives a user: of one Redis, or of a Cluster."""
    lines = re.findall(r"^ACL SETUSER chappe (.*)$", PAGE.read_text(), re.MULTILINE)
    return " ".join(lines[: 1 + KINDS.index(kind)]).replace(">SECRET", ">s3cret").split()


def watching(bus: str) -> Hub:
    hub = Hub(bus, keys=KeysOptions(interval_s=1.0, cache_s=0.1))

    @hub.on_connect
    async def bind(session: Any) -> None:
        for key in ("7", "8"):
            assert await hub.subscribe(session, key)
        await session.send("bound")

    return hub


async def meet(bus: str, tell: Callable[..., object]) -> None:
    """All that brokers ask of Redis; others tell it what makes them do so."""
    here, there = watching(bus), watching(bus)
    async with here, served(there, "own") as url, talking(url) as one:
        assert (await one.hear())[2] == "bound"
        assert here.counts()["bus_up"] == there.counts()["bus_up"] == 1
        assert await here.send("key:7", b"\0\xff") == 1
        assert await one.ws.recv() == b"\0\xff"
        tell("SADD", "{chappe}:brokers", "one-that-died")
        both = (here, there)
        await until(lambda: any(hub.counts()["bus_buried"] for hub in both), "who died is buried")
        # Many keys are written anew in parts.
        tell("DEL", f"{{chappe}}:keys:{there.name}")

        async def reached() -> bool:
            return await here.send("key:8", "again") == 1

        await until(reached, "the keys are written anew")
        assert (await one.hear())[2] == "again"
        assert here.counts()["bus_up"] == there.counts()["bus_up"] == 1
        assert await here.close("key:7") == 1
        await until(lambda: not there.counts()["keys"], "no key is left")


def tell_owner(cluster: RedisCluster, *words: str) -> None:
    """Tell the server of a cluster that has the keys of the prefix."""
    answers = [server.ask(*words) for server in cluster.servers]
    assert any(answer.startswith(b":") for answer in answers), answers


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chappe.cluster.bus.register.KEYS_AT_ONCE", 1)


@on_loop
async def test_a_user_with_the_rights_of_the_documentation_may_join(tmp_path: Path) -> None:
    with ExitStack() as servers:
        redis = RedisServer(tmp_path / "redis")
        servers.callback(redis.kill)
        redis.tell("ACL", "SETUSER", "chappe", *rules("one"))
        await meet(f"redis://chappe:s3cret@127.0.0.1:{redis.port}", redis.tell)
        # The library says what it is called, and goes on where it may not.
        denied = re.findall(rb"object\r\n\$\d+\r\n(\S+)", redis.ask("ACL", "LOG"))
        assert set(denied) <= {b"client|setinfo", b"client"}
        for url in (
            f"redis://chappe:wrong@127.0.0.1:{redis.port}",
            f"redis://chappe:s3cret@127.0.0.1:{redis.port}?prefix=others",
        ):
            with pytest.raises(ConfigError, match="bus: ") as error:
                async with Hub(url):
                    pass
            assert "s3cret" not in str(error.value)


@on_loop
async def test_a_user_of_a_cluster_may_join(redis_cluster: RedisCluster) -> None:
    for server in redis_cluster.servers:
        server.tell("ACL", "SETUSER", "chappe", *rules("cluster"))
    try:
        url = redis_cluster.url.replace("://", "://chappe:s3cret@")
        await meet(url, partial(tell_owner, redis_cluster))
    finally:
        for server in redis_cluster.servers:
            server.tell("ACL", "DELUSER", "chappe")


@on_loop
async def test_a_bus_over_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    port = free_port()
    settings = {"tls-port": str(port), "tls-auth-clients": "no", "tls-cert-file": str(certificate)}
    settings |= {"tls-key-file": str(key), "tls-ca-cert-file": str(certificate)}
    redis = await asyncio.to_thread(RedisServer, tmp_path / "redis", settings)
    try:
        url = f"rediss://127.0.0.1:{port}"
        await meet(f"{url}?ssl_ca_certs={certificate}", redis.tell)
        # One that nobody vouches for is not spoken to.
        async with Hub(url) as stranger:
            with pytest.raises(BusAway, match=r"(?i)certificate"):
                await stranger.send("key:7", 1)
    finally:
        redis.kill()
