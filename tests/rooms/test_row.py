"""Rows of the store say who is in which room, and no two names make one key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.errors import StorageError
from chappe.rooms.row import number_of, read_row, row_key, write_row
from chappe.wire.rooms import Card, Entry

CARD = Card("gateway-1", 7, "10.0.0.1", 7404)
NAMES = st.text(min_size=1, max_size=30)


@given(app=NAMES, room=NAMES, gateway=NAMES, number=st.integers(0, 2**63 - 1))
def test_a_row_is_read_as_it_was_written(app: str, room: str, gateway: str, number: int) -> None:
    card = Card(gateway, 3, "::1", 1)
    entry = Entry(app, room, number, 12, 5)
    assert read_row(row_key(number, app, room, gateway), write_row(card, entry)) == (card, entry)


@given(
    one=st.tuples(NAMES, NAMES, NAMES),
    other=st.tuples(NAMES, NAMES, NAMES),
)
def test_different_rooms_and_gateways_have_different_keys(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (row_key(1, *one) == row_key(1, *other)) == (one == other)


@pytest.mark.parametrize("name", ["b/c", "b%2Fc", "%", "/", "./..", "ü/€"])
def test_any_name_comes_back_as_it_was(name: str) -> None:
    card, entry = Card(name, 3, "::1", 1), Entry(name, name, 5, 12, 1)
    key = row_key(5, name, name, name)
    assert read_row(key, write_row(card, entry)) == (card, entry)
    assert number_of(key) == 5


def test_slashes_and_percents_in_names_make_no_other_row() -> None:
    assert row_key(5, "a", "b/c", "g") != row_key(5, "a", "b", "c/g")
    assert row_key(5, "a", "b%2Fc", "g") != row_key(5, "a", "b/c", "g")


def test_rows_of_one_room_begin_alike() -> None:
    assert row_key(42, "shop", "42", "g") == "42/shop/42/g"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("5/a/b/gateway-1", b"\xff"),
        ("5/a/b/gateway-1", b""),
        ("5/a/b/gateway-1", b"\x93\x01\x02\x03"),
        ("five/a/b/gateway-1", write_row(CARD, Entry("a", "b", 5, 1, 1))),
        ("5/a/b", write_row(CARD, Entry("a", "b", 5, 1, 1))),
        ("5/a/b/c/gateway-1", write_row(CARD, Entry("a", "b", 5, 1, 1))),
        ("5/a/b/another", write_row(CARD, Entry("a", "b", 5, 1, 1))),
        ("05/a/b/gateway-1", write_row(CARD, Entry("a", "b", 5, 1, 1))),
        ("", b""),
    ],
)
def test_what_is_no_row_is_refused(key: str, value: bytes) -> None:
    with pytest.raises(StorageError, match="rooms: "):
        read_row(key, value)
