"""Links of rooms, and how each of them does: what probes took over it, and how many were lost."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import ceil, inf
from typing import NamedTuple

from chappe.wire.rooms import RoleKind

# In a window, a probe that did not come.
_LOST = -1


class End(NamedTuple):
    """One end of a link: a role of a node with its id, and with its partition if it has one."""

    role: RoleKind
    name: str
    id: int = 0
    partition: int | None = None


class Link(NamedTuple):
    """The way from one role to the next."""

    tail: End
    head: End


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """What is told of a link. Delays are of the window, in microseconds; none if nothing came."""

    link: Link
    arrived: int
    failed: int
    # Of the window.
    share: float
    in_a_row: int
    mean_us: int | None
    p50_us: int | None
    p99_us: int | None
    last_us: int | None
    # When something last came over it, by the wall, in microseconds; 0: never.
    at_us: int
    alarms: tuple[str, ...] = ()


class Recent(NamedTuple):
    """What probes found of a link in a short time."""

    sent: int
    failed: int
    p50_us: int | None
    p99_us: int | None


@dataclass(slots=True)
class LinkStats:
    """The last measurements of one link, in order of time and in order of size."""

    samples_max: int
    arrived: int = 0
    failed: int = 0
    # All that ever arrived, as a summary's sum has to be.
    total_us: int = 0
    # Failures since something last came.
    in_a_row: int = 0
    # Arrivals since something last failed.
    well_in_a_row: int = 0
    last_us: int | None = None
    at_us: int = 0
    # When it was told of as an event, by the monotonic clock, and what had come and failed by then.
    told: float = -inf
    told_arrived: int = 0
    told_failed: int = 0
    _window: deque[int] = field(default_factory=deque)
    _sorted: array[int] = field(default_factory=lambda: array("q"))
    _sum_us: int = 0

    def arrive(self, delay_us: int, at_us: int) -> None:
        """A probe came over it."""
        self.arrived += 1
        self.total_us += delay_us
        self.last_us, self.at_us = delay_us, at_us
        self._put(delay_us)

    def fail(self) -> None:
        """A probe did not come, and this is why."""
        self.failed += 1
        self._put(_LOST)

    def try_again(self, well: bool) -> None:
        """Count a round for or against it: several probes of one moment tell no more than one."""
        if well:
            self.in_a_row, self.well_in_a_row = 0, self.well_in_a_row + 1
        else:
            self.in_a_row, self.well_in_a_row = self.in_a_row + 1, 0

    @property
    def tried(self) -> int:
        """How many measurements are in the window."""
        return len(self._window)

    @property
    def share(self) -> float:
        """Of the window, how much arrived; all of it before anything was tried."""
        return len(self._sorted) / len(self._window) if self._window else 1.0

    @property
    def mean_us(self) -> int | None:
        """The mean delay of what arrived in the window."""
        return self._sum_us // len(self._sorted) if self._sorted else None

    def quantile_us(self, part: float) -> int | None:
        """The least delay that so many of the window did not exceed."""
        return _quantile(self._sorted, part)

    def recent(self) -> Recent:
        """What there is to tell since it was told last; it is told now."""
        arrived, failed = self.arrived - self.told_arrived, self.failed - self.told_failed
        self.told_arrived, self.told_failed = self.arrived, self.failed
        tail = islice(reversed(self._window), arrived + failed)
        delays = sorted(delay for delay in tail if delay != _LOST)
        return Recent(arrived + failed, failed, _quantile(delays, 0.5), _quantile(delays, 0.99))

    def row(self, link: Link, alarms: Iterable[str] = ()) -> LinkRow:
        """What is told of it."""
        return LinkRow(
            link=link,
            arrived=self.arrived,
            failed=self.failed,
            share=self.share,
            in_a_row=self.in_a_row,
            mean_us=self.mean_us,
            p50_us=self.quantile_us(0.5),
            p99_us=self.quantile_us(0.99),
            last_us=self.last_us,
            at_us=self.at_us,
            alarms=tuple(alarms),
        )

    def _put(self, sample: int) -> None:
        if len(self._window) >= self.samples_max:
            self._drop(self._window.popleft())
        self._window.append(sample)
        if sample != _LOST:
            insort(self._sorted, sample)
            self._sum_us += sample

    def _drop(self, sample: int) -> None:
        if sample != _LOST:
            self._sorted.pop(bisect_left(self._sorted, sample))
            self._sum_us -= sample


def _quantile(delays: Sequence[int], part: float) -> int | None:
    """Of sorted ones, the least that so many do not exceed; None of none."""
    return delays[max(ceil(part * len(delays)), 1) - 1] if delays else None


class LinkBook:
    """The links that are looked at, those tried longest ago first; bounded."""

    def __init__(
        self, links_max: int, samples_max: int, forget: Callable[[Link, LinkStats], None]
    ) -> None:
        self._links_max = links_max
        self._samples_max = samples_max
        self._forget = forget
        self._links: dict[Link, LinkStats] = {}

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[tuple[Link, LinkStats]]:
        return iter(self._links.items())

    def take(self, link: Link) -> LinkStats:
        """A link that is tried now."""
        stats = self._links.pop(link, None)
        if stats is None:
            stats = LinkStats(self._samples_max)
            if len(self._links) >= self._links_max:
                self.drop(next(iter(self._links)))
        self._links[link] = stats
        return stats

    def drop(self, link: Link) -> None:
        """Forget a link that was tried."""
        self._forget(link, self._links.pop(link))
