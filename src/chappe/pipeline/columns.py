"""Columns of Arrow as arrays of numbers, which are worked on whole: what is done for each row by
itself takes Python, or Java, a hundred times as long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


def grouped(keys: Sequence[npt.NDArray[Any]]) -> tuple[Longs, Longs]:
    """An order in which rows with the same keys are side by side, in that of the keys, and where
    each group of them begins."""
    order = _order([np.asarray(key, np.int64) for key in keys])
    return order, np.flatnonzero(changes(*(key[order] for key in keys)))


def _order(keys: Sequence[Longs]) -> Longs:
    """By one number for all keys, if they are small enough together: that is much faster."""
    if not len(keys[0]):
        return keys[0]
    least = [int(key.min()) for key in keys]
    sizes = [int(key.max()) - low + 1 for key, low in zip(keys, least, strict=True)]
    if math.prod(sizes) >= NONE:
        return np.lexsort(keys[::-1])
    joined = np.zeros(len(keys[0]), np.int64)
    for key, low, size in zip(keys, least, sizes, strict=True):
        joined = joined * size + (key - low)
    return np.argsort(joined, kind="stable")


def summed(
    keys: Mapping[str, npt.NDArray[Any]],
    sums: Mapping[str, npt.NDArray[Any]],
    largest: Mapping[str, npt.NDArray[Any]],
) -> dict[str, npt.NDArray[Any]]:
    """How many rows there are of each combination of keys, as `count`, with what is summed up of
    them, and the largest."""
    order, starts = grouped(list(keys.values()))
    if not len(starts):
        return {name: one[:0] for name, one in {**keys, "count": order, **sums, **largest}.items()}
    made = {name: key[order][starts] for name, key in keys.items()}
    made["count"] = np.diff(starts, append=len(order))
    for name, values in sums.items():
        made[name] = np.add.reduceat(values[order], starts)
    for name, values in largest.items():
        made[name] = np.maximum.reduceat(values[order], starts)
    return made


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


def running(change: Longs, begins: Longs, known: Sequence[int]) -> Longs:
    """What things come to after each change; those of one thing follow each other, from somewhere
    on, and it was known what it was before."""
    upto = np.cumsum(change)
    first = np.array(known, np.int64) - upto[begins] + change[begins]
    now: Longs = upto + np.repeat(first, np.diff(begins, append=len(change)))
    return now
