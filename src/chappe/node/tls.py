"""The certificate that every edge of a node shows."""

from __future__ import annotations

import ssl

from chappe.errors import ConfigError
from chappe.node.options import Tls


def server_context(tls: Tls) -> ssl.SSLContext:
    """Make what connections are encrypted with; raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.cert, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls: {tls.cert}, {tls.key}: {error}") from None
    return context
