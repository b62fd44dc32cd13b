"""Topic: who subscribes to what, where; topics' notes by time; how far each subscriber has got.

A topic's notes have positions: milliseconds since 1970, made to grow. A subscriber has settled all
up to its *mark*, and some beyond it. So a broadcast costs nothing for those who are offline (P8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

# How many notes a subscriber may have settled beyond its mark; beyond that, they come again.
BEYOND_MAX = 32


class Mark(NamedTuple):
    """How far a subscriber has got in a topic."""

    position: int
    beyond: tuple[int, ...] = ()


class Subscriber(NamedTuple):
    """A client's topics, and the server that it is on with them; -1: on none."""

    server: int
    marks: dict[str, Mark]


def merged(one: Mark, other: Mark) -> Mark:
    """What was settled by either: two comets may tell of one subscriber."""
    position = max(one.position, other.position)
    beyond = sorted({place for place in (*one.beyond, *other.beyond) if place > position})
    return Mark(position, tuple(beyond[:BEYOND_MAX]))


class TopicState(Protocol):
    """Topics are an app's own."""

    async def subscribe(
        self, app: str, client: str, topics: Sequence[str], server: int, now_ms: int, most: int
    ) -> bool:
        """Subscribe a client that is on a server, from the topics' last notes on; -1: on none, or
        where it is with its other topics.

        False, and nothing changed, if it would have more than `most`.
        """
        ...

    async def unsubscribe(self, app: str, client: str, topics: Sequence[str]) -> None:
        """Unsubscribe a client."""
        ...

    async def topics_of(self, app: str, client: str) -> dict[str, Mark]:
        """The topics of a client, and how far it has got."""
        ...

    async def subscribers(self, app: str, clients: Sequence[str]) -> list[Subscriber]:
        """What is known of several clients, in their order."""
        ...

    async def move(self, app: str, client: str, server: int) -> dict[str, Mark]:
        """A client is on another server now (-1: on none); its topics."""
        ...

    async def leave(self, app: str, client: str, server: int) -> None:
        """A client left a server; one that is elsewhere by now stays there."""
        ...

    async def leave_all(self, app: str, clients: Sequence[str], server: int) -> None:
        """Several clients left a server; those that are elsewhere by now stay there."""
        ...

    async def move_all(
        self, app: str, clients: Sequence[str], server: int
    ) -> list[dict[str, Mark]]:
        """Several clients are on another server now; the topics of each, in their order."""
        ...

    async def advance(self, app: str, marks: Mapping[tuple[str, str], Mark]) -> None:
        """Clients have got so far, and no less far than before: by (client, topic). Who
        unsubscribed stays so."""
        ...

    async def append(
        self,
        app: str,
        topic: str,
        id: str,
        now_ms: int,
        expires_ms: int,
        collapse: str | None,
        most: int,
    ) -> int:
        """Add a note to a topic, which keeps so many; its position. An earlier one that collapses
        with it is taken out. One that is there already stays where it is."""
        ...

    async def take_out(self, app: str, topic: str, id: str) -> None:
        """Nobody is to get a topic's note any more."""
        ...

    async def since(
        self, app: str, topics: Mapping[str, int], now_ms: int, limit: int
    ) -> dict[str, list[tuple[int, str]]]:
        """Of each topic, the positions and ids of its first notes after a position."""
        ...

    async def count(self, app: str, topic: str) -> int:
        """How many clients subscribe to a topic."""
        ...

    async def servers(self, app: str, topic: str) -> list[int]:
        """The servers that subscribers of a topic are on."""
        ...

    async def list_topics(self, app: str, after: str, limit: int) -> list[tuple[str, int]]:
        """An app's topics by name, from the one after that, and how many subscribe."""
        ...

    async def list_clients(self, app: str, topic: str, after: str, limit: int) -> list[str]:
        """Subscribers of a topic, in an order of the store's own, from the one after that."""
        ...

    async def remove(self, app: str, client: str) -> None:
        """Forget a client."""
        ...
