"""Permissions: whether an op names what it should, and its sender may do that."""

from __future__ import annotations

from chappe.address import parse_address
from chappe.errors import BadRequest
from chappe.hub.grant import EVERYTHING, Scope
from chappe.hub.scope import outside


def permit(scope: Scope, verb: str, to: str) -> None:
    """Refuse what is outside a scope; raises BadRequest or Forbidden."""
    if scope is not EVERYTHING and to not in scope:
        raise outside(verb, to)


def check_kind(to: str, kind: str) -> None:
    """Refuse an address that is wrong or of another kind; raises BadRequest."""
    found = parse_address(to).kind
    if found != kind:
        raise BadRequest(f"to: a {kind} is meant here, not a {found}")
