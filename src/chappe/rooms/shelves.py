"""Shelves: the rooms of one gateway, in many small dicts instead of a large one.

There may be a million. None of the dicts takes long to grow, nor to have its keys copied, which is
how one goes through all rooms a few at a time, whatever comes and goes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar
from zlib import crc32

Key = tuple[str, str]
Item = TypeVar("Item")
# A power of two; a gateway with few rooms has fewer.
_SHELVES = 64


class Shelves(Generic[Item]):
    """A dict of rooms; on each shelf, what was put there longest ago is first."""

    __slots__ = ("_count", "_shelves")

    def __init__(self) -> None:
        self._shelves: dict[int, dict[Key, Item]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def get(self, key: Key) -> Item | None:
        """What there is of a room."""
        shelf = self._shelves.get(_place(key))
        return None if shelf is None else shelf.get(key)

    def put(self, key: Key, item: Item) -> None:
        """Put a room behind all others of its shelf."""
        place = _place(key)
        shelf = self._shelves.get(place)
        if shelf is None:
            shelf = self._shelves[place] = {}
        self._count += shelf.pop(key, None) is None
        shelf[key] = item

    def remove(self, key: Key) -> None:
        """Take out a room; raises KeyError if it is not here."""
        del self._shelves[_place(key)][key]
        self._count -= 1

    def popitem(self) -> tuple[Key, Item]:
        """Take out any room; raises KeyError if there is none."""
        while self._shelves:
            place, shelf = self._shelves.popitem()
            if shelf:
                self._shelves[place] = shelf
                self._count -= 1
                return shelf.popitem()
        raise KeyError("all shelves are empty")

    def walk(self) -> Iterator[tuple[Key, Item | None]]:
        """All rooms, for who takes its time: of one that is gone meanwhile there is nothing, and
        one that came may be left out."""
        for shelf in list(self._shelves.values()):
            for key in list(shelf):
                yield key, shelf.get(key)

    def shelves(self) -> list[dict[Key, Item]]:
        """Each shelf, to be read."""
        return list(self._shelves.values())


def _place(key: Key) -> int:
    # Not hash(): in every process it would be another, and so the order of all.
    return crc32(key[1].encode()) & (_SHELVES - 1)
