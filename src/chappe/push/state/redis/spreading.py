"""How the subscribers of a topic on a server are spread over sets.

Redis keeps a set of up to 512 whole numbers as an array of them (`set-max-intset-entries`): eight
bytes each, where a larger one takes sixty. So there are as many sets as are needed, one more with
every FILL members (linear hashing): each time one set is split in two, and no other is touched.

With n sets, of which 2^k is the largest power of two, a member is in the set that the k + 1 lowest
bits of its hash say; if there is none yet, in that of the k lowest. So a set has all members whose
hash has the same lowest bits; read backwards, these are ranges, and members can be listed in an
order that stays while sets are split.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha1
from typing import NamedTuple

# Sets that were not split yet have up to twice as many.
FILL = 200
# Of a SHA-1, which scripts have: 28 bits, enough for ten thousand million members.
HASH_DIGITS = 7
_BITS = 4 * HASH_DIGITS
END = 1 << _BITS


class Span(NamedTuple):
    """A set, by its number, and where the range of its members ends."""

    at: int
    end: int


def order(member: int) -> int:
    """Where a member is in the order of all: its hash, read backwards."""
    digest = sha1(str(member).encode(), usedforsecurity=False).hexdigest()
    return _reversed(int(digest[:HASH_DIGITS], 16))


def span(place: int, sets: int) -> Span:
    """The set of those at a place in the order, where there are so many sets."""
    bits = sets.bit_length() - 1
    value = _reversed(place)
    at = value % (1 << bits)
    if at + (1 << bits) < sets:
        # It was split already.
        bits += 1
        at = value % (1 << bits)
    width = _BITS - bits
    return Span(at, ((place >> width) + 1) << width)


def _reversed(value: int) -> int:
    return int(f"{value:0{_BITS}b}"[::-1], 2)


class TopicRecord(NamedTuple):
    """What is stored of a topic: subscribers by server, and sets by server where there are many."""

    number: int
    counts: Mapping[int, int]
    sets: Mapping[int, int]


def topic_record(fields: Mapping[bytes, bytes]) -> TopicRecord | None:
    """Read it; None: there is no such topic."""
    if not fields:
        return None
    counts = {int(name[1:]): int(value) for name, value in fields.items() if name[:1] == b"s"}
    sets = {server: int(fields.get(b"b%d" % server, b"1")) for server in counts}
    return TopicRecord(int(fields[b"n"]), counts, sets)
