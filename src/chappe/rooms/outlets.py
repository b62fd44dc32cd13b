"""Outlets: the brokers that a router gives logins to (R10).

Which rooms a broker keeps it says itself, by its own modulus. While partitions double, some go by
the old number and some by the new one, and a room is the business of two partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from chappe.rooms.partition import keeps
from chappe.rooms.role import Endpoint, Post
from chappe.wire.rooms import Card, Entry, Login


@dataclass(frozen=True, slots=True)
class Outlet:
    """A broker; `ready`: it is alive and runs, so what it does not know may be missed."""

    key: Hashable
    endpoint: Endpoint
    partition: int
    # 1 while it has said nothing: it gets everything, and leaves out what is not its own.
    modulus: int
    ready: bool

    def keeps(self, room: int) -> bool:
        """Whether a room is its business."""
        return keeps(room, self.partition, self.modulus)


class _Alike:
    """Outlets that are told the same."""

    __slots__ = ("awaited", "endpoints", "modulus", "partition")

    def __init__(self, partition: int, modulus: int, outlets: Sequence[Outlet]) -> None:
        self.partition = partition
        self.modulus = modulus
        self.endpoints = [outlet.endpoint for outlet in outlets]
        self.awaited = frozenset(outlet.key for outlet in outlets if outlet.ready)


class Outlets:
    """All of them, as they are now."""

    def __init__(self, post: Post, sent: Callable[[Hashable], None]) -> None:
        self._post = post
        # Told who was given something.
        self._sent = sent
        self._alike: list[_Alike] = []
        self._ready: dict[Hashable, Outlet] = {}

    def __len__(self) -> int:
        return sum(len(alike.endpoints) for alike in self._alike)

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where they are; several may be at one place."""
        # In the same order in every process: a set has none.
        return list(dict.fromkeys(end for alike in self._alike for end in alike.endpoints))

    def replace(self, outlets: Iterable[Outlet]) -> tuple[list[Outlet], set[Hashable]]:
        """Take others; return which have become ready by that, and which are so no more."""
        found: dict[tuple[int, int], list[Outlet]] = {}
        for outlet in outlets:
            found.setdefault((outlet.partition, outlet.modulus), []).append(outlet)
        self._alike = [_Alike(*key, alike) for key, alike in found.items()]
        before = self._ready
        everyone = [outlet for alike in found.values() for outlet in alike]
        self._ready = {outlet.key: outlet for outlet in everyone if outlet.ready}
        came = [outlet for key, outlet in self._ready.items() if key not in before]
        return came, before.keys() - self._ready.keys()

    def give(self, card: Card, entries: Sequence[Entry]) -> list[frozenset[Hashable]]:
        """Tell those whose business it is; return for each entry who has to note it."""
        awaited: list[frozenset[Hashable]] = [frozenset()] * len(entries)
        for alike in self._alike:
            modulus, rest = alike.modulus, alike.partition % alike.modulus
            told = [at for at, entry in enumerate(entries) if entry.number % modulus == rest]
            if not told:
                continue
            theirs = [entries[at] for at in told] if len(told) < len(entries) else list(entries)
            if self._post.send_all(alike.endpoints, Login(alike.partition, card, theirs)):
                for key in alike.awaited:
                    self._sent(key)
            for at in told:
                awaited[at] = awaited[at] | alike.awaited if awaited[at] else alike.awaited
        return awaited
