"""Sums of records: the same for the same records, in whatever order they come.

Each record has a digest of 16 bytes; their sum, and how many there are, stand for all of them. A
record that is missing, more, or different in a bit makes another sum, but for one chance in 2**128.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from chappe.push.state.record import KINDS, Record, kind_of

_encode = msgspec.msgpack.Encoder().encode
_DIGEST_BYTES = 16
_MODULUS = 1 << 8 * _DIGEST_BYTES


class Sum(NamedTuple):
    """Of all records of a kind."""

    number: int = 0
    digest: int = 0

    @property
    def text(self) -> str:
        """Enough of it to compare by eye."""
        return f"{self.digest:032x}"[:12]


class Sums:
    """Of all records of a state, by kind."""

    def __init__(self) -> None:
        self._sums: dict[str, Sum] = defaultdict(Sum)

    def add(self, records: Iterable[Record]) -> None:
        """Count more records."""
        for record in records:
            digest = int.from_bytes(blake2b(_encode(record), digest_size=_DIGEST_BYTES).digest())
            before = self._sums[kind_of(record)]
            self._sums[kind_of(record)] = Sum(
                before.number + record.size, (before.digest + digest) % _MODULUS
            )

    def of(self, kind: str) -> Sum:
        """Those of a kind."""
        return self._sums[kind]


class Compared(NamedTuple):
    """What there is of a kind at both places; `expired` is what the source has and nobody gets."""

    state: str
    kind: str
    source: Sum
    target: Sum
    expired: int

    @property
    def same(self) -> bool:
        """Whether all is there, and nothing else."""
        return self.source == self.target


def compared(state: str, source: Sums, target: Sums, expired: Sums) -> list[Compared]:
    """Compare a state, kind by kind."""
    kinds = [kind_of(kind) for kind in KINDS[state]]
    return [
        Compared(state, kind, source.of(kind), target.of(kind), expired.of(kind).number)
        for kind in kinds
    ]
