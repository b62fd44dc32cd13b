"""Which hours new rows touch, and which follow from those."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from pyspark.sql import DataFrame

from chappe.pipeline.hours import HOUR_US, hour_names, hour_us, hours_after
from chappe.pipeline.packing import BAD, EVENTS, MESSAGES
from chappe.pipeline.reading import BEATS
from chappe.pipeline.table import Table


class Touched(NamedTuple):
    """The hours that a run makes anew."""

    # Of messages.
    paths: Set[str]
    # Of events that belong to no message.
    events: Set[str]
    # Of clocks that may be put right otherwise than before.
    clocks: Set[str]
    # Whether there are rows that make no sense.
    bad: bool

    @property
    def all(self) -> Set[str]:
        """Those of messages and of events."""
        return self.paths | self.events

    @property
    def links(self) -> Set[str]:
        """A link that went down in an hour may be down in the next."""
        return self.paths | hours_after(self.events, 1)


def touched(packs: DataFrame, before: Table) -> Touched:
    """What new packs touch, of paths that there were before."""
    told = packs.select("what", "born_hour", "note").distinct().collect()
    of_events = [row for row in told if row["what"] == EVENTS]
    beats = hour_names(row["born_hour"] for row in of_events if row["note"] == BEATS)
    events = hour_names(row["born_hour"] for row in of_events)
    # What beats say of an hour is used in the next, too; messages of any hour may have been there
    # then.
    clocks = hours_after(beats, 1)
    paths = hour_names(row["born_hour"] for row in told if row["what"] == MESSAGES)
    # What is made of events and of paths together is made of both anew.
    paths |= hours_after(events, 1) & before.hours()
    for name in clocks:
        begin = hour_us(name)
        paths |= before.hours_within("first_at", "last_at", begin, begin + HOUR_US)
    return Touched(paths, events, clocks, any(row["what"] == BAD for row in told))
