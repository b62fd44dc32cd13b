"""Stores by name: `memory`, `sqlite:`, `sqlite:/path`, `redis://`, `rediss://`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from chappe.errors import ConfigError
from chappe.store.memory import MemoryStore
from chappe.store.sqlite import SqliteStore
from chappe.store.store import Store

FILE = "chappe.db"
PREFIX = "chappe"
# What else a Redis address may say after its question mark.
_REDIS_SETTINGS = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)


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
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port or 6379
    except ValueError:
        raise ConfigError("store: the address of the Redis has a wrong host or port") from None
    database = parts.path.strip("/") or "0"
    if not database.isdecimal():
        raise ConfigError(f"store: {parts.path!r} is not a number of a Redis database")
    shown = f"{parts.scheme}://{host}:{port}/{database}"
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = settings.pop("prefix", PREFIX)
    if not prefix:
        raise ConfigError(f"store: {shown}: prefix is empty")
    for name in settings.keys() - _REDIS_SETTINGS:
        raise ConfigError(f"store: {shown}: {name!r} is no setting; prefix and ssl_... are")
    if settings and parts.scheme != "rediss":
        raise ConfigError(f"store: {shown}: ssl_... are settings of rediss://")
    plain = urlunsplit((parts.scheme, parts.netloc, f"/{database}", urlencode(settings), ""))
    return RedisStore(plain, shown, prefix)
