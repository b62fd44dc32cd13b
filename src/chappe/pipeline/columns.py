"""Columns of Arrow as arrays of numbers, which are worked on whole: what is done for each row by
itself takes Python, or Java, a hundred times as long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Of a time: there is none. Later than all, so that it is never the first.
NONE: Final = 1 << 62


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def longs(column: pa.Array, missing: int = NONE) -> Longs:
    """The numbers of a column."""
    filled = column.fill_null(missing) if column.null_count else column
    numbers: Longs = filled.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def flags(column: pa.Array) -> Flags:
    """The truths of a column; null is not true."""
    found: Flags = column.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def present(column: pa.Array) -> Flags:
    """Where a column has something."""
    if not column.null_count:
        return np.ones(len(column), dtype=np.bool_)
    found: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def ranks(*columns: pa.Array) -> tuple[list[Longs], list[str]]:
    """Words as numbers that are in the same order, the same in all columns; -1 is none. And the
    words that they stand for."""
    encoded = [column.dictionary_encode() for column in columns]
    known = [set(one.dictionary.to_pylist()) for one in encoded]
    names = sorted(set().union(*known), key=str.encode)
    place = {name: rank for rank, name in enumerate(names)}
    found = []
    for one in encoded:
        table = np.array([place[name] for name in one.dictionary.to_pylist()] + [-1], np.int64)
        found.append(table[longs(one.indices, len(table) - 1)])
    return found, names


def of_ranks(ranks: npt.NDArray[Any], names: list[str]) -> pa.Array:
    """Words again."""
    words = pa.array(names, pa.string())
    missing = ranks < 0
    if not missing.any():
        return words.take(pa.array(ranks))
    return words.take(pa.array(ranks, mask=missing))


def optional(numbers: Longs) -> pa.Array:
    """A column of numbers, null where there is none."""
    missing = numbers >= NONE
    return pa.array(numbers, mask=missing) if missing.any() else pa.array(numbers)


def summed(
    keys: Mapping[str, npt.NDArray[Any]],
    sums: Mapping[str, npt.NDArray[Any]],
    largest: Mapping[str, npt.NDArray[Any]],
) -> dict[str, npt.NDArray[Any]]:
    """How many rows there are of each combination of keys, as `count`, with what is summed up of
    them, and the largest. NONE is the largest where nothing else is: who has it has none."""
    rows = pa.table({**keys, **sums, **largest})
    grouped = rows.group_by(list(keys), use_threads=False).aggregate(
        [
            ([], "count_all"),
            *((name, "sum") for name in sums),
            *((name, "max") for name in largest),
        ]
    )
    names = [*keys, "count", *sums, *largest]
    order = [
        *keys,
        "count_all",
        *(f"{name}_sum" for name in sums),
        *(f"{name}_max" for name in largest),
    ]
    return {name: whole(grouped[old]).to_numpy() for name, old in zip(names, order, strict=True)}


def equal(column: pa.Array, value: str) -> Flags:
    """Where a column has a word."""
    return flags(pc.equal(column, value))


def changes(*parts: Longs) -> Flags:
    """Where one of several sequences goes on to another value; they all begin with one."""
    found = np.zeros(len(parts[0]), dtype=np.bool_)
    found[:1] = True
    for part in parts:
        found[1:] |= part[1:] != part[:-1]
    return found
