"""All five states together, wherever each is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from chappe.push.state.message import MessageState
from chappe.push.state.meta import MetaState
from chappe.push.state.records import Records
from chappe.push.state.route import RouteState
from chappe.push.state.topic import TopicState
from chappe.push.state.user import UserState


class Place(Protocol):
    """Where states are kept: a file, or a server."""

    @property
    def records(self) -> Records:
        """All that it has, for who moves it elsewhere."""
        ...

    async def sweep(self) -> int:
        """Forget some of what expired; how much. Called every few seconds by one or by many, it
        keeps up; what expired is not told of before that, either."""
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


class States(NamedTuple):
    """What push remembers."""

    meta: MetaState
    user: UserState
    route: RouteState
    message: MessageState
    topic: TopicState
    places: Sequence[Place] = ()

    async def sweep(self) -> int:
        """Forget some of what expired, everywhere; raises StorageError."""
        return sum([await place.sweep() for place in self.places])

    async def close(self) -> None:
        """Let go of all of them."""
        for place in self.places:
            await place.close()
