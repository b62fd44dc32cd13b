"""States are opened by name, each wherever it is wanted; no password is ever said."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chappe.errors import ConfigError, StorageError
from chappe.push.state.redis.message import RedisMessages
from chappe.push.state.redis.route import RedisRoutes
from chappe.push.state.sqlite.meta import SqliteMeta
from chappe.push.state.sqlite.topic import SqliteTopics
from chappe.push.state.sqlite.user import SqliteUsers
from chappe.push.state.url import open_states
from tests.contract.push_states import client_id
from tests.loop import on_loop


def now_ms() -> int:
    return 1_790_000_000_000


@on_loop
async def test_each_state_may_be_somewhere_else(tmp_path: Path):
    elsewhere = tmp_path / "users.db"
    urls = {
        "user": f"sqlite:{elsewhere}",
        "route": "redis://127.0.0.1:1/3?prefix=a",
        "message": "redis://127.0.0.1:2/?buckets=16",
        "topic": "memory",
    }
    states = open_states(urls, tmp_path, now_ms)
    assert isinstance(states.meta, SqliteMeta)
    assert isinstance(states.user, SqliteUsers)
    assert isinstance(states.route, RedisRoutes)
    assert isinstance(states.message, RedisMessages)
    assert isinstance(states.topic, SqliteTopics)
    assert {path.name for path in tmp_path.glob("*.db")} == {"push.db", "users.db"}
    assert len(states.places) == 5
    await states.close()


@on_loop
async def test_one_name_is_for_all_and_opened_once(tmp_path: Path):
    states = open_states("sqlite:", tmp_path, now_ms)
    assert len(states.places) == 1
    assert (tmp_path / "push.db").exists()
    await states.close()


@pytest.mark.parametrize(
    ("urls", "said"),
    [
        ("", "no kind of state"),
        ("sqlite", "no kind of state"),
        ("mysql://user:secret@host", "no kind of state"),
        ({"users": "memory"}, "'users' is no state"),
        ("redis://:secret@host:port", "wrong host or port"),
        ("redis://:secret@host/x", "number of a Redis database"),
        ("redis://:secret@host/?prefix=", "prefix is empty"),
        ("redis://:secret@host/?depth=3", "no setting"),
        ("redis://:secret@host/?ssl_ca_certs=x", "rediss"),
        ("redis://:secret@host/?buckets=0", "buckets"),
        ("redis://:secret@host/?buckets=-1", "buckets"),
        ("redis://:secret@host/?buckets=16777217", "buckets"),
    ],
)
def test_a_wrong_name_is_refused_and_says_no_password(
    urls: str | dict[str, str], said: str, tmp_path: Path
):
    with pytest.raises(ConfigError, match=said) as refused:
        open_states(urls, tmp_path, now_ms)
    assert str(refused.value).startswith("push: ")
    assert "secret" not in str(refused.value)


@on_loop
async def test_a_redis_that_is_not_there_is_told_without_its_password(tmp_path: Path):
    states = open_states("redis://me:secret@127.0.0.1:1", tmp_path, now_ms)
    with pytest.raises(StorageError, match=r"redis://127\.0\.0\.1:1/0") as told:
        await states.route.move({client_id(): 1})
    assert "secret" not in str(told.value)
    await states.close()


def test_without_redis_installed_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    for name in [name for name in sys.modules if name.startswith("chappe.push.state.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "chappe.store.redis_server")
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ConfigError, match=r"chappe\[redis\]"):
        open_states("redis://host", tmp_path, now_ms)
