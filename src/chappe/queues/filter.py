"""Filters: which messages a group is given (Q8)."""

from __future__ import annotations

from chappe.queues.record import Stored
from chappe.queues.state import GroupState


def wants(group: GroupState, message: Stored) -> bool:
    """Whether a message is for a group: it is named or nobody is, one of its tags is among the
    message's, and all headers it asks for are as it asks."""
    names = message.consumers
    if names is not None and group.name not in names and group.consumers.keys().isdisjoint(names):
        return False
    if group.tags is not None and not any(tag in group.tags for tag in message.tags or ()):
        return False
    if group.headers is not None:
        headers = message.headers or {}
        return all(headers.get(name) == value for name, value in group.headers.items())
    return True


def describe(tags: list[str] | None, headers: dict[str, str] | None) -> str:
    """A filter in words."""
    parts = []
    if tags is not None:
        parts.append("tags " + ", ".join(tags))
    if headers is not None:
        parts.append("headers " + ", ".join(f"{name}={value}" for name, value in headers.items()))
    return " and ".join(parts) or "no filter"
