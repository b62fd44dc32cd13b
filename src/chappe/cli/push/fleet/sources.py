"""Where connections of a fleet come from: sockets, from as many addresses as they need."""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket

from chappe.errors import ConfigError

# Linux gives some 28,000 ports to connections from one address to one comet; others need some, too.
PER_ADDRESS = 20_000
# From 127.0.1.1 on: 127.0.0.1 is everybody else's.
_FIRST = int(ipaddress.IPv4Address("127.0.1.1"))
# Of Linux: the port is chosen when connecting, when it is known to whom; so that another comet's
# connections do not use it up.
_BIND_ADDRESS_NO_PORT = getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24)
# Files that a process needs besides: HTTP connections, the loop's own, standard streams.
_OTHER_FILES = 64


def need_files(count: int) -> None:
    """Let this process have so many connections; raises ConfigError when it may not."""
    wanted = count + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise ConfigError(
            f"--count: {count:,} connections of a process need {wanted:,} files, and it may have "
            f"{hard:,} (ulimit -n); share them among more with --processes"
        )
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def source_of(host: str, index: int, spread: bool | None) -> str | None:
    """The address for a device of this number, if it needs a certain one; raises ConfigError."""
    try:
        address = ipaddress.ip_address(host)
        loopback = address.version == 4 and address.is_loopback
    except ValueError:
        loopback = False
    if spread and not loopback:
        raise ConfigError(f"--spread-addresses: the comet is at {host}, not at one of 127.0.0.0/8")
    if spread is False or not loopback or (spread is None and index < PER_ADDRESS):
        return None
    return str(ipaddress.IPv4Address(_FIRST + index // PER_ADDRESS))


async def open_socket(host: str, port: int, source: str | None) -> socket.socket:
    """A connection; raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setblocking(False)
        if source is not None:
            made.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
            made.bind((source, 0))
        await loop.sock_connect(made, address)
    except BaseException:
        made.close()
        raise
    return made
