"""Tallies of jobs, added up here and told to the store from time to time (P9)."""

from __future__ import annotations

from chappe.push.state.meta import MetaState

# Jobs with counts that were not told. Where a store is away for long the oldest are forgotten:
# they are statistics, and events tell all of it.
JOBS_MAX = 100_000


class Tallies:
    """Counts by job and name."""

    __slots__ = ("_counts", "_meta")

    def __init__(self, meta: MetaState) -> None:
        self._meta = meta
        self._counts: dict[str, dict[str, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, job: str, name: str, count: int = 1) -> None:
        """So many more."""
        if not job or not count:
            return
        counts = self._counts.get(job)
        if counts is None:
            counts = self._counts[job] = {}
            if len(self._counts) > JOBS_MAX:
                del self._counts[next(iter(self._counts))]
        counts[name] = counts.get(name, 0) + count

    async def tell(self) -> None:
        """Add what was counted to what the store has; raises StorageError, then it is kept."""
        if not self._counts:
            return
        counts, self._counts = self._counts, {}
        told = False
        try:
            await self._meta.count(counts)
            told = True
        finally:
            if not told:
                meanwhile, self._counts = self._counts, counts
                for job, names in meanwhile.items():
                    for name, count in names.items():
                        self.add(job, name, count)
