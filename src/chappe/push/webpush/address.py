"""Addresses that notes may be sent to: anybody may name an endpoint, and this machine can reach
what strangers cannot."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# For protocols and relays, though some of it counts as global.
_SPECIAL_4 = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
# All that is given to machines; what is outside is special in one way or another.
_GIVEN_6 = IPv6Network("2000::/3")
# Translated to IPv4 on its way (RFC 6052): it may be anything there.
_TRANSLATED = IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an address is of a machine that anybody can reach; what is none is not."""
    try:
        # What follows a percent sign says by which interface.
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address):
        return _is_public_6(parsed)
    return _is_public_4(parsed)


def _is_public_4(address: IPv4Address) -> bool:
    special = address.is_multicast or any(address in network for network in _SPECIAL_4)
    return address.is_global and not special


def _is_public_6(address: IPv6Address) -> bool:
    if address.ipv4_mapped is not None:
        return _is_public_4(address.ipv4_mapped)
    if address in _TRANSLATED:
        return _is_public_4(IPv4Address(int(address) & 0xFFFFFFFF))
    # Tunnels end at whichever IPv4 address the sender of a packet writes into it.
    if address.sixtofour is not None or address.teredo is not None:
        return False
    return address.is_global and address in _GIVEN_6
