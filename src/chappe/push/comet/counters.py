"""What a comet counts, for `/metrics` and the console."""

from __future__ import annotations

from collections import Counter


class Counters:
    """They only grow."""

    __slots__ = (
        "acks",
        "acks_dropped",
        "bytes_out",
        "cache_hits",
        "cache_misses",
        "closed",
        "commands",
        "handed",
        "logins",
        "refused",
        "retracted",
        "store_failures",
        "writes",
    )

    def __init__(self) -> None:
        self.logins = 0
        # Notes that were handed, by why.
        self.handed: Counter[str] = Counter()
        self.retracted = 0
        self.acks = 0
        self.acks_dropped = 0
        self.commands: Counter[str] = Counter()
        # Errors that were answered, by code.
        self.refused: Counter[int] = Counter()
        # Sessions that ended, by cause.
        self.closed: Counter[str] = Counter()
        self.writes = 0
        self.bytes_out = 0
        self.cache_hits = 0
        self.cache_misses = 0
        self.store_failures: Counter[str] = Counter()
