"""The audit: what the store has is compared with what a router knows, and mended (R10).

Each router writes down what is news to itself. When rooms go from one to the other, and some of
them cannot hear a gateway, one may remove what another believes to be written, or leave what nobody
will ever remove. So now and then each of them goes through all rows:

    of a life of a gateway that is over       it goes, whoever finds it
    of a gateway, or a room, not told of      it goes, if this is the router that would be told
    not there, though it is told of here      it is written again

A row goes only if it is still the one that was looked at. Two routers may be of different minds for
a while: when each hears all gateways, the one that is told of a room has the last word.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from chappe.errors import StorageError
from chappe.rooms.book import Book, Known, Row
from chappe.rooms.options import RoomsOptions
from chappe.rooms.row import read_row
from chappe.wire.rooms import Card, Entry


class Audit:
    """Looks at one row after the other, and keeps in mind which of the book's were there."""

    def __init__(self, book: Book, options: RoomsOptions) -> None:
        self._book = book
        self._expire_s = options.expire_s
        self._stale_s = 1.5 * options.refresh_s
        self._round = 0
        # Among whom rooms are shared out, and since when.
        self._routers: Hashable = None
        self._since = 0.0

    def see(self, routers: Hashable, now: float) -> None:
        """Take note of the routers: after a change all are told of other rooms."""
        if routers != self._routers:
            self._routers, self._since = routers, now

    def begin(self) -> None:
        """Begin to look at all rows."""
        self._round += 1

    def over(self, rows: Iterable[tuple[str, bytes]], now: float) -> list[tuple[str, bytes]]:
        """Look at some rows; those that are to go. Others may write what nobody here can read."""
        found = []
        for key, value in rows:
            try:
                card, entry = read_row(key, value)
            except StorageError:
                continue
            if self._is_over(card, entry, now):
                found.append((key, value))
        return found

    def _is_over(self, card: Card, entry: Entry, now: float) -> bool:
        known = self._book.gateways.get(card.name)
        if known is None or card.epoch > known.card.epoch:
            # Somebody else heard of it; or nobody does any more.
            return known is None and self._is_mine(entry.number, self._expire_s, now)
        if known.gone or card.epoch < known.card.epoch:
            return True
        return self._is_left(known, entry, now)

    def _is_left(self, known: Known, entry: Entry, now: float) -> bool:
        """Whether a gateway that lives is not in a room any more."""
        row = known.rows.get((entry.app, entry.room))
        if row is not None:
            row.audited = self._round
            if row.told and row.seen > now - self._stale_s:
                return not row.members
        lives = known.heard > now - self._stale_s
        return lives and self._is_mine(entry.number, self._stale_s, now)

    def _is_mine(self, number: int, settled_s: float, now: float) -> bool:
        """Whether this router would have been told of a room by now."""
        return self._book.owns(number) and now - self._since > settled_s

    def missing(self, now: float) -> Iterator[None]:
        """Have rows written that were not there; yields after each room of the book."""
        for known in list(self._book.gateways.values()):
            for key, row in known.walk():
                if row is not None and not known.gone and self._is_missing(row, now):
                    self._book.write(known.card, Entry(*key, row.number, row.seq, row.members))
                yield

    def _is_missing(self, row: Row, now: float) -> bool:
        fresh = row.told and row.written and row.seen > now - self._stale_s
        return fresh and bool(row.members) and row.audited != self._round
