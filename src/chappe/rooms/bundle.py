"""Bundles: entries of a gateway, so many together as go into one datagram."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from chappe.wire.rooms import Card, Entry

# Numbers, and what stands around names; more than they ever take.
_ENTRY_BYTES = 40
# What stands around the entries, other than the names on the card, and the datagram's own head.
_HEAD_BYTES = 160


def bundles(card: Card, entries: Iterable[Entry], bytes_max: int) -> Iterator[list[Entry]]:
    """Entries in order, one at least to a bundle."""
    room_bytes = bytes_max - _HEAD_BYTES - len(card.name.encode()) - len(card.host)
    bundle: list[Entry] = []
    left = room_bytes
    for entry in entries:
        size = _ENTRY_BYTES + len(entry.app) + len(entry.room.encode())
        if bundle and size > left:
            yield bundle
            bundle, left = [], room_bytes
        bundle.append(entry)
        left -= size
    if bundle:
        yield bundle
