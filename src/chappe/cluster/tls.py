"""TLS of the links: both ends of each, from one node's certificate and the cluster's authority."""

from __future__ import annotations

import ssl

import msgspec

from chappe.cluster.options import ClusterTls
from chappe.errors import ConfigError


class LinkTls(msgspec.Struct, frozen=True, kw_only=True):
    """What links are accepted and dialled with."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    # The name that a peer's certificate has to carry; None: the host that was dialled.
    name: str | None = None


def link_tls(options: ClusterTls) -> LinkTls:
    """Load the certificates; raises ConfigError naming the file."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Believes the cluster's own authority and nobody else.
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_cert_chain(options.cert, options.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cluster.tls: {options.cert}, {options.key}: {error}") from None
        try:
            context.load_verify_locations(options.ca)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"cluster.tls.ca: {options.ca}: {error}") from None
    if options.mutual:
        server.verify_mode = ssl.CERT_REQUIRED
    return LinkTls(server=server, client=client, name=options.name or None)
