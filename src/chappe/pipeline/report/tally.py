"""Tallies: rows added up by keys while they are read.

What is kept is as much as there are keys, however many rows there were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

# How the values of a column become one; `last` is the one of the latest minute that has any.
How = Literal["sum", "min", "max", "last"]
# So many rows wait at least until they are added up with the others.
_WAITING_MIN: Final = 131_072
# The minute that a row's last value is of, and one before all.
_AT: Final = "last_at"
_NEVER: Final = -1


class Tally:
    """Rows added up by keys; one column at most has its last value kept."""

    def __init__(self, keys: Sequence[str], how: Mapping[str, How]) -> None:
        self._keys = list(keys)
        self._how: dict[str, How] = dict(how)
        self._lasts = [name for name, one in how.items() if one == "last"]
        if self._lasts:
            self._how[_AT] = "max"
        self._summed: pa.Table | None = None
        self._waiting: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Add rows with all keys and columns, and `window` where a last value is wanted."""
        for name in self._lasts:
            known = pc.if_else(pc.is_valid(rows[name]), rows["window"], _NEVER)
            rows = rows.append_column(_AT, known)
        self._waiting.append(self._grouped(rows))
        # Not each time: to add a little to much costs as much as all of it.
        enough = max(_WAITING_MIN, 0 if self._summed is None else self._summed.num_rows)
        if sum(part.num_rows for part in self._waiting) >= enough:
            self._add_up()

    def table(self, schema: pa.Schema) -> pa.Table:
        """All that was added up, with columns of these types; those that were never added have
        none."""
        self._add_up()
        wanted = pa.schema([schema.field(name) for name in self._names() if name != _AT])
        if self._summed is None:
            return wanted.empty_table()
        return self._summed.select(wanted.names).cast(wanted)

    def _names(self) -> list[str]:
        return [*self._keys, *self._how]

    def _add_up(self) -> None:
        parts = [*([] if self._summed is None else [self._summed]), *self._waiting]
        if parts:
            self._summed = self._grouped(pa.concat_tables(parts))
        self._waiting = []

    def _grouped(self, rows: pa.Table) -> pa.Table:
        if self._lasts:
            rows = rows.sort_by(_AT)
        # In their order, and so in one thread: of the last value that matters.
        grouped = rows.group_by(self._keys, use_threads=False).aggregate([*self._how.items()])
        return grouped.select(
            [*self._keys, *(f"{name}_{how}" for name, how in self._how.items())]
        ).rename_columns(self._names())
