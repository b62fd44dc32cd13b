"""The book of a router: what is dropped, cleaned and forgotten bit by bit."""

from __future__ import annotations

from chappe.rooms.book import SLICE_ROWS, SLICE_S, SWEEP_S, SWEPT_ROWS, Book
from chappe.rooms.options import RoomsOptions
from chappe.wire.rooms import Card, Entry

OPTIONS = RoomsOptions()
CARD = Card("g1", 1, "g1", 7404)


def entry(room: int) -> Entry:
    return Entry("chat", str(room), room, 1, 1)


def tell(book: Book, rooms: range, now: float, epoch: int = 1) -> None:
    known = book.hear(Card("g1", epoch, "g1", 7404), now)
    assert known is not None
    book.take(known, map(entry, rooms), now, write=True)


def rooms_of(book: Book) -> set[int]:
    return {row.number for _, row in book.gateways["g1"].walk() if row is not None}


def test_a_cleaning_half_way_leaves_alone_a_gateway_that_began_anew_meanwhile():
    book = Book(OPTIONS)
    rooms = range(2 * SLICE_ROWS)
    tell(book, rooms, 0.0)
    book.clean(0, 4, 0.0)
    book.tick(0.0)
    assert len(rooms) * 3 / 8 < book.rows < len(rooms)
    tell(book, rooms[:100], 0.0, epoch=2)
    for turn in range(1, 10):
        book.tick(turn * SLICE_S)
    assert rooms_of(book) == set(rooms[:100])
    assert book.rows == 100


def test_rooms_of_all_shelves_are_forgotten_that_are_not_told_of_any_more():
    book = Book(OPTIONS)
    tell(book, range(1000), 0.0)
    late = 2 * OPTIONS.expire_s + 1.0
    # The first shelf, and others, begin with a room that was told of just now.
    (first, *_, last) = book.gateways["g1"].rows.shelves()
    told = {int(room) for shelf in (first, last) for _, room in shelf}
    known = book.hear(CARD, late)
    assert known is not None
    book.take(known, map(entry, sorted(told)), late, write=True)
    book.tick(late)
    assert rooms_of(book) == told


def test_of_each_shelf_a_bounded_share_is_forgotten_at_a_time():
    book = Book(OPTIONS)
    tell(book, range(10_000), 0.0)
    late = 2 * OPTIONS.expire_s + 1.0
    book.hear(CARD, late)
    shelves = len(book.gateways["g1"].rows.shelves())
    for sweep in range(1, 4):
        book.tick(late + sweep * SWEEP_S)
        assert book.rows == 10_000 - sweep * shelves * SWEPT_ROWS
