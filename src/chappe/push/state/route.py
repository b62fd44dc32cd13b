"""Route: the comet that each connected client is on, by its server number (P5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol


class RouteState(Protocol):
    """A client is on one comet at a time: the one it logged in to last."""

    async def move(self, routes: Mapping[str, int]) -> dict[str, int]:
        """Clients logged in on these servers; where those were that were elsewhere before."""
        ...

    async def claim(self, routes: Mapping[str, int]) -> dict[str, int]:
        """Clients are on these servers if they are nowhere; where those are that are elsewhere."""
        ...

    async def find(self, clients: Sequence[str]) -> dict[str, int]:
        """Where those are that are somewhere."""
        ...

    async def leave(self, routes: Mapping[str, int]) -> None:
        """Clients left these servers; those that are elsewhere by now stay there."""
        ...

    async def clear(self, server: int) -> int:
        """Nobody is on a server any more: it was killed. How many were."""
        ...

    async def servers(self) -> Iterable[int]:
        """The servers that anybody may be on."""
        ...
