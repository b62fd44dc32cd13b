"""Addresses: `kind:name` inside an app, such as `user:alice` or `topic:news`.

On the hot path an address is its text: a text found in the connection table is valid, because only
checked ones enter it. This module is for the texts that are not found.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from chappe.errors import BadRequest

KINDS = ("user", "avatar", "topic", "queue", "service", "room", "key")
NAME_BYTES_MAX = 255
# MQTT's and NATS's wildcards: a name that holds one could be taken for a pattern by an edge or a
# permission, which is how brokers have leaked messages between users.
WILDCARDS = frozenset("*>#+")

_STARTS = ", ".join(f"{kind}:" for kind in KINDS)
_APP = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Address(NamedTuple):
    """A destination: what kind of endpoint, and which one."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_address(text: str, field: str = "to") -> Address:
    """Split and check an address.

    Raises BadRequest that names `field` and what is wrong with it.
    """
    if not text:
        raise BadRequest(f"{field}: missing; an address starts with one of {_STARTS}")
    kind, colon, name = text.partition(":")
    if not colon or kind not in KINDS:
        raise BadRequest(
            f"{field}: {_shown(text)} is not an address; it starts with one of {_STARTS}"
        )
    fault = name_fault(name)
    if fault:
        raise BadRequest(f"{field}: the name in {_shown(text)} {fault}")
    return Address(kind, name)


def name_fault(name: str) -> str | None:
    """Say what is wrong with a name, or None when it is fine."""
    if not name:
        return "is empty"
    if len(name) > NAME_BYTES_MAX:
        return f"is longer than {NAME_BYTES_MAX} bytes"
    if not name.isprintable() or " " in name:
        return "holds a control character, a space or an unprintable character"
    if not WILDCARDS.isdisjoint(name):
        return "holds a wildcard (* > # +)"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"is longer than {NAME_BYTES_MAX} bytes"
    return None


def check_app(name: str) -> str:
    """Return an app's name, or raise BadRequest saying what one looks like."""
    if not _APP.fullmatch(name):
        raise BadRequest(
            f"app: {_shown(name)} is not an app's name (lower-case letters, digits, - and _, "
            "64 characters at most)"
        )
    return name


def _shown(text: str) -> str:
    """Quote a stranger's text for an error message: escaped and short."""
    short = text if len(text) <= 40 else text[:37] + "..."
    return ascii(short)
