"""Rows: who is in which room, as routers write it into the store and brokers load it.

    table   rooms
    key     number / app / room / gateway     each part quoted, so that no name holds a slash
    value   msgpack [card, seq, members]

A row is written when it is news: its sequence and members are those of that moment, and whatever a
gateway has said since counts more.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

import msgspec

from chappe.errors import StorageError
from chappe.wire.refusal import UNREADABLE
from chappe.wire.rooms import Card, Entry

ROWS = "rooms"


class _Value(msgspec.Struct, frozen=True, gc=False, array_like=True):
    card: Card
    seq: int
    members: int


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Value)


def row_key(number: int, app: str, room: str, gateway: str) -> str:
    """The key of a room on a gateway; those of one room begin alike."""
    return f"{number}/{quote(app, '')}/{quote(room, '')}/{quote(gateway, '')}"


def number_of(key: str) -> int:
    """The number of the room that a row is of; raises StorageError."""
    try:
        return int(key.partition("/")[0])
    except ValueError:
        raise StorageError(f"{ROWS}: {_shown(key)} is not the key of a row") from None


def write_row(card: Card, entry: Entry) -> bytes:
    """What is kept under the key of an entry."""
    return _encode(_Value(card, entry.seq, entry.members))


def read_row(key: str, value: bytes) -> tuple[Card, Entry]:
    """What a row says; raises StorageError for one that this program did not write."""
    parts = key.split("/")
    try:
        number = int(parts[0])
        found = _decoder.decode(value)
    except (ValueError, *UNREADABLE) as error:
        raise StorageError(f"{ROWS}: row {_shown(key)}: {error}") from None
    if len(parts) != 4 or row_key(number, *map(unquote, parts[1:])) != key:
        raise StorageError(f"{ROWS}: {_shown(key)} is not the key of a row")
    app, room, gateway = map(unquote, parts[1:])
    if gateway != found.card.name:
        raise StorageError(f"{ROWS}: row {_shown(key)} is of another gateway")
    return found.card, Entry(app, room, number, found.seq, found.members)


def _shown(key: str) -> str:
    """A key in an error message: escaped and short."""
    return ascii(key if len(key) <= 100 else key[:97] + "...")
