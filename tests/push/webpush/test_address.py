"""Which addresses are of machines that anybody can reach."""

from __future__ import annotations

import pytest

from chappe.push.webpush.address import is_public


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "142.250.1.95", "2606:4700::6810:1", "::ffff:8.8.8.8", "64:ff9b::808:808"],
)
def test_public_ones_are(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.1"),
        *("192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1"),
        *("192.88.99.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "::7f00:1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1"),
        *("ff02::1", "2001:db8::1", "100::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *("64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::1", "2002:7f00:1::1", "2001::1"),
        *("", "localhost", "127.1", "2130706433", "8.8.8.8.8"),
    ],
)
def test_all_else_is_not(address):
    assert not is_public(address)
