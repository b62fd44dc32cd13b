"""Retelling: somebody who was away is told what gateways have said meanwhile.

A broker that was silent, or has just begun, was waited for by nobody, and may have missed logins;
so may another router. Each router tells it what it was told itself within a refresh's time: from
all of them together that is every room there is. What is known already does no harm.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from chappe.rooms.book import Book
from chappe.rooms.bundle import bundles
from chappe.wire.rooms import Card, Entry

# Rooms that are looked at in one go, and how soon the next go is.
SLICE_ROWS = 1000
SLICE_S = 0.01
# Who waits to be told.
LISTENERS_MAX = 4096

# Whether a room is its business, and how it is told.
Keeps = Callable[[int], bool]
Tell = Callable[[Card, list[Entry]], None]


class Retelling:
    """Goes through the book for one listener after the other, a bounded share at a time."""

    def __init__(self, book: Book, bytes_max: int) -> None:
        self._book = book
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[Keeps, Tell, bool]] = deque()
        self._under_way: Iterator[None] = iter(())
        self.due = math.inf

    def begin(self, keeps: Keeps, tell: Tell, now: float, *, own: bool = False) -> None:
        """Tell somebody all that is its business; `own`: and that no other router was told of."""
        if len(self._waiting) < LISTENERS_MAX:
            self._waiting.append((keeps, tell, own))
            self.due = min(self.due, now)

    def tick(self, now: float) -> None:
        """Go on."""
        if now < self.due:
            return
        left = SLICE_ROWS
        while left:
            told = sum(1 for _ in islice(self._under_way, left))
            if told < left:
                if not self._waiting:
                    self.due = math.inf
                    return
                self._under_way = self._retell(*self._waiting.popleft(), now)
            left -= told
        self.due = now + SLICE_S

    def _retell(self, keeps: Keeps, tell: Tell, own: bool, now: float) -> Iterator[None]:
        for card, entries in self._book.recent(now, own=own):
            kept: list[Entry] = []
            for entry in entries:
                if entry is not None and keeps(entry.number):
                    kept.append(entry)
                if len(kept) >= SLICE_ROWS:
                    self._tell(card, kept, tell)
                    kept = []
                yield
            self._tell(card, kept, tell)

    def _tell(self, card: Card, entries: list[Entry], tell: Tell) -> None:
        for bundle in bundles(card, entries, self._bytes_max):
            tell(card, bundle)
