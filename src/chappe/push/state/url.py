"""States by name: one for all five, or one for each.

memory, sqlite:, sqlite:/path
redis://[user:password@]host[:port][/db][?prefix=...&buckets=...], rediss://...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Union

from chappe.errors import ConfigError
from chappe.push.state.sqlite import SqlitePlace
from chappe.push.state.states import States
from chappe.store.redis_url import parse_redis_url

if TYPE_CHECKING:
    from chappe.push.state.redis import RedisPlace

FILE = "push.db"
DEFAULT = "sqlite:"
NAMES = ("meta", "user", "route", "message", "topic")

Opened = Union[SqlitePlace, "RedisPlace"]


def open_states(urls: str | Mapping[str, str], data: Path, wall_ms: Callable[[], int]) -> States:
    """Open the states of push: all by one name, or each by its own; `sqlite:` is the default.

    A SQLite file without a path lies in the data folder. A Redis is first spoken to when it is
    first used. Raises ConfigError that says what is wrong.
    """
    at = open_places(urls, data, wall_ms)
    return States(
        at["meta"].meta,
        at["user"].user,
        at["route"].route,
        at["message"].message,
        at["topic"].topic,
        list(dict.fromkeys(at.values())),
    )


def open_places(
    urls: str | Mapping[str, str], data: Path, wall_ms: Callable[[], int]
) -> dict[str, Opened]:
    """Where each state is, by its name; those that are together have one place."""
    named = dict.fromkeys(NAMES, urls) if isinstance(urls, str) else dict(urls)
    for name in named.keys() - set(NAMES):
        raise ConfigError(f"push: {name!r} is no state; {', '.join(NAMES)} are")
    states: dict[str, list[str]] = {}
    for name in NAMES:
        states.setdefault(named.get(name, DEFAULT), []).append(name)
    places = {url: _open(url, data, wall_ms, here) for url, here in states.items()}
    return {name: places[url] for url, here in states.items() for name in here}


def _open(url: str, data: Path, wall_ms: Callable[[], int], states: Collection[str]) -> Opened:
    scheme, colon, rest = url.partition(":")
    if url == "memory":
        return SqlitePlace(None, wall_ms)
    if scheme == "sqlite" and colon:
        return SqlitePlace(Path(rest.removeprefix("//")) if rest else data / FILE, wall_ms)
    if scheme in ("redis", "rediss") and rest.startswith("//"):
        return _open_redis(url, wall_ms, states)
    raise ConfigError(
        f"push: {scheme!r} is no kind of state; memory, sqlite:, sqlite:/path, redis://host:port "
        "and rediss://host:port are"
    )


def _open_redis(url: str, wall_ms: Callable[[], int], states: Collection[str]) -> RedisPlace:
    try:
        from chappe.push.state.redis import RedisPlace  # noqa: PLC0415 - an extra
        from chappe.push.state.redis.place import BUCKETS, BUCKETS_MAX  # noqa: PLC0415
        from chappe.store.redis_server import RedisServer  # noqa: PLC0415
    except ImportError:
        raise ConfigError("push: redis is not installed: pip install 'chappe[redis]'") from None
    address = parse_redis_url(url, "push", frozenset({"buckets"}))
    buckets = address.more.get("buckets", str(BUCKETS))
    if not (buckets.isascii() and buckets.isdecimal() and 1 <= int(buckets) <= BUCKETS_MAX):
        raise ConfigError(
            f"push: {address.shown}: buckets must be a number between 1 and {BUCKETS_MAX}"
        )
    server = RedisServer(address.url, address.shown)
    return RedisPlace(server, address.prefix, wall_ms, int(buckets), states)
