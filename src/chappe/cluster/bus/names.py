"""What the bus keeps in Redis, and what it is called (K1).

    {PREFIX}:brokers       set of the names of all brokers
    {PREFIX}:beats         when each of them was last heard of, by Redis's clock, in milliseconds
    {PREFIX}:keys:BROKER   set of the keys that sessions of a broker have
    PREFIX:BROKER          the channel of a broker

What is in braces says to a Redis Cluster what to keep on one server, so that scripts see all of it
at once; channels are spread over its servers.
"""

from __future__ import annotations

from collections.abc import Iterable


def read_names(found: Iterable[bytes]) -> set[str]:
    """Names as Redis gave them, also those that a stranger put there and that are no text."""
    return {one.decode(errors="surrogateescape") for one in found}


class Names:
    """Names under a prefix."""

    __slots__ = ("beats", "brokers", "prefix")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.brokers = f"{{{prefix}}}:brokers"
        self.beats = f"{{{prefix}}}:beats"

    def keys(self, broker: str) -> str:
        """The set of a broker's keys."""
        return f"{{{self.prefix}}}:keys:{broker}"

    def channel(self, broker: str) -> str:
        """Where a broker listens."""
        return f"{self.prefix}:{broker}"
