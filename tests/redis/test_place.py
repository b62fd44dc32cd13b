"""Addresses of a Redis that keeps queues."""

from __future__ import annotations

import pytest

from chappe.errors import ConfigError
from chappe.redis.place import Place, parse_url


def test_one_server():
    place = parse_url("redis://host")
    assert (place.kind, place.hosts, place.database) == ("one", (("host", 6379),), 0)
    assert (place.user, place.password, place.tls) == (None, None, False)
    assert (place.prefix, place.aof, place.wait, place.wait_ms) == ("chappe", "require", 0, 1_000)


def test_all_that_can_be_said():
    place = parse_url("redis://ann:p%40ss@host:7000/3?prefix=q&aof=any&wait=2&wait_ms=50")
    assert place == Place(
        kind="one",
        scheme="redis",
        hosts=(("host", 7000),),
        database=3,
        user="ann",
        password="p@ss",
        prefix="q",
        aof="any",
        wait=2,
        wait_ms=50,
    )


def test_a_password_without_a_user():
    place = parse_url("redis://:pw@[::1]:7")
    assert (place.user, place.password, place.hosts) == (None, "pw", (("::1", 7),))


def test_tls():
    place = parse_url("rediss://h?ssl_ca_certs=/ca.pem&ssl_check_hostname=false")
    assert place.tls
    assert place.ssl == {"ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False}
    assert parse_url("rediss+cluster://h").tls
    assert parse_url("rediss+sentinel://h/m").tls


def test_a_socket():
    place = parse_url("unix:///run/redis/redis.sock?db=2")
    assert (place.kind, place.path, place.database) == ("unix", "/run/redis/redis.sock", 2)
    assert place.shown == "unix:///run/redis/redis.sock"


def test_sentinels():
    place = parse_url("redis+sentinel://u:p@a,b:7,[::2]/main/4?sentinel_password=s")
    assert place.hosts == (("a", 26379), ("b", 7), ("::2", 26379))
    assert (place.kind, place.path, place.database) == ("sentinel", "main", 4)
    assert place.sentinel_password == "s"
    assert place.shown == "redis+sentinel://a:26379,b:7,[::2]:26379/main"


def test_a_cluster():
    place = parse_url("redis+cluster://a:1,b:2/?prefix=x")
    assert (place.kind, place.hosts) == ("cluster", (("a", 1), ("b", 2)))


@pytest.mark.parametrize(
    "url",
    [
        "redis://ann:s3cret@host/x",
        "redis://ann:s3cret@host:port",
        "redis://ann:s3cret@",
        "redis://ann:s3cret@a,b",
        "redis://ann:s3cret@host?what=s3cret",
        "redis+sentinel://ann:s3cret@a",
        "redis+sentinel://ann:s3cret@a/m?sentinel_password=s3cret&x=1",
        "redis+cluster://ann:s3cret@a/1",
        "redis+cluster://ann:s3cret@a,,b",
        "redis://ann:s3cret@host?prefix=",
        "redis://ann:s3cret@host?prefix={a}",
        "redis://ann:s3cret@host?aof=no",
        "redis://ann:s3cret@host?wait=-1",
        "redis://ann:s3cret@host?wait=many",
        "redis://ann:s3cret@host?wait_ms=0",
        "redis://ann:s3cret@host?ssl_ca_certs=x",
        "redis://ann:s3cret@host:99999",
        "redis://ann:s3cret@[::1",
        "http://ann:s3cret@host",
        "ann:s3cret@host",
        "unix://",
        "unix://host/path",
    ],
)
def test_what_is_wrong_is_said_and_no_password(url: str):
    with pytest.raises(ConfigError, match="queues: ") as refused:
        parse_url(url)
    assert "s3cret" not in str(refused.value)


def test_no_password_is_told():
    place = parse_url(
        "redis+sentinel://ann:s3cret@host/m?sentinel_user=bob&sentinel_password=s3cret"
    )
    assert "s3cret" not in f"{place.shown} {place!r} {place}"
