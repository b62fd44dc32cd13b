"""Groups: what is written together, and who waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from chappe.errors import RequestError
from chappe.log.batch import HEADER_BYTES, Batch, encode_batch
from chappe.log.writer import Piece

# Told when what was appended is committed (None), or that it was not.
Done = Callable[[RequestError | None], None]


class Sealing:
    """A segment that is over as soon as the next one is on the disk, with its index if any."""

    __slots__ = ("base", "index")

    def __init__(self, base: int, index: bytes | None) -> None:
        self.base = base
        self.index = index


class Building:
    """The batch that takes records now."""

    __slots__ = ("bytes", "first", "records", "sealing", "snapshot_bytes", "waiters")

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.waiters: list[Done] = []
        self.bytes = 0
        self.snapshot_bytes = 0
        self.first = False
        self.sealing: Sealing | None = None

    def begin(self, snapshot: Sequence[bytes], sealing: Sealing | None) -> None:
        """Begin a segment with it."""
        self.first = True
        self.sealing = sealing
        self.records = list(snapshot)
        self.snapshot_bytes = sum(map(len, snapshot))
        self.bytes = HEADER_BYTES + self.snapshot_bytes

    def add(self, records: Iterable[bytes], size: int, done: Done | None) -> None:
        """Take records of that size together."""
        self.records.extend(records)
        self.bytes = (self.bytes or HEADER_BYTES) + size
        if done is not None:
            self.waiters.append(done)

    def tell(self, error: RequestError | None) -> None:
        """Tell all who wait, once."""
        waiters, self.waiters = self.waiters, []
        for done in waiters:
            done(error)

    def close(self, lsn: int, epoch: int, ts_ms: int) -> Group:
        """Make it a batch at that position."""
        count = len(self.records)
        data = encode_batch(
            self.records, lsn=lsn, epoch=epoch, ts_ms=ts_ms, count=count, first=self.first
        )
        batch = Batch(lsn, epoch, ts_ms, count, self.first, data)
        piece = Piece(data, lsn if self.first else None)
        return Group(piece, [batch], self.waiters, self.sealing)


class Group:
    """Batches on their way to the disk, or waiting to be committed."""

    __slots__ = ("batches", "piece", "sealing", "void", "waiters")

    def __init__(
        self, piece: Piece, batches: list[Batch], waiters: list[Done], sealing: Sealing | None
    ) -> None:
        self.piece = piece
        self.batches = batches
        self.waiters = waiters
        self.sealing = sealing
        # Whether it was fenced on its way: it may get to the disk, but is not committed by us.
        self.void = False

    @property
    def end(self) -> int:
        """The LSN after it."""
        return self.batches[-1].end

    def tell(self, error: RequestError | None) -> None:
        """Tell all who wait, once."""
        waiters, self.waiters = self.waiters, []
        for done in waiters:
            done(error)
