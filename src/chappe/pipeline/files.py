"""Files of events: what they are called, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Collection
from errno import ENOENT
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from chappe.clock import SystemClock
from chappe.errors import ChappeError, StorageError
from chappe.pipeline.hours import HOUR_US, hour_us
from chappe.pipeline.schema import EVENT, arrow_schema

_SCHEMA = arrow_schema(EVENT)


class Mistyped(ChappeError):
    """A file has a column of another type than events have, or is of no hour."""


def entry_of(file: Path) -> dict[str, Any]:
    """What the ledger says of a file. Raises Mistyped, and whatever reading it raises.

    Until when it tells of things is no later than its hour, as files are of one, than when it was
    written, and than now: nothing is told before it happens. A row, or a clock, that is years ahead
    would make everything late that others tell.
    """
    now = SystemClock().wall_us()
    footer, status = pq.read_metadata(file), file.stat()
    found = footer.schema.to_arrow_schema()
    for wanted in _SCHEMA:
        at = found.get_field_index(wanted.name)
        if at >= 0 and found.field(at).type != wanted.type:
            raise Mistyped(f"{wanted.name}: {found.field(at).type} instead of {wanted.type}")
    return {
        "hour": hour_of_file(file),
        "folder": str(file.parents[2]),
        "file": name_of(file),
        "bytes": status.st_size,
        "rows": footer.num_rows,
        "at": min(_latest(footer), _hour_end(file), status.st_mtime_ns // 1000, now),
    }


def check_spoiled(file: Path, error: OSError) -> None:
    """Raise StorageError unless it is surely because of the file itself that it cannot be read: it
    is gone, or holds something else. What the system says of others may be over tomorrow."""
    if error.errno is None:
        # Arrow's own word of what is in it.
        return
    if error.errno != ENOENT:
        raise StorageError(f"{file}: {error.strerror or error}") from None
    folder = file.parents[2]
    if not any(folder.glob("*")):
        raise StorageError(
            f"{file}: {folder} is gone, or nothing is in it: is it mounted? If it is gone for "
            "good, make it anew, with any file in it"
        ) from None


def _latest(footer: pq.FileMetaData) -> int:
    """The latest time that a file tells of, as far as its footer says."""
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    columns = [group.column(n) for group in groups for n in range(group.num_columns)]
    found = [one.statistics for one in columns if one.path_in_schema == "at"]
    return max((one.max for one in found if one is not None and one.has_min_max), default=0)


def _hour_end(file: Path) -> int:
    hour = hour_of_file(file)
    try:
        return hour_us(hour) + HOUR_US
    except ValueError:
        raise Mistyped(f"{hour} is not an hour") from None


def is_of(folders: Collection[Path], file: Path) -> bool:
    """Whether a file is one of events of one of these folders. What is still being written has a
    hidden name; what lies elsewhere below them is somebody's own, a copy perhaps."""
    if len(file.parents) < 3:
        return False
    hour, date, folder = file.parents[:3]
    in_place = date.name.startswith("date=") and hour.name.startswith("hour=")
    named = file.suffix == ".parquet" and not file.name.startswith((".", "_"))
    return in_place and named and folder in folders


def name_of(file: Path) -> str:
    """What a file is known by, wherever its folder is: the node and a checksum are in it."""
    return "/".join(file.parts[-3:])


def hour_of_file(file: Path) -> str:
    """The hour, by the clock of its node, that a file is of."""
    date, hour = file.parent.parent.name, file.parent.name
    return f"{date.removeprefix('date=')}T{hour.removeprefix('hour=')}"
