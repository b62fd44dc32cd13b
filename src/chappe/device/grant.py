"""A grant: what a device needs to connect, as the web gives it and as it is cached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import msgspec

from chappe.errors import BadRequest
from chappe.wire.pushcipher import PUBLIC_BYTES

# Gives a fresh grant: the web, or the app's own server.
GrantSource = Callable[[], Awaitable["Grant"]]


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """Who this device is to a comet, until when, where the comet is, and by what it is known."""

    client: str
    token: str
    comet: str
    identity: bytes
    expires_ms: int

    def __repr__(self) -> str:
        return f"Grant(client={self.client!r}, comet={self.comet!r}, expires_ms={self.expires_ms})"


def decode_grant(data: bytes) -> Grant:
    """Read a grant as the web gives it, bytes as base64; raises BadRequest that names the field."""
    try:
        grant = msgspec.json.decode(data, type=Grant)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"grant: {error}") from None
    check_grant(grant)
    return grant


def check_grant(grant: Grant) -> None:
    """Raise BadRequest for a grant that is of no use."""
    if len(grant.identity) != PUBLIC_BYTES:
        raise BadRequest(f"identity: {len(grant.identity)} bytes, {PUBLIC_BYTES} wanted")
    comet_address(grant.comet)


def comet_address(comet: str) -> tuple[str, int, bool]:
    """Host, port and whether it speaks TLS; raises BadRequest."""
    try:
        parts = urlsplit(comet)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadRequest(f"comet: {error}") from None
    if parts.scheme not in ("tcp", "tls") or not host or not port:
        raise BadRequest("comet: tcp://host:port or tls://host:port wanted")
    return host, port, parts.scheme == "tls"
