"""Buckets add up, and percentiles of them are right within the error."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline.sketch import ERROR, buckets_of, gathered, percentiles_of, time_of

US = st.integers(0, 10**12)
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "p100": 1.0}


def counts(times: list[tuple[str | None, int]]) -> pa.Table:
    """A row for each time, as if each had been counted elsewhere."""
    us = [one for _key, one in times]
    return pa.table(
        {
            "key": pa.array([key for key, _us in times], pa.string()),
            "bucket": pa.array(buckets_of(np.array(us, np.int64))),
            "count": pa.array([1] * len(us), pa.int64()),
            "scaled": pa.array([4.0] * len(us), pa.float64()),
            "max": pa.array(us, pa.int64()),
        }
    )


@given(US)
def test_a_bucket_stands_for_its_times_within_one_per_cent(us: int):
    [bucket] = buckets_of(np.array([us]))
    assert abs(time_of(int(bucket)) - max(us, 1)) <= max(us, 1) * ERROR * 1.0001


def test_percentiles_are_of_all_counts_together():
    times = [1, 5, 10, 100, 100, 100, 2000, 2000, 30_000, 0]
    all_ = gathered(counts([("k", us) for us in times]), ["key"], ["scaled"], ["max"])
    [row] = percentiles_of(all_, SHARES).to_pylist()
    assert (row["count"], row["scaled"], row["max"]) == (10, 40.0, 30_000)
    assert [row["p50"], row["p90"], row["p100"]] == pytest.approx([100, 2000, 30_000], rel=ERROR)


@given(
    st.dictionaries(st.sampled_from([None, "a", "b", "c"]), st.lists(US, min_size=1, max_size=40)),
    st.randoms(use_true_random=False),
)
def test_percentiles_of_sums_are_right_within_the_error(lists, random):
    rows = [(key, us) for key, times in lists.items() for us in times]
    random.shuffle(rows)
    made = percentiles_of(gathered(counts(rows), ["key"], ["scaled"], ["max"]), SHARES)
    found = {row["key"]: row for row in made.to_pylist()}
    assert (found.keys(), made.num_rows) == (lists.keys(), len(lists))
    for key, times in lists.items():
        row = found[key]
        assert (row["count"], row["max"]) == (len(times), max(times))
        assert row["scaled"] == 4 * len(times)
        buckets = Counter(buckets_of(np.array(times)).tolist())
        assert [(one["bucket"], one["count"]) for one in row["buckets"]] == sorted(buckets.items())
        for name, share in SHARES.items():
            exact = max(1, sorted(times)[math.ceil(share * len(times)) - 1])
            assert row[name] == pytest.approx(exact, rel=ERROR * 1.0001)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.none(), US)), max_size=20))
def test_what_has_no_time_is_in_sums_and_in_no_bucket(rows):
    table = pa.table(
        {
            "key": pa.array([key for key, _us in rows], pa.string()),
            "bucket": pa.array([None if us is None else us % 900 for _key, us in rows], pa.int32()),
            "count": pa.array([us is not None for _key, us in rows], pa.bool_()).cast(pa.int64()),
            "handed": pa.array([2] * len(rows), pa.int64()),
        }
    )
    made = percentiles_of(gathered(table, ["key"], ["handed"]), {"p50": 0.5})
    found = {row["key"]: row for row in made.to_pylist()}
    assert found.keys() == {key for key, _us in rows}
    for key, row in found.items():
        mine = [us for one, us in rows if one == key]
        known = [us % 900 for us in mine if us is not None]
        assert (row["handed"], row["count"]) == (2 * len(mine), len(known))
        assert sum(one["count"] for one in row["buckets"]) == len(known)
        if not known:
            assert row["p50"] is None
        else:
            middle = sorted(known)[math.ceil(len(known) / 2) - 1]
            assert row["p50"] == pytest.approx(time_of(middle))
