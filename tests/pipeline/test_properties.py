"""Transforms do what a few lines of Python do, whatever comes: many cases in one table each."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import accumulate, combinations_with_replacement
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from chappe.ids import EPOCH_MS
from chappe.pipeline import clocks, sessions, silver
from chappe.pipeline.options import Options
from chappe.pipeline.schema import EVENT
from chappe.pipeline.sketch import ERROR, counted, gathered, percentiles
from tests.pipeline.traffic import DAY, MINUTE, SECOND

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

# Spark takes a second for each, and for thousands of rows no longer than for one. To look for the
# smallest that fails would take hundreds.
FEW = settings(max_examples=3, phases=(Phase.explicit, Phase.reuse, Phase.generate))
TIMES = st.integers(EPOCH_MS * 1000, EPOCH_MS * 1000 + 60 * 365 * 24 * 3600 * SECOND)


def events(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    """Rows of the events' schema; what they do not have is null."""
    return spark.createDataFrame([tuple(row.get(n) for n in EVENT.names) for row in rows], EVENT)


@FEW
@given(st.lists(TIMES, min_size=50, max_size=500))
def test_hours_and_minutes_are_those_of_utc(spark: SparkSession, times: list[int]):
    frame = spark.createDataFrame([(us,) for us in times], "us long")
    made = frame.select("us", silver.hour_of(fn.col("us")), silver.window_of(fn.col("us")))
    for us, hour, window in made.collect():
        assert hour == datetime.fromtimestamp(us // SECOND, UTC).strftime("%Y-%m-%dT%H")
        assert (window % MINUTE, 0 <= us - window < MINUTE) == (0, True)


@FEW
@given(st.lists(st.lists(st.integers(0, 10**10), min_size=1, max_size=40), min_size=30))
def test_percentiles_of_sums_are_right_within_the_error(
    spark: SparkSession, lists: list[list[int]]
):
    rows = [(key, us, 0.25) for key, times in enumerate(lists) for us in times]
    timed = spark.createDataFrame(rows, "key int, us long, share double")
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    made = percentiles(gathered(counted(timed, ["key"]), ["key"]), **shares)
    found = {row["key"]: row for row in made.collect()}
    for key, times in enumerate(lists):
        assert (found[key]["count"], found[key]["max"]) == (len(times), max(times))
        assert found[key]["scaled"] == 4 * len(times)
        for name, share in shares.items():
            exact = max(1, sorted(times)[math.ceil(share * len(times)) - 1])
            assert found[key][name] == pytest.approx(exact, rel=ERROR * 1.0001)


SERIALS = st.tuples(st.sampled_from("ab"), st.integers(1, 2), st.integers(1, 50))


@FEW
@given(st.lists(SERIALS, min_size=50, max_size=300))
def test_what_was_written_down_several_times_is_there_once(
    spark: SparkSession, serials: list[tuple[str, int, int]]
):
    about = {"v": 1, "kind": "node_alive", "share": 1.0}
    rows = [{**about, "node": n, "boot": b, "serial": s, "at": DAY + s} for n, b, s in serials]
    made = silver.once(silver.of_nobody(silver.checked(events(spark, rows))))
    found = [(row["node"], row["boot"], row["serial"]) for row in made.collect()]
    assert sorted(found) == sorted(set(serials))


# What each kind cannot do without, besides what all have.
NEEDS = {
    "node_alive": (),
    "sent": (),
    "stored": ("message",),
    "lent": ("message", "group_name"),
    "acked": ("message", "group_name"),
    "asked": ("label",),
    "link": ("peer",),
    "purged": (),
    "dropped": (),
}
WHOLE = {"v": 1, "node": "n", "boot": 1, "serial": 1, "at": DAY, "share": 1.0}
GIVEN = {"message": 1 << 60, "group_name": "g", "label": "l", "peer": "p"}


def test_a_row_is_put_aside_exactly_if_it_lacks_what_it_needs(spark: SparkSession):
    """Of each kind without each column, and without each two."""
    pairs = combinations_with_replacement([*WHOLE, *GIVEN], 2)
    cases = [(kind, set(pair)) for pair in pairs for kind in NEEDS]
    cases += [(kind, set()) for kind in NEEDS]
    rows = [
        {**{k: v for k, v in {**WHOLE, **GIVEN}.items() if k not in lacking}, "kind": kind}
        for kind, lacking in cases
    ]
    # `bytes` tells which case a row is of.
    numbered = [{**row, "bytes": n} for n, row in enumerate(rows)]
    made = silver.checked(events(spark, numbered)).select("bytes", "problem").collect()
    found = dict(map(tuple, made))
    for n, (kind, lacking) in enumerate(cases):
        needs = {*WHOLE, *NEEDS[kind]}
        if lacking & needs:
            assert found[n] in {f"{name}: missing" for name in lacking & needs}
        else:
            assert found[n] is None


BEATS = st.tuples(st.integers(0, 3), st.integers(1, 10**6), st.integers(-(10**9), 10**9))


@FEW
@given(st.lists(BEATS, min_size=50, max_size=400))
def test_clocks_are_told_by_the_median_of_the_quickest_quarter_of_beats(
    spark: SparkSession, beats: list[tuple[int, int, int]]
):
    about = {"kind": "link", "node": "a", "peer": "b"}
    rows = [
        {**about, "at": DAY + minute * MINUTE + n, "round_trip": trip, "ahead": ahead}
        for n, (minute, trip, ahead) in enumerate(beats)
    ]
    made = clocks.offsets(events(spark, rows)).collect()
    found = {row["window"]: row["ahead"] for row in made}
    by_minute: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for minute, trip, ahead in beats:
        by_minute[DAY + minute * MINUTE].append((trip, ahead))
    for window, told in by_minute.items():
        quickest = sorted(told)[: math.ceil(len(told) / 4)]
        assert found[window] == sorted(a for _t, a in quickest)[(len(quickest) - 1) // 2]
    assert found.keys() == by_minute.keys()


VISITS = st.tuples(
    st.integers(0, 8), st.sampled_from(["a", "b"]), st.booleans(), st.integers(0, 20 * MINUTE)
)


@FEW
@given(st.lists(VISITS, min_size=50, max_size=300), st.integers(-5, 5))
def test_who_comes_back_is_found_by_the_clock_of_all(
    spark: SparkSession, visits: list[tuple[int, str, bool, int]], ahead_s: int
):
    """Node b's clock is ahead, and is put right by its shift."""
    ahead = {"a": 0, "b": ahead_s * SECOND}
    rows = [
        {
            "kind": "session_opened" if opens else "session_closed",
            "app": "app",
            "edge": "tcp",
            "target": f"user/{user}",
            "node": node,
            "boot": 1,
            "serial": n,
            "at": DAY + true + ahead[node],
            "came": None if opens else DAY + ahead[node] - SECOND,
        }
        for n, (user, node, opens, true) in enumerate(visits)
    ]
    shift = fn.when(fn.col("node") == "b", -ahead["b"]).otherwise(0).cast("long")
    options = Options()
    made = sessions.turnover(events(spark, rows).withColumn("shift", shift), options).collect()
    names = ("opened", "closed", "reconnects")
    found = {row["window"]: Counter({name: row[name] for name in names}) for row in made}
    truth: dict[int, Counter[str]] = defaultdict(Counter)
    last: dict[int, tuple[bool, int]] = {}
    ordered = sorted(enumerate(visits), key=lambda one: (one[1][3], one[1][1], one[0]))
    for _n, (user, _node, opens, true) in ordered:
        window = DAY + true - true % MINUTE
        truth[window]["opened" if opens else "closed"] += 1
        opened, when = last.get(user, (True, 0))
        if opens and not opened and true - when <= options.reconnect_ms * 1000:
            truth[window]["reconnects"] += 1
        last[user] = (opens, true)
    assert {w: +c for w, c in found.items()} == {w: +c for w, c in truth.items()}


CHANGES = st.tuples(st.integers(0, 200), st.integers(0, 9), st.integers(0, 9), st.integers(0, 3))


@FEW
@given(
    st.lists(CHANGES, min_size=20, max_size=100, unique_by=lambda one: one[0]),
    st.integers(0, 200),
)
def test_who_is_online_is_all_that_came_less_all_that_went(
    spark: SparkSession, changes: list[tuple[int, int, int, int]], since: int
):
    place = "app string, edge string, window long"
    told = [("a", "tcp", DAY + n * MINUTE, came, went) for n, came, went, _cut in changes]
    cuts = [("a", "tcp", DAY + n * MINUTE, cut) for n, _came, _went, cut in changes if cut]
    turnover = spark.createDataFrame(told, f"{place}, opened long, closed long").withColumns(
        {
            "reconnects": fn.lit(0).cast("long"),
            "duration_p50": fn.lit(None).cast("double"),
            "duration_p99": fn.lit(None).cast("double"),
        }
    )
    cut_frame = spark.createDataFrame(cuts, f"{place}, cut long")
    made = sessions.sessions(turnover, cut_frame, DAY + since * MINUTE).collect()
    changes = sorted(one for one in changes if any(one[1:]))
    online = accumulate(came - went - cut for _n, came, went, cut in changes)
    truth = {
        DAY + one[0] * MINUTE: left
        for one, left in zip(changes, online, strict=True)
        if one[0] >= since
    }
    assert {row["window"]: row["online"] for row in made} == truth
