"""Filters: which messages a group is given (Q8)."""

from __future__ import annotations

from chappe.queues.progress import GroupState
from chappe.queues.record import Stored

# Before the name of a group: it is meant itself, not others with a consumer of that name. No name
# begins so.
GROUP_ONLY = "="


def wants(group: GroupState, message: Stored) -> bool:
    """Whether a message is for a group: it is named or nobody is, one of its tags is among the
    message's, and all headers it asks for are as it asks."""
    if message.consumers is not None and not _named(group, message.consumers):
        return False
    if group.tags is not None and not any(tag in group.tags for tag in message.tags or ()):
        return False
    if group.headers is not None:
        headers = message.headers or {}
        return all(headers.get(name) == value for name, value in group.headers.items())
    return True


def _named(group: GroupState, names: list[str]) -> bool:
    return (
        group.name in names
        or GROUP_ONLY + group.name in names
        or not group.consumers.keys().isdisjoint(names)
    )


def describe(tags: list[str] | None, headers: dict[str, str] | None) -> str:
    """A filter in words."""
    parts = []
    if tags is not None:
        parts.append("tags " + ", ".join(tags))
    if headers is not None:
        parts.append("headers " + ", ".join(f"{name}={value}" for name, value in headers.items()))
    return " and ".join(parts) or "no filter"
