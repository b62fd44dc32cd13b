"""Told: what nodes say of links and of queues in an hour, read from the files of `events`.

Tasks read it themselves, each for the hours that it has, and only the kinds and columns that are
looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from chappe.pipeline.hours import around
from chappe.pipeline.reading import columns_of, rows_of
from chappe.pipeline.schema import TABLES, arrow_schema

UP: Final = "link_up"
DOWN: Final = "link_down"
BEAT: Final = "link"
_OF_LINKS = ("kind", "node", "boot", "serial", "at", "peer", "round_trip", "ahead")
_OF_QUEUES = ("kind", "app", "message", "target", "at", "n")
_OF_FLOWS = arrow_schema(TABLES["flows"]).remove(0)
_THROWN = ("removed", "purged")
# What a file is read for.
_BESIDE, _LINKS, _QUEUES, _FLOWS = "beside", "links", "queues", "flows"
_SOURCES = pa.schema([("use", pa.string()), ("file", pa.string())])


class Told(NamedTuple):
    """What is told of an hour."""

    # All that is told of links in it.
    links: pa.Table
    # When links came and went, in the hours beside it, too.
    changes: pa.Table
    # When each node told the last of what it tells in these hours; empty if no link went.
    last: Mapping[str, int]
    # Where many messages were taken out of queues at once, if that is asked for.
    thrown: pa.Table
    # The flows that there were of it.
    flows: pa.Table


def sources(
    hour: str, files: Mapping[str, Sequence[str]], flows: Sequence[str] | None = None
) -> pa.Table:
    """Which of the files of `events`, by their hour, tell of an hour; and of `flows`, if those are
    made anew."""
    own = files.get(hour, ())
    rows = [(_BESIDE, file) for near in sorted(around([hour])) for file in files.get(near, ())]
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

    changes = rows_of(files(_BESIDE), _OF_LINKS, (UP, DOWN))
    went = pc.any(pc.equal(changes["kind"], DOWN)).as_py()
    return Told(
        rows_of(files(_LINKS), _OF_LINKS, (BEAT, UP, DOWN)),
        changes,
        _last(files(_BESIDE)) if went else {},
        rows_of(files(_QUEUES), _OF_QUEUES, _THROWN),
        pa.concat_tables([_OF_FLOWS.empty_table(), *columns_of(files(_FLOWS), _OF_FLOWS.names)]),
    )


def beats(files: Sequence[str]) -> pa.Table:
    """The beats in files of `events`."""
    return rows_of(files, _OF_LINKS, (BEAT,))


def _last(files: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for rows in columns_of(files, ("node", "at")):
        latest = rows.group_by("node", use_threads=False).aggregate([("at", "max")])
        for node, at in zip(*(column.to_pylist() for column in latest.columns), strict=True):
            found[node] = max(at, found.get(node, at))
    return found
