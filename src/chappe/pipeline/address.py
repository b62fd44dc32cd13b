"""Addresses of Sparks: where one is, and what is said of it, which is never who asks there or by
which token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

from chappe.errors import ConfigError

# Where Spark listens unless an address says otherwise.
_PORTS: Final = {"sc": 15002, "spark": 7077}
_HOST: Final = re.compile(r"[\w.:-]+")
# The scheme, where it is, and all the rest: in an address that is none, anything.
_PARTS: Final = re.compile(r"(\w*:/*)?([^/;?#]*)(.*)", re.DOTALL)
# What Connect is told that is no secret.
_PLAIN: Final = frozenset({"use_ssl", "session_id", "user_agent"})


def places(url: str) -> Iterator[tuple[str, int]]:
    """Host and port of each master, or of the server, that an address names; none if Spark is to be
    started. Raises ConfigError."""
    scheme = url.partition("://")[0]
    if scheme not in _PORTS:
        return
    for place in urlsplit(url).netloc.split(","):
        parts = urlsplit(f"//{place}")
        try:
            host, port = parts.hostname, parts.port or _PORTS[scheme]
        except ValueError:
            host = None
        if not host or not _HOST.fullmatch(host):
            raise ConfigError(f"{shown(url)}: this is not the address of a Spark")
        yield host, port


def shown(url: str) -> str:
    """An address as it may be shown: no more than where it leads."""
    scheme, place, rest = _parts(url)
    # A password may hold anything: then nobody knows where it ends.
    where = "..." if "@" in rest else place.rpartition("@")[2]
    return f"{scheme}{where}"


def hide(text: str, url: str) -> str:
    """A text about an address, without its secrets."""
    text = text.replace(url, shown(url)) if url else text
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, "...")
    return text


def _secrets(url: str) -> set[str]:
    """What an address says besides where it leads."""
    _scheme, place, rest = _parts(url)
    found = {place.rpartition("@")[0], *place.rpartition("@")[0].split(":")}
    for piece in re.split(r"[/;?&#]", rest):
        name, equals, value = piece.partition("=")
        if not equals:
            found.add(name)
        elif name not in _PLAIN:
            found.add(value)
    return {one for secret in found for one in (secret, unquote(secret)) if one}


def _parts(url: str) -> tuple[str, str, str]:
    parts = _PARTS.fullmatch(url)
    assert parts is not None, "all of it may be empty"
    return parts[1] or "", parts[2], parts[3]
