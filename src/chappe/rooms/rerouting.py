"""Rerouting: which rooms are still to be looked at since routers have come or gone (R11).

A gateway may have a million rooms, so they are looked at one by one, a share in each tick, while
rooms come and go: first those that somebody waits for, then all. Nothing is copied for it. All
rooms lie in a list, where the last one takes the place of one that goes. Who goes through it from
its end meets every room that was there and stays: what comes is behind, what takes a place was
behind, or comes to lie where it is still to be met.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """A room that remembers where in the list it is."""

    place: int


Room = TypeVar("Room", bound=Placed)


class Rerouting(Generic[Room]):
    """All rooms, and how far one has got with them."""

    def __init__(self) -> None:
        self._all: list[Room] = []
        self._waited: OrderedDict[Room, None] = OrderedDict()
        # How many of both are still to be looked at.
        self._waited_left = 0
        self._all_left = 0

    def __len__(self) -> int:
        return len(self._all)

    def add(self, room: Room) -> None:
        """Take in a room, which somebody waits for."""
        room.place = len(self._all)
        self._all.append(room)
        self._waited[room] = None

    def remove(self, room: Room) -> None:
        """Let a room go."""
        last = self._all.pop()
        if last is not room:
            self._all[room.place] = last
            last.place = room.place
        self._waited.pop(room, None)

    def await_(self, room: Room) -> None:
        """Somebody waits for a room from now on."""
        self._waited[room] = None

    def known(self, room: Room) -> None:
        """Nobody waits for a room any more."""
        self._waited.pop(room, None)

    def begin(self) -> None:
        """Look at all anew."""
        self._waited_left, self._all_left = len(self._waited), len(self._all)

    def maybe_next(self) -> Room | None:
        """The next one to look at, if there is any."""
        self._waited_left = min(self._waited_left, len(self._waited))
        if self._waited_left:
            self._waited_left -= 1
            room = next(iter(self._waited))
            self._waited.move_to_end(room)
            return room
        self._all_left = min(self._all_left, len(self._all))
        if not self._all_left:
            return None
        self._all_left -= 1
        return self._all[self._all_left]
