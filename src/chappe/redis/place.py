"""Where a Redis is, and what is asked of it, taken from its address.

    redis://[user:password@]host[:6379][/db]
    unix:///path/to/socket
    redis+sentinel://[user:password@]host[:26379][,host...]/master[/db]
    redis+cluster://[user:password@]host[:6379][,host...]
    rediss://, rediss+sentinel://, rediss+cluster://      the same over TLS

After a question mark: `prefix` of all names; where something is to be kept, `aof=require|any`, and
`wait=N`, replicas that must have a commit, within `wait_ms`; `db` of a socket; `sentinel_user` and
`sentinel_password`; and for TLS `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_cert_reqs`,
`ssl_check_hostname`.

Nothing that is said about a place has a password in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qsl, unquote

from chappe.errors import ConfigError

PREFIX = "chappe"
WAIT_MS = 1_000
# More replicas than anybody has; and no commit should take longer than that.
WAIT_MAX = 100
WAIT_MS_MAX = 60_000
_PORTS = {"one": 6379, "cluster": 6379, "sentinel": 26379}
_SSL = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)
_SECRETS = frozenset({"sentinel_user", "sentinel_password"})
# What is asked of a Redis that keeps something.
KEEPING = frozenset({"aof", "wait", "wait_ms"})

Kind = Literal["one", "unix", "sentinel", "cluster"]
_SCHEMES: dict[str, tuple[Kind, bool]] = {
    "redis": ("one", False),
    "rediss": ("one", True),
    "unix": ("unix", False),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """An address, taken apart."""

    kind: Kind
    scheme: str
    hosts: tuple[tuple[str, int], ...] = ()
    # The socket of a `unix` one, the name of a `sentinel` one's master.
    path: str = ""
    database: int = 0
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_user: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    tls: bool = False
    ssl: dict[str, str | bool] = field(default_factory=dict)
    prefix: str = PREFIX
    # Whether a server that would forget what it acknowledged is refused.
    aof: Literal["require", "any"] = "require"
    wait: int = 0
    wait_ms: int = WAIT_MS

    @property
    def shown(self) -> str:
        """What errors and logs may say of it."""
        if self.kind == "unix":
            return f"unix://{self.path}"
        hosts = ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in self.hosts)
        return f"{self.scheme}://{hosts}" + (f"/{self.path}" if self.path else "")


class _Wrong(Exception):
    """What is wrong with an address."""


def parse_url(url: str, option: str = "queues", more: frozenset[str] = KEEPING) -> Place:
    """Take an address apart, which may have `more` settings than any; raises ConfigError that names
    the option, says what is wrong, and no password."""
    try:
        return _parse(url, more)
    except _Wrong as wrong:
        raise ConfigError(f"{option}: {wrong}") from None


def _parse(url: str, more: frozenset[str]) -> Place:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        known = ", ".join(f"{known}://" for known in _SCHEMES)
        raise _Wrong(f"a Redis begins with one of {known}")
    kind, tls = _SCHEMES[scheme]
    rest, _, query = rest.partition("?")
    settings = _settings(scheme, kind, tls, query, more)
    authority, _, path = rest.partition("/")
    userinfo, _, hosts = authority.rpartition("@")
    user, _, password = userinfo.partition(":")
    if kind == "unix":
        name, database = f"/{path}", settings.pop("db", "0")
        if hosts or not path:
            raise _Wrong("unix:// needs the path of a socket: unix:///run/redis.sock")
    elif kind == "sentinel":
        name, _, database = path.partition("/")
        if not name:
            raise _Wrong(f"{scheme}:// needs the name of a master: host:port/name")
    else:
        name, database = "", path.strip("/")
    return Place(
        kind=kind,
        scheme=scheme,
        hosts=() if kind == "unix" else _hosts(scheme, kind, hosts),
        path=unquote(name),
        database=_database(scheme, kind, database),
        user=unquote(user) or None,
        password=unquote(password) or None,
        sentinel_user=settings.get("sentinel_user"),
        sentinel_password=settings.get("sentinel_password"),
        tls=tls,
        ssl={name: _flag(value) for name, value in settings.items() if name in _SSL},
        prefix=_prefix(settings.get("prefix", PREFIX)),
        aof=_aof(settings.get("aof", "require")),
        wait=_number("wait", settings.get("wait", "0"), 0, WAIT_MAX),
        wait_ms=_number("wait_ms", settings.get("wait_ms", str(WAIT_MS)), 1, WAIT_MS_MAX),
    )


def _settings(
    scheme: str, kind: Kind, tls: bool, query: str, more: frozenset[str]
) -> dict[str, str]:
    known = more | {"prefix"} | (_SSL if tls else frozenset())
    known |= {"sentinel": _SECRETS, "unix": frozenset({"db"})}.get(kind, frozenset())
    settings = dict(parse_qsl(query, keep_blank_values=True))
    for name in settings:
        if name not in known:
            raise _Wrong(
                f"{scheme}:// has no setting {name!r}; it may have " + ", ".join(sorted(known))
            )
    return settings


def _hosts(scheme: str, kind: Kind, text: str) -> tuple[tuple[str, int], ...]:
    hosts = tuple(_host(scheme, host, _PORTS[kind]) for host in text.split(","))
    if kind == "one" and len(hosts) != 1:
        raise _Wrong(
            f"{scheme}:// takes one host; several are of {scheme}+sentinel:// "
            f"or {scheme}+cluster://"
        )
    return hosts


def _host(scheme: str, text: str, default_port: int) -> tuple[str, int]:
    if text.startswith("["):
        name, bracket, after = text[1:].partition("]")
        valid = bool(bracket) and (not after or after.startswith(":"))
        port = after[1:]
    else:
        name, colon, port = text.partition(":")
        valid = not colon or bool(port)
    if not name or not valid:
        raise _Wrong(f"{scheme}:// needs a host, and maybe a port: host:port")
    return name, _number("port", port, 1, 65_535) if port else default_port


def _database(scheme: str, kind: Kind, text: str) -> int:
    database = _number("the database", text or "0", 0, 1_000_000)
    if kind == "cluster" and database:
        raise _Wrong(f"{scheme}:// has the database 0 only")
    return database


def _number(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise _Wrong(f"{name} must be a number between {least} and {most}")
    return int(text)


def _prefix(text: str) -> str:
    if not text or set(text) & set("{}"):
        raise _Wrong("prefix must not be empty, nor have braces")
    return text


def _aof(text: str) -> Literal["require", "any"]:
    if text == "require":
        return "require"
    if text == "any":
        return "any"
    raise _Wrong("aof must be require or any")


def _flag(text: str) -> str | bool:
    return {"true": True, "false": False}.get(text.lower(), text)
