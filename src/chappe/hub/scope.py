"""What an identity may do, asked before anything is done."""

from __future__ import annotations

from chappe.address import parse_address
from chappe.errors import Forbidden, RequestError


def outside(verb: str, to: str) -> RequestError:
    """The error for an address outside a scope: a wrong address is named before a forbidden one."""
    parse_address(to)
    return Forbidden(f"to: this identity may not {verb} {to}")
