"""Told: what nodes say of links and of queues in an hour, read from the files of `events`.

Tasks read it themselves, each for the hours that it has, and only the kinds and columns that are
looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.hours import HOUR_US, hour_name, hour_us
from chappe.pipeline.reading import columns_of, rows_of
from chappe.pipeline.schema import TABLES, arrow_schema

UP: Final = "link_up"
DOWN: Final = "link_down"
BEAT: Final = "link"
LOAD: Final = "room_load"
HEAT: Final = "room_heat"
PROBED: Final = "room_link"
_OF_CHANGES = ("kind", "node", "boot", "serial", "at", "peer")
_OF_LINKS = (*_OF_CHANGES, "round_trip", "ahead")
_OF_PROBES = ("at", "came_from", "role", "peer", "n", "failed", "delay_p50", "delay_p99")
_OF_ROOMS = ("kind", "node", "at", "app", "target", "partition", "n", "copies", "rooms", "members",
             "gateways")  # fmt: skip
_OF_QUEUES = ("kind", "node", "app", "message", "target", "at", "n")
_OF_FLOWS = arrow_schema(TABLES["flows"]).remove(0)
_THROWN = ("removed", "purged")
# For so long after a link went down it is told to be down; then its peer is taken for gone. What
# tells of that hour by hour is read again for each that follows, so there is an end to it.
DOWN_HOURS: Final = 24
# What a file is read for.
_CHANGES, _LINKS, _QUEUES, _FLOWS = "changes", "links", "queues", "flows"
_SOURCES = pa.schema([("use", pa.string()), ("file", pa.string())])


class Told(NamedTuple):
    """What is told of an hour."""

    # All that is told of links in it.
    links: pa.Table
    # When links came and went, in the hours before it, too.
    changes: pa.Table
    # When each node told the last of what it tells in it; empty if no link is down.
    last: Mapping[str, int]
    # Where many messages were taken out of queues at once, if that is asked for.
    thrown: pa.Table
    # The flows that there were of it.
    flows: pa.Table
    # What brokers of rooms say of their work, and what probes found of links between roles.
    rooms: pa.Table
    probes: pa.Table


def looked_at(hours: Iterable[str]) -> set[str]:
    """The hours whose events tell of these: they, and as many before as a link may be down. None
    that come after, as those may be taken by a later run."""
    back = range(DOWN_HOURS + 1)
    return {hour_name(hour_us(hour) - n * HOUR_US) for hour in hours for n in back}


def sources(
    hour: str, files: Mapping[str, Sequence[str]], flows: Sequence[str] | None = None
) -> pa.Table:
    """Which of the files of `events`, by their hour, tell of an hour; and of `flows`, if those are
    made anew."""
    own = files.get(hour, ())
    before = sorted(looked_at([hour]) & files.keys())
    rows = [(_CHANGES, file) for other in before for file in files[other]]
    rows += [(_LINKS, file) for file in own]
    if flows is not None:
        rows += [(_QUEUES, file) for file in own]
        rows += [(_FLOWS, file) for file in flows]
    return pa.Table.from_pylist([{"use": use, "file": file} for use, file in rows], _SOURCES)


def told(sources: pa.Table) -> Told:
    """Read what is told of an hour."""

    def files(use: str) -> list[str]:
        found: list[str] = sources.filter(pc.equal(sources["use"], use))["file"].to_pylist()
        return found

    changes = rows_of(files(_CHANGES), _OF_CHANGES, (UP, DOWN))
    return Told(
        rows_of(files(_LINKS), _OF_LINKS, (BEAT, UP, DOWN)),
        changes,
        _last(files(_LINKS)) if _any_down(changes) else {},
        rows_of(files(_QUEUES), _OF_QUEUES, _THROWN),
        pa.concat_tables([_OF_FLOWS.empty_table(), *columns_of(files(_FLOWS), _OF_FLOWS.names)]),
        rows_of(files(_LINKS), _OF_ROOMS, (LOAD, HEAT)),
        rows_of(files(_LINKS), _OF_PROBES, (PROBED,)),
    )


def beats(files: Sequence[str]) -> pa.Table:
    """The beats in files of `events`."""
    return rows_of(files, _OF_LINKS, (BEAT,))


def _any_down(changes: pa.Table) -> bool:
    """Whether the last that is told of a link is that it went."""
    names = ["at", "boot", "serial"]
    ordered = changes.sort_by([(name, "ascending") for name in names])
    last = ordered.group_by(["node", "peer"], use_threads=False).aggregate([("kind", "last")])
    return bool(pc.any(pc.equal(last["kind_last"], DOWN)).as_py())


def _last(files: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for rows in columns_of(files, ("node", "at")):
        latest = rows.group_by("node", use_threads=False).aggregate([("at", "max")])
        for node, at in zip(*(column.to_pylist() for column in latest.columns), strict=True):
            found[node] = max(at, found.get(node, at))
    return found
