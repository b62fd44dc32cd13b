"""The Origin check: which web pages may open a connection from a browser."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from chappe.errors import ConfigError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Origins:
    """An exact allow-list; a request without an Origin does not come from a page and may pass.

    With `loopback`, pages served from this machine may pass as well: for development, where no
    token stands between a page and the hub.
    """

    __slots__ = ("_allowed", "_loopback")

    def __init__(self, allowed: Iterable[str], *, loopback: bool = False) -> None:
        if isinstance(allowed, str):
            raise ConfigError("origins: must be a list of origins, not one text")
        self._allowed = frozenset(allowed)
        self._loopback = loopback
        for origin in self._allowed:
            if not _is_origin(origin):
                raise ConfigError(f"origins: {origin!r} is not an origin such as https://a.example")

    def allow(self, origin: str | None) -> bool:
        """Whether a page of that origin may connect."""
        if origin is None or origin in self._allowed:
            return True
        return self._loopback and _is_origin(origin) and urlsplit(origin).hostname in LOOPBACK


def same_host(origin: str | None, host: str) -> bool:
    """Whether a page comes from the host that it connects to."""
    return origin is not None and origin.partition("://")[2].lower() == host.lower() != ""


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        return False
    return bool(
        parts.scheme in ("http", "https")
        and host
        and text == f"{parts.scheme}://{parts.netloc}"
        and "@" not in parts.netloc
    )
