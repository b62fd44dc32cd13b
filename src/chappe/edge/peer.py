"""Peers: where a connection comes from."""

from __future__ import annotations

import asyncio
import sys


def peer_of(transport: asyncio.BaseTransport) -> str:
    """The other side's address; one object for all connections from there."""
    peer = transport.get_extra_info("peername")
    return sys.intern(str(peer[0])) if peer else ""
