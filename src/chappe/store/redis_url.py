"""Where a Redis is, taken from its address: `redis://[user:password@]host[:port][/db][?...]`."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from chappe.errors import ConfigError

PREFIX = "chappe"
# What else a Redis address may say after its question mark.
_TLS = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)


class RedisAddress(NamedTuple):
    """An address, taken apart: what connects, and what errors and logs may say of it."""

    url: str
    shown: str
    prefix: str
    # Settings that are not Redis's, by name.
    more: dict[str, str]


def parse_redis_url(url: str, option: str, more: frozenset[str] = frozenset()) -> RedisAddress:
    """Take an address apart; raises ConfigError that names the option, and no password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port or 6379
    except ValueError:
        raise ConfigError(f"{option}: the address of the Redis has a wrong host or port") from None
    database = parts.path.strip("/") or "0"
    if not database.isdecimal():
        raise ConfigError(f"{option}: {parts.path!r} is not a number of a Redis database")
    shown = f"{parts.scheme}://{host}:{port}/{database}"
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = settings.pop("prefix", PREFIX)
    if not prefix:
        raise ConfigError(f"{option}: {shown}: prefix is empty")
    ours = {name: settings.pop(name) for name in more & settings.keys()}
    for name in settings.keys() - _TLS:
        known = ", ".join(("prefix", *sorted(more)))
        raise ConfigError(f"{option}: {shown}: {name!r} is no setting; {known} and ssl_... are")
    if settings and parts.scheme != "rediss":
        raise ConfigError(f"{option}: {shown}: ssl_... are settings of rediss://")
    plain = urlunsplit((parts.scheme, parts.netloc, f"/{database}", urlencode(settings), ""))
    return RedisAddress(plain, shown, prefix, ours)
