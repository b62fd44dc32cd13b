"""The book: what a router knows of gateways and their rooms, and what of it is news to the store.

Each gateway has one epoch that counts: the largest that was heard of, until that was silent for so
long that it is forgotten: the gateway may have begun anew with another clock. Of each of its rooms
the largest sequence counts. A room that was left stays in the book for a while with no members, so
that an older word that comes late, or an older row that is loaded, does not bring it back.

News is what others would miss who load the store: a room that a gateway did not have, and one that
it has no more. How many members it has is not; nor is a refresh.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from chappe.errors import StorageError
from chappe.rooms.options import RoomsOptions
from chappe.rooms.partition import keeps
from chappe.rooms.row import read_row, row_key, write_row
from chappe.rooms.shelves import Key, Shelves
from chappe.wire.rooms import Card, Entry

# For how long a room that was left is remembered.
LEFT_S = 10.0
# Rows that are dropped, or looked at, in one go; and how soon the next go is.
SLICE_ROWS = 2000
SLICE_S = 0.01
# How often somebody looks who is to be forgotten.
SWEEP_S = 1.0
# Rows of each shelf that are looked at then.
SWEPT_ROWS = 32


class Row:
    """A room on a gateway."""

    __slots__ = ("audited", "members", "number", "seen", "seq", "told", "written")

    def __init__(self, entry: Entry, now: float, *, loaded: bool) -> None:
        self.number = entry.number
        self.seq = entry.seq
        self.members = entry.members
        # When the gateway last told of it here, if it ever did; else when it was loaded.
        self.seen = now
        self.told = not loaded
        # Whether the store has it, so far as is known here.
        self.written = loaded
        # In which audit it was found in the store.
        self.audited = 0


class Known:
    """A gateway."""

    __slots__ = ("card", "gone", "heard", "left", "rows", "taken")

    def __init__(self, card: Card, now: float) -> None:
        self.card = card
        self.heard = now
        # It has said goodbye.
        self.gone = False
        # Announcements that it made here.
        self.taken = 0
        # Of each shelf the one that was longest not told of is first.
        self.rows: Shelves[Row] = Shelves()
        # Those of them that were left, and when they may be forgotten; the next one is first.
        self.left: OrderedDict[Key, float] = OrderedDict()

    def walk(self) -> Iterator[tuple[Key, Row | None]]:
        """All its rooms, for who takes its time; none any more when they were dropped meanwhile:
        then it is over, or began anew with other ones."""
        rows = self.rows
        for key, row in rows.walk():
            if self.rows is not rows:
                return
            yield key, row


class Book:
    """All gateways with their rooms."""

    def __init__(self, options: RoomsOptions) -> None:
        self._options = options
        # A row that has not been told of for so long here is somebody else's by now, or nobody's.
        self._stale_s = 1.5 * options.refresh_s
        self.gateways: dict[str, Known] = {}
        self.rows = 0
        # What did not fit, and what could not be read.
        self.refused = 0
        self.unreadable = 0
        self._changes: dict[str, bytes | None] = {}
        # Rows of gateways that are gone, or of an older epoch: they go from the store bit by bit.
        self._dropping: deque[Known] = deque()
        self._forgetting: Iterator[None] | None = None
        self._cleaning: Iterator[None] = iter(())
        self._next_slice = math.inf
        self._next_sweep = math.inf
        # Whether a room is this router's business, so that nobody else removes it from the store.
        self.owns: Callable[[int], bool] = _everything

    @property
    def due(self) -> float:
        """When to tick next."""
        return min(self._next_slice, self._next_sweep)

    def hear(self, card: Card, now: float) -> Known | None:
        """A gateway lives; None if this is not it: an older one, or one that said goodbye."""
        known = self.gateways.get(card.name)
        if known is None:
            return self._meet(card, now)
        if card.epoch < known.card.epoch:
            return None
        if card.epoch != known.card.epoch:
            self._drop(known, now)
            return self._meet(card, now)
        if known.gone:
            return None
        known.heard = now
        known.card = card
        return known

    def _meet(self, card: Card, now: float) -> Known | None:
        if card.name not in self.gateways and len(self.gateways) >= self._options.peers_max:
            self.refused += 1
            return None
        known = self.gateways[card.name] = Known(card, now)
        self._next_sweep = min(self._next_sweep, now + SWEEP_S)
        return known

    def take(self, known: Known, entries: Iterable[Entry], now: float, *, write: bool) -> None:
        """A gateway tells of rooms; with `write`, it is this router's business to write it down."""
        for entry in entries:
            key = (entry.app, entry.room)
            row = known.rows.get(key)
            if row is not None and entry.seq < row.seq:
                continue
            if row is None and not self._has_room(known, entry):
                self.refused += 1
                continue
            self._take(known, key, row, entry, now, write)

    def _take(
        self, known: Known, key: Key, row: Row | None, entry: Entry, now: float, write: bool
    ) -> None:
        if row is None:
            row, news = Row(entry, now, loaded=False), True
            self.rows += 1
        else:
            news = not row.written or bool(row.members) != bool(entry.members)
            news = news or now - row.seen > self._stale_s
        known.rows.put(key, row)
        row.seq, row.members, row.seen, row.told = entry.seq, entry.members, now, True
        if not entry.members:
            known.left[key] = now + LEFT_S
            known.left.move_to_end(key)
        elif known.left:
            known.left.pop(key, None)
        if news:
            row.written = write
            if write:
                put = write_row(known.card, entry) if entry.members else None
                self._change(row_key(entry.number, *key, known.card.name), put)

    def _has_room(self, known: Known, entry: Entry) -> bool:
        """Whether there is room for one more; one that was left gives way to who joins."""
        if self.rows >= self._options.entries_max and entry.members and known.left:
            self._remove(known, next(iter(known.left)))
        return self.rows < self._options.entries_max

    def part(self, card: Card, now: float) -> bool:
        """A gateway has said goodbye; whether that is news."""
        known = self.gateways.get(card.name)
        if known is None:
            known = self._meet(card, now)
        if known is None or known.gone or card.epoch < known.card.epoch:
            return False
        self._drop(known, now)
        gone = self.gateways[card.name] = Known(card, now)
        gone.gone = True
        return True

    def load(self, rows: Iterable[tuple[str, bytes]], now: float) -> None:
        """Take what the store knows, unless more is known here."""
        for key, value in rows:
            try:
                card, entry = read_row(key, value)
            except StorageError:
                self.unreadable += 1
                continue
            self._load(card, entry, now)

    def _load(self, card: Card, entry: Entry, now: float) -> None:
        known = self.gateways.get(card.name)
        if known is None or known.card.epoch < card.epoch:
            if known is not None:
                self._drop(known, now)
            known = self._meet(card, now)
        if known is None or known.card.epoch > card.epoch or known.gone:
            # Somebody wrote it before the gateway began anew.
            self._change(row_key(entry.number, entry.app, entry.room, card.name), None)
        elif (entry.app, entry.room) not in known.rows and self.rows < self._options.entries_max:
            self.rows += 1
            known.rows.put((entry.app, entry.room), Row(entry, now, loaded=True))

    def changes(self) -> tuple[dict[str, bytes], list[str]]:
        """What is to be put into the store, and what to be removed; handed out once."""
        if not self._changes:
            return {}, []
        changes, self._changes = self._changes, {}
        puts = {key: value for key, value in changes.items() if value is not None}
        return puts, [key for key, value in changes.items() if value is None]

    def write(self, card: Card, entry: Entry) -> None:
        """Have a row written that should have been, and is not there."""
        key = row_key(entry.number, entry.app, entry.room, card.name)
        if key not in self._changes:
            self._change(key, write_row(card, entry))

    def _change(self, key: str, value: bytes | None) -> None:
        if key in self._changes or len(self._changes) < self._options.entries_max:
            self._changes[key] = value
        else:
            self.refused += 1

    def recent(
        self, now: float, *, own: bool = False
    ) -> Iterator[tuple[Card, Iterator[Entry | None]]]:
        """The rooms that were told of here of late, gateway by gateway; `own`: by those themselves.

        In place of each other room there is nothing, so that whoever goes through them knows how
        far it went. What changes meanwhile may or may not be among them.
        """
        since = now - self._stale_s
        for known in list(self.gateways.values()):
            yield known.card, _entries(known, since, own)

    def clean(self, partition: int, modulus: int, now: float) -> None:
        """Drop rooms that are another partition's business now, bit by bit; not from the store."""
        self._cleaning = self._clean(partition, modulus)
        self._next_slice = now

    def _clean(self, partition: int, modulus: int) -> Iterator[None]:
        for known in list(self.gateways.values()):
            for key, row in known.walk():
                if row is not None and not keeps(row.number, partition, modulus):
                    self._remove(known, key)
                yield

    def tick(self, now: float) -> None:
        """Forget who was silent for too long, and what was left; a bounded share of it."""
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_S if self.gateways else math.inf
            self._sweep(now)
            # One that is under way goes on first, so that the last gateway's turn comes.
            self._forgetting = self._forgetting or self._forget_left(now)
            self._next_slice = min(self._next_slice, now)
        if now >= self._next_slice:
            self._next_slice = now + SLICE_S if self._slice() else math.inf

    def _slice(self) -> bool:
        """Drop some of what is to go; whether there may be more."""
        budget = SLICE_ROWS
        while self._dropping and budget > 0:
            budget -= self._drop_some(budget)
        if self._forgetting is not None and budget > 0:
            forgotten = sum(1 for _ in islice(self._forgetting, budget))
            if forgotten < budget:
                self._forgetting = None
            budget -= forgotten
        cleaned = sum(1 for _ in islice(self._cleaning, max(budget, 0)))
        return bool(self._dropping) or budget <= 0 or cleaned > 0

    def _sweep(self, now: float) -> None:
        silent = now - self._options.expire_s
        for name, known in list(self.gateways.items()):
            if known.heard <= silent:
                self._drop(known, now)
                del self.gateways[name]
            else:
                self._forget_stale(known, silent - self._options.expire_s)

    def _forget_stale(self, known: Known, before: float) -> None:
        """Forget rooms that a gateway does not tell of here, though it lives.

        Another router is told of them by now, and the store is its business; unless nobody ever is
        and would be this one.
        """
        for shelf in known.rows.shelves():
            for key, row in list(islice(shelf.items(), SWEPT_ROWS)):
                if row.seen > before:
                    break
                self._remove(known, key)
                if not row.told and self.owns(row.number):
                    self._change(row_key(row.number, *key, known.card.name), None)

    def _forget_left(self, now: float) -> Iterator[None]:
        """Forget rooms that were left long enough ago; yields after each."""
        for known in list(self.gateways.values()):
            while known.left:
                key, at = next(iter(known.left.items()))
                if at > now:
                    break
                self._remove(known, key)
                yield

    def _remove(self, known: Known, key: Key) -> None:
        known.rows.remove(key)
        known.left.pop(key, None)
        if self.gateways.get(known.card.name) is known:
            self.rows -= 1

    def _drop(self, known: Known, now: float) -> None:
        """Let all rooms of a gateway go."""
        self.rows -= len(known.rows)
        if known.rows:
            gone = Known(known.card, now)
            gone.rows, known.rows = known.rows, gone.rows
            gone.left, known.left = known.left, gone.left
            self._dropping.append(gone)
            self._next_slice = min(self._next_slice, now)

    def _drop_some(self, budget: int) -> int:
        gone = self._dropping[0]
        name, rows = gone.card.name, gone.rows
        known = self.gateways.get(name)
        count = min(budget, len(rows))
        for _ in range(count):
            key, row = rows.popitem()
            gone.left.pop(key, None)
            # It may have come again, here or by its own router, with what counts now.
            mine = (row.told and row.written) or self.owns(row.number)
            if mine and (known is None or key not in known.rows):
                self._change(row_key(row.number, *key, name), None)
        if not rows:
            self._dropping.popleft()
        return max(count, 1)


def _entries(known: Known, since: float, own: bool) -> Iterator[Entry | None]:
    for key, row in known.walk():
        if row is None or not row.told or row.seen < since or (own and not row.written):
            yield None
        else:
            yield Entry(*key, row.number, row.seq, row.members)


def _everything(number: int) -> bool:
    return True
