"""Opens a registry by its address.

    memory                                      this process alone
    redis://[user:password@]host[:6379][/db][?prefix=chappe]
    rediss://...[?ca=file]                      the same over TLS
    zookeeper://[user:password@]host[:2181][,host[:2181]...][/path]
    kubernetes://service.namespace.svc[:7403][?dns=host[:53]][&tls=true]

Nothing that is said about an address, in errors or logs, has its password in it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from chappe.errors import ConfigError
from chappe.registry.agreement import Agreement
from chappe.registry.ledger import Ledger
from chappe.registry.memory import MemoryRegistry
from chappe.registry.options import DEFAULTS, RegistryOptions
from chappe.registry.registry import Registry
from chappe.registry.roster import Roster
from chappe.registry.session import Session


class Host(NamedTuple):
    """A host and its port."""

    name: str
    port: int


class Place(NamedTuple):
    """An address, taken apart."""

    scheme: str
    user: str | None
    password: str | None
    hosts: tuple[Host, ...]
    path: str
    query: Mapping[str, str]

    def __repr__(self) -> str:
        return f"{self.scheme}://{','.join(f'{host}:{port}' for host, port in self.hosts)}"


def open_registry(url: str, options: RegistryOptions = DEFAULTS, *, name: str = "node") -> Registry:
    """Make a registry of an address; nothing is connected before its first use.

    Raises ConfigError that says what is wrong with the address, or which package is missing.
    """
    if url == "memory":
        return MemoryRegistry(options).open(name)
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _OPENERS:
        known = ", ".join(f"{known}://" for known in _OPENERS)
        raise ConfigError(f"registry: must be memory, or begin with one of {known}")
    return _OPENERS[scheme](scheme, rest, options)


def parse(scheme: str, rest: str, default_port: int, options: frozenset[str]) -> Place:
    """Take an address apart; raises ConfigError."""
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    userinfo, at, hosts = authority.rpartition("@")
    user, _, password = userinfo.partition(":")
    found = dict(parse_qsl(query, keep_blank_values=True))
    for option in found:
        if option not in options:
            known = f"; it may have {', '.join(sorted(options))}" if options else ""
            raise ConfigError(f"registry: {scheme}:// has no option {option!r}{known}")
    return Place(
        scheme,
        unquote(user) if at and user else None,
        unquote(password) if at and password else None,
        tuple(parse_host(scheme, host, default_port) for host in hosts.split(",")),
        slash + path,
        found,
    )


def parse_host(scheme: str, text: str, default_port: int) -> Host:
    """Read `host`, `host:port` or `[v6]:port`; raises ConfigError."""
    if text.startswith("["):
        name, bracket, after = text[1:].partition("]")
        valid = bool(bracket) and (not after or after.startswith(":"))
        port = after[1:]
    else:
        name, colon, port = text.partition(":")
        valid = not colon or bool(port)
    if not name or not valid:
        raise ConfigError(f"registry: {scheme}:// needs a host, and maybe a port: host:port")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ConfigError(f"registry: {scheme}://{name}: {port!r} is not a port")
    return Host(name, int(port) if port else default_port)


def _open_redis(scheme: str, rest: str, options: RegistryOptions) -> Registry:
    known = frozenset({"prefix", "ca"} if scheme == "rediss" else {"prefix"})
    place = parse(scheme, rest, 6379, known)
    if len(place.hosts) != 1:
        raise ConfigError(f"registry: {scheme}:// takes one host")
    database = place.path.strip("/") or "0"
    if not (database.isascii() and database.isdigit()):
        raise ConfigError(f"registry: {scheme}://: the database {database!r} is not a number")
    prefix = place.query.get("prefix", "chappe")
    if not prefix or set(prefix) & set("{}"):
        raise ConfigError(f"registry: {scheme}://: prefix must not be empty, nor have braces")
    try:
        from chappe.registry.redis import RedisLedger, redis_client  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise _needs("redis", missing) from missing
    client = redis_client(
        place.hosts[0],
        int(database),
        user=place.user,
        password=place.password,
        tls=scheme == "rediss",
        ca=place.query.get("ca"),
        timeout_s=options.timeout_s,
    )
    ledger = RedisLedger(client, repr(place), prefix, options)
    return _over_ledger("redis", ledger, options, ledger.forgets)


def _open_zookeeper(scheme: str, rest: str, options: RegistryOptions) -> Registry:
    place = parse(scheme, rest, 2181, frozenset())
    root = place.path.rstrip("/") or "/chappe"
    if "//" in root or any(part in (".", "..") for part in root.split("/")):
        raise ConfigError(f"registry: zookeeper://: {root!r} is not a path")
    if (place.user is None) != (place.password is None):
        raise ConfigError("registry: zookeeper:// needs both a user and a password, or neither")
    try:
        from chappe.registry.zookeeper import ZooKeeperLedger  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise _needs("zookeeper", missing) from missing
    login = f"{place.user}:{place.password}" if place.user is not None else None
    hosts = ",".join(
        f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name, port in place.hosts
    )
    ledger = ZooKeeperLedger(hosts, repr(place), root, login, options)
    return _over_ledger("zookeeper", ledger, options, _never)


def _open_kubernetes(scheme: str, rest: str, options: RegistryOptions) -> Registry:
    place = parse(scheme, rest, 7403, frozenset({"dns", "tls"}))
    if len(place.hosts) != 1 or place.path.strip("/") or place.user is not None:
        raise ConfigError("registry: kubernetes:// takes one service, and neither path nor user")
    tls = place.query.get("tls", "false")
    if tls not in ("true", "false"):
        raise ConfigError(f"registry: kubernetes://: tls must be true or false, not {tls!r}")
    server = place.query.get("dns")
    try:
        from chappe.registry.kubernetes import ServiceMembership  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise _needs("kubernetes", missing) from missing
    membership = ServiceMembership(
        place.hosts[0].name,
        place.hosts[0].port,
        tls=tls == "true",
        server=parse_host("kubernetes", server, 53) if server is not None else None,
        options=options,
    )
    return Registry("kubernetes", membership, None)


def _over_ledger(
    kind: str,
    ledger: Ledger,
    options: RegistryOptions,
    forgets: Callable[[], Awaitable[str | None]],
) -> Registry:
    session = Session(ledger, users=2)
    agreement = Agreement(session, options.poll_s)
    return Registry(kind, Roster(session, options.poll_s), agreement, forgets)


async def _never() -> str | None:
    """What is agreed on is on the disks of a majority."""
    return None


def _needs(extra: str, missing: ModuleNotFoundError) -> ConfigError:
    return ConfigError(
        f"registry: {extra}:// needs the package {missing.name}: pip install 'chappe[{extra}]'"
    )


_OPENERS: dict[str, Callable[[str, str, RegistryOptions], Registry]] = {
    "redis": _open_redis,
    "rediss": _open_redis,
    "zookeeper": _open_zookeeper,
    "kubernetes": _open_kubernetes,
}
