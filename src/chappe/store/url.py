"""Stores by name: `memory`, `sqlite:`, `sqlite:/path`, `redis://`, `rediss://`."""

from __future__ import annotations

from pathlib import Path

from chappe.errors import ConfigError
from chappe.store.memory import MemoryStore
from chappe.store.redis_url import parse_redis_url
from chappe.store.sqlite import SqliteStore
from chappe.store.store import Store

FILE = "chappe.db"


def open_store(url: str, data: Path) -> Store:
    """Open the store of that name; a SQLite file without a path lies in the data folder.

    Raises ConfigError that says what is wrong. A Redis is first spoken to when it is first used.
    """
    scheme, colon, rest = url.partition(":")
    if url == "memory":
        return MemoryStore()
    if scheme == "sqlite" and colon:
        return SqliteStore(Path(rest.removeprefix("//")) if rest else data / FILE)
    if scheme in ("redis", "rediss") and rest.startswith("//"):
        return _open_redis(url)
    raise ConfigError(
        f"store: {scheme!r} is no kind of store; memory, sqlite:, sqlite:/path, redis://host:port "
        "and rediss://host:port are"
    )


def _open_redis(url: str) -> Store:
    try:
        from chappe.store.redis import RedisStore  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError("store: redis is not installed: pip install 'chappe[redis]'") from None
    address = parse_redis_url(url, "store")
    return RedisStore(address.url, address.shown, address.prefix)
