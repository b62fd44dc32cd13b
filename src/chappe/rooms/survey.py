"""A survey: what probes found of links, told as rows, as events, and as alarms (R15)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from chappe.clock import Clock
from chappe.events.recorder import Recorder
from chappe.rooms.alarm import Alarms
from chappe.rooms.blame import Path, blame
from chappe.rooms.linkstats import Link, LinkBook, LinkRow, LinkStats
from chappe.rooms.options import ProbeOptions
from chappe.rooms.stamp import Delays
from chappe.wire.rooms import RoleKind

# How often events tell of a link.
_TELL_S = 10.0
# Of each proxy, so many of the last probes say how good it is.
_QUALITY_SAMPLES = 60
# In seconds, from within a process to across an ocean.
BOUNDS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
)  # fmt: skip
_BOUNDS_US = tuple(int(bound * 1_000_000) for bound in BOUNDS_S)


class Quality(NamedTuple):
    """How good a proxy is to publish by: the share of probes by it that came back, and how long
    their whole way took."""

    success: float
    delay_s: float


class Hop:
    """All links between two kinds of roles together: how many probes took how long."""

    __slots__ = ("buckets", "failed", "sum_us")

    def __init__(self) -> None:
        self.buckets = [0] * (len(_BOUNDS_US) + 1)
        self.sum_us = 0
        self.failed = 0

    def put(self, delay_us: int) -> None:
        """A probe took that long."""
        self.buckets[bisect_left(_BOUNDS_US, delay_us)] += 1
        self.sum_us += delay_us


class Survey:
    """What the probes of one process found."""

    def __init__(
        self, *, options: ProbeOptions, name: str, clock: Clock, recorder: Recorder
    ) -> None:
        self._clock = clock
        self._recorder = recorder
        self.alarms = Alarms(options=options, name=name, clock=clock, recorder=recorder)
        self._book = LinkBook(options.links_max, options.samples_max, self.alarms.drop)
        self._through: dict[int, LinkStats] = {}
        self.hops: dict[tuple[RoleKind, RoleKind], Hop] = {}

    def arrive(self, path: Path, delays: Delays, way_us: int, now: float) -> None:
        """A probe came back."""
        at_us = self._clock.wall_us()
        for link, delay_us in zip(path, delays, strict=True):
            stats = self._book.take(link)
            stats.arrive(delay_us, at_us)
            self._hop(link).put(delay_us)
            self._tell(link, stats, now)
        self._quality(path).arrive(way_us, at_us)

    def settle(
        self,
        arrived: Sequence[Path],
        lost: Sequence[Path],
        now: float,
        wanted: Callable[[Link], bool],
    ) -> None:
        """Find out what lost the probes of a round, and whether somebody has to be told; links that
        are no more only say where it was not."""
        for path in lost:
            self._quality(path).fail()
        for link in dict.fromkeys(link for path in arrived for link in path):
            if wanted(link):
                self._judge(link, well=True)
        for link, count in blame(arrived, lost).items():
            stats = self._book.take(link)
            for _ in range(count):
                stats.fail()
            self._hop(link).failed += count
            self._tell(link, stats, now)
            self._judge(link, well=False)

    def keep(self, wanted: Callable[[Link], bool], proxies: set[int]) -> None:
        """Forget links that are no more."""
        for link in [link for link, _ in self._book if not wanted(link)]:
            self._book.drop(link)
        for id_ in self._through.keys() - proxies:
            del self._through[id_]

    def rows(self) -> list[LinkRow]:
        """All links, with their alarms."""
        return [stats.row(link, self.alarms.causes(link)) for link, stats in self._book]

    def stats(self) -> Mapping[Link, LinkStats]:
        """All links, as they are kept."""
        return dict(self._book)

    def quality(self) -> dict[int, Quality]:
        """How good each proxy is, by its id."""
        return {
            id_: Quality(stats.share, (stats.mean_us or 0) / 1_000_000)
            for id_, stats in self._through.items()
        }

    def _judge(self, link: Link, *, well: bool) -> None:
        stats = self._book.take(link)
        stats.try_again(well=well)
        self.alarms.judge(link, stats)

    def _hop(self, link: Link) -> Hop:
        return self.hops.setdefault((link.tail.role, link.head.role), Hop())

    def _quality(self, path: Path) -> LinkStats:
        id_ = path.to_proxy.head.id
        stats = self._through.get(id_)
        if stats is None:
            stats = self._through[id_] = LinkStats(_QUALITY_SAMPLES)
        return stats

    def _tell(self, link: Link, stats: LinkStats, now: float) -> None:
        """Let events know, now and then; as probes are spread over time, so are these."""
        if now - stats.told < _TELL_S:
            return
        stats.told = now
        recent = stats.recent()
        self._recorder.tell(
            "room_link",
            "",
            came_from=link.tail.name,
            role=link.tail.role.name.lower(),
            peer=link.head.name,
            peer_role=link.head.role.name.lower(),
            n=recent.sent,
            failed=recent.failed,
            delay_p50=recent.p50_us,
            delay_p99=recent.p99_us,
        )
