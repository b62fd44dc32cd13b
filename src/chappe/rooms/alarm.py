"""Alarms: somebody is told that a link of rooms fails, and told again when it is well (R15).

    failed   so many rounds of probes, one after the other, were lost on it;
             over when as many have come
    share    of its last measurements fewer came than is promised; over when enough do

One that is lost is not an alarm. An alarm is a line of the log, a count, an event, and a notice for
whoever listens: see `hook`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec
import structlog

from chappe.clock import Clock
from chappe.events.recorder import Recorder
from chappe.rooms.linkstats import End, Link, LinkStats
from chappe.rooms.options import ProbeOptions

log = structlog.get_logger()

Cause = Literal["failed", "share"]
# With fewer measurements one loss would be a share.
_TRIED_MIN = 100


class NoticeEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """One end of the link."""

    role: str
    node: str
    id: int = 0
    partition: int | None = None


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of an alarm; its id is the same in every attempt to tell it."""

    event: str = "room_alarm"
    id: str
    # The node whose probes found it.
    node: str
    at: int
    state: Literal["raised", "over"]
    cause: Cause
    tail: NoticeEnd
    head: NoticeEnd
    failed_in_a_row: int
    share: float
    # Whether it is over since the link is no more, though it was never well.
    gone: bool = False


class Alarms:
    """Judges links, and tells what it finds."""

    def __init__(
        self, *, options: ProbeOptions, name: str, clock: Clock, recorder: Recorder
    ) -> None:
        self._options = options
        self._name = name
        self._clock = clock
        self._recorder = recorder
        self._serial = 0
        # As many as there are links that are looked at.
        self._causes: dict[Link, list[Cause]] = {}
        # Since the start, by the roles at the ends of the link and the cause.
        self.raised: Counter[tuple[str, str, Cause]] = Counter()
        # Takes each notice and never waits: it has a bounded line of its own.
        self.hook: Callable[[Notice], None] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._causes.values()))

    def causes(self, link: Link) -> tuple[Cause, ...]:
        """Why there is an alarm of a link."""
        return tuple(self._causes.get(link, ()))

    def judge(self, link: Link, stats: LinkStats) -> None:
        """Look at a link that was tried."""
        causes = self._causes.get(link, ())
        enough = self._options.alarm_failures
        if "failed" not in causes:
            if stats.in_a_row >= enough:
                self._raise(link, stats, "failed")
        elif stats.well_in_a_row >= enough:
            self._end(link, stats, "failed")
        if "share" not in causes:
            tried_min = min(_TRIED_MIN, self._options.samples_max)
            if stats.tried >= tried_min and stats.share < self._options.sla:
                self._raise(link, stats, "share")
        elif stats.share >= self._options.sla:
            self._end(link, stats, "share")

    def drop(self, link: Link, stats: LinkStats) -> None:
        """A link is no more, and its alarms with it."""
        for cause in self.causes(link):
            self._end(link, stats, cause, gone=True)

    def _raise(self, link: Link, stats: LinkStats, cause: Cause) -> None:
        self._causes.setdefault(link, []).append(cause)
        self.raised[(*_roles(link), cause)] += 1
        notice = self._notice(link, stats, "raised", cause)
        log.warning("rooms.alarm", **_words(notice))
        self._tell(link, stats, cause, notice)

    def _end(self, link: Link, stats: LinkStats, cause: Cause, *, gone: bool = False) -> None:
        causes = self._causes[link]
        causes.remove(cause)
        if not causes:
            del self._causes[link]
        notice = self._notice(link, stats, "over", cause, gone=gone)
        log.info("rooms.alarm_over", **_words(notice))
        self._tell(link, stats, f"{cause}_over", notice)

    def _tell(self, link: Link, stats: LinkStats, reason: str, notice: Notice) -> None:
        role, peer_role = _roles(link)
        self._recorder.tell(
            "room_alarm",
            "",
            came_from=link.tail.name,
            role=role,
            peer=link.head.name,
            peer_role=peer_role,
            n=stats.in_a_row,
            reason=reason,
        )
        if self.hook is not None:
            self.hook(notice)

    def _notice(
        self,
        link: Link,
        stats: LinkStats,
        state: Literal["raised", "over"],
        cause: Cause,
        *,
        gone: bool = False,
    ) -> Notice:
        self._serial += 1
        at_ms = self._clock.wall_ms()
        return Notice(
            id=f"{self._name}-{at_ms}-{self._serial}",
            node=self._name,
            at=at_ms,
            state=state,
            cause=cause,
            tail=_end_of(link.tail),
            head=_end_of(link.head),
            failed_in_a_row=stats.in_a_row,
            share=round(stats.share, 6),
            gone=gone,
        )


def _roles(link: Link) -> tuple[str, str]:
    return link.tail.role.name.lower(), link.head.role.name.lower()


def _end_of(end: End) -> NoticeEnd:
    return NoticeEnd(end.role.name.lower(), end.name, end.id, end.partition)


def _words(notice: Notice) -> dict[str, object]:
    """What the log says of it."""
    words: dict[str, object] = {
        "cause": notice.cause,
        "tail": f"{notice.tail.role} {notice.tail.node}",
        "head": f"{notice.head.role} {notice.head.node}",
        "partition": notice.head.partition,
    }
    if notice.gone:
        return words | {"reason": "the link is gone"}
    return words | {"failed_in_a_row": notice.failed_in_a_row, "share": notice.share}
