"""Links: the way from one host to another, and what goes wrong on it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from chappe.simulation.pipe import Pipe

# A stream is cut into at most this many pieces per write, however unlucky the seed.
_PIECES_MAX = 64


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How a link misbehaves; every chance is between 0 and 1."""

    # Least and most time under way.
    latency_s: tuple[float, float] = (0.000_2, 0.002)
    # 0: as fast as one likes.
    bytes_per_s: float = 0
    # Streams: chance that a piece of data is cut in two at any byte, again and again.
    cut: float = 0.0
    # Streams: chance that a piece, and all behind it, is held up for a while.
    stall: float = 0.0
    stall_s: tuple[float, float] = (0.05, 2.0)
    # Streams: chance that a piece resets its connection instead of arriving.
    reset: float = 0.0
    # Chance that a connection is refused although somebody listens.
    refuse: float = 0.0
    # Datagrams: chance to get lost, or to arrive twice. Each has a latency of its own, so a wide
    # `latency_s` is what reorders them.
    loss: float = 0.0
    duplicate: float = 0.0

    def __post_init__(self) -> None:
        for name in ("cut", "stall", "reset", "refuse", "loss", "duplicate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: a chance is between 0 and 1")
        for name in ("latency_s", "stall_s"):
            least, most = getattr(self, name)
            if not 0 <= least <= most:
                raise ValueError(f"{name}: the least time comes before the most")


LOCAL = Faults(latency_s=(0.000_01, 0.000_05))


class Link:
    """One direction between two hosts."""

    __slots__ = ("_free_at", "_random", "blocked", "faults", "pipes", "source", "target")

    def __init__(self, source: str, target: str, faults: Faults, random: Random) -> None:
        self.source = source
        self.target = target
        self.faults = faults
        self.blocked = False
        # The streams on this link; a dict because its order does not depend on hashes.
        self.pipes: dict[Pipe, None] = {}
        self._random = random
        self._free_at = 0.0

    def latency_s(self) -> float:
        """Draw the time that something sent now is under way."""
        return self._random.uniform(*self.faults.latency_s)

    def chance(self, probability: float) -> bool:
        """Draw whether something happens."""
        return probability > 0 and self._random.random() < probability

    def arrival(self, size: int, now: float) -> float:
        """When the last of `size` bytes sent now arrives, by bandwidth and latency."""
        if self.faults.bytes_per_s:
            self._free_at = max(self._free_at, now) + size / self.faults.bytes_per_s
            now = self._free_at
        return now + self.latency_s()

    def stall_s(self) -> float:
        """Draw how long a piece of a stream is held up; mostly not at all."""
        return self._random.uniform(*self.faults.stall_s) if self.chance(self.faults.stall) else 0.0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Cut data anywhere."""
        cuts = {0, len(data)}
        while len(cuts) < _PIECES_MAX and len(data) > 1 and self.chance(self.faults.cut):
            cuts.add(self._random.randrange(1, len(data)))
        ends = sorted(cuts)
        for start, end in pairwise(ends):
            yield data[start:end]

    def block(self) -> None:
        """Let nothing through."""
        self.blocked = True
        for pipe in list(self.pipes):
            pipe.path_changed()

    def heal(self) -> None:
        """Let everything through again; streams send anew what was held back."""
        self.blocked = False
        for pipe in list(self.pipes):
            pipe.path_changed()
