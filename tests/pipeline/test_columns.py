"""Whole columns are grouped, summed and named as rows would be one by one."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import columns

# Small ones, and such that no number has room for two of them.
KEYS = st.one_of(st.integers(-1, 2), st.sampled_from([-(1 << 61), 1 << 40, columns.NONE]))
ROWS = st.lists(st.tuples(KEYS, KEYS, st.integers(-5, 5)), max_size=30)
WORDS = st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "b", "é", "z", "aa"])))


def arrays(rows: list[tuple[int, ...]]) -> list[columns.Longs]:
    return list(np.array(rows, np.int64).reshape(-1, 3).T)


@given(ROWS)
def test_rows_with_the_same_keys_are_side_by_side_and_in_order(rows: list[tuple[int, int, int]]):
    first, second, _value = arrays(rows)
    order, starts = columns.grouped([first, second])
    # Those that are equal stay as they were.
    assert order.tolist() == sorted(range(len(rows)), key=lambda n: rows[n][:2])
    keys = [rows[n][:2] for n in order.tolist()]
    assert starts.tolist() == [n for n, key in enumerate(keys) if not n or key != keys[n - 1]]


@given(ROWS)
def test_sums_are_of_all_rows_with_the_same_keys(rows: list[tuple[int, int, int]]):
    first, second, value = arrays(rows)
    made = columns.summed({"a": first, "b": second}, {"sum": value}, {"most": value})
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for a, b, one in rows:
        groups[a, b].append(one)
    parts = [made[name].tolist() for name in ("a", "b", "count", "sum", "most")]
    found = list(zip(*parts, strict=True))
    truth = [(*key, len(all_), sum(all_), max(all_)) for key, all_ in groups.items()]
    assert found == sorted(truth)


@given(WORDS, WORDS)
def test_words_are_numbers_in_the_same_order_and_words_again(one, two):
    arrays = [pa.array(words, pa.string()) for words in (one, two)]
    numbers, names = columns.ranks(*arrays)
    assert [columns.of_ranks(some, names).to_pylist() for some in numbers] == [one, two]
    told = list(zip(np.concatenate(numbers).tolist(), one + two, strict=True))
    known = sorted((word, rank) for rank, word in told if word is not None)
    assert [rank for _word, rank in known] == sorted(rank for _word, rank in known)
    assert all((rank == -1) == (word is None) for rank, word in told)


@given(st.lists(st.one_of(st.none(), st.integers(-5, 5))))
def test_numbers_that_are_missing_are_none_and_missing_again(numbers: list[int | None]):
    column = pa.array(numbers, pa.int64())
    assert columns.optional(columns.longs(column)).to_pylist() == numbers
    assert columns.longs(column, 7).tolist() == [7 if n is None else n for n in numbers]
    assert columns.present(column).tolist() == [n is not None for n in numbers]
