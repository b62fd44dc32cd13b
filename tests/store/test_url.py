"""Stores by name: which one it is, and what is said of a name that is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chappe.errors import ConfigError
from chappe.store.memory import MemoryStore
from chappe.store.redis import RedisStore
from chappe.store.sqlite import SqliteStore
from chappe.store.url import open_store
from tests.loop import on_loop


@on_loop
async def test_a_name_opens_its_store(tmp_path: Path):
    elsewhere = tmp_path / "elsewhere.db"
    for url, kind, file in (
        ("memory", MemoryStore, None),
        ("sqlite:", SqliteStore, tmp_path / "chappe.db"),
        (f"sqlite:{elsewhere}", SqliteStore, elsewhere),
        (f"sqlite://{elsewhere}", SqliteStore, elsewhere),
        ("redis://127.0.0.1:1", RedisStore, None),
        ("redis://user:secret@127.0.0.1:1/3?prefix=p", RedisStore, None),
        ("rediss://127.0.0.1:1/?ssl_ca_certs=/ca.pem", RedisStore, None),
    ):
        assert file is None or not file.exists() or file == elsewhere
        store = open_store(url, tmp_path)
        assert isinstance(store, kind)
        assert file is None or file.exists()
        await store.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "no kind of store"),
        ("sqlite", "no kind of store"),
        ("memory:", "no kind of store"),
        ("mysql://root:secret@host", "mysql"),
        ("redis:host", "no kind of store"),
        ("redis://host:port", "host or port"),
        ("redis://:secret@host:99999", "host or port"),
        ("redis://:secret@host/zero", "zero"),
        ("redis://:secret@host/0?prefix=", "prefix"),
        ("redis://:secret@host/0?retries=3", "retries"),
        ("redis://:secret@host/0?password=secret", "password"),
        ("redis://:secret@host/0?ssl_ca_certs=x", "rediss"),
        ("sqlite:/no/such/folder/x.db", "/no/such/folder/x.db"),
    ],
)
def test_a_name_that_is_wrong_is_refused_without_showing_a_password(
    url: str, said: str, tmp_path: Path
):
    with pytest.raises(ConfigError, match=said) as refused:
        open_store(url, tmp_path)
    assert str(refused.value).startswith("store: ")
    assert "secret" not in str(refused.value)


def test_without_redis_installed_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delitem(sys.modules, "chappe.store.redis")
    monkeypatch.delitem(sys.modules, "chappe.store.redis_server")
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ConfigError, match=r"chappe\[redis\]"):
        open_store("redis://host", tmp_path)
