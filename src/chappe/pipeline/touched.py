"""Which hours new rows touch, and which follow from those."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

import pyarrow as pa

from chappe.pipeline.hours import HOUR_US, hour_names, hour_us, hours_after
from chappe.pipeline.packing import BAD, EVENTS, MESSAGES
from chappe.pipeline.reading import BEATS, CHANGES
from chappe.pipeline.table import Table
from chappe.pipeline.told import DOWN_HOURS


class Touched(NamedTuple):
    """The hours that a run makes anew."""

    # Of messages.
    paths: Set[str]
    # Of events that belong to no message.
    events: Set[str]
    # Of clocks that may be put right otherwise than before.
    clocks: Set[str]
    # In which links may be down otherwise than before.
    downs: Set[str]
    # Whether there are rows that make no sense.
    bad: bool

    @property
    def links(self) -> Set[str]:
        """A link that went down in an hour may be down in those that follow. With links it is told
        what queues lost all at once, by clocks that are put right."""
        return self.paths | self.events | self.clocks | self.downs


class About(NamedTuple):
    """What a pack says of itself."""

    what: int
    born_hour: int
    note: str | None


def touched(packs: pa.Table, paths: Table, events: Table) -> Touched:
    """What new packs touch, of paths and events that there were before."""
    every = packs.select(About._fields).group_by([*About._fields], use_threads=False)
    return hours_of([About(**row) for row in every.aggregate([]).to_pylist()], paths, events)


def hours_of(told: Sequence[About], paths: Table, events: Table) -> Touched:
    """The same, of what packs say of themselves."""

    def hours(what: int, word: str = "") -> set[str]:
        return hour_names(
            one.born_hour for one in told if one.what == what and word in (one.note or "")
        )

    new = hours(EVENTS)
    # What beats say of an hour is used in the next, too; messages of any hour may have been there
    # then.
    clocks = hours_after(hours(EVENTS, BEATS), 1)
    # Of an hour of which nothing is told nobody says that a link is down.
    downs = hours_after(hours(EVENTS, CHANGES), DOWN_HOURS) & (events.hours() | new)
    # What is made of events and of paths together is made of both anew.
    of_messages = (new | clocks | downs) & paths.hours() | hours(MESSAGES)
    for name in clocks:
        begin = hour_us(name)
        of_messages |= paths.hours_within("first_at", "last_at", begin, begin + HOUR_US)
    return Touched(of_messages, new, clocks, downs, any(one.what == BAD for one in told))
