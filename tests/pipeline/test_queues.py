"""A queue's minutes are what is counted of its flows one by one."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import queues
from chappe.pipeline.schema import EVENT, TABLES, arrow_schema
from chappe.pipeline.silver import QUEUE_KINDS
from chappe.pipeline.sketch import time_of
from tests.pipeline.traffic import DAY, HOUR, MINUTE, hour

FLOW = st.fixed_dictionaries(
    {
        "what": st.sampled_from([*QUEUE_KINDS, "lent", "finished", "removed"]),
        "window": st.integers(0, 4).map(lambda n: DAY + HOUR + (n - 2) * MINUTE),
        "bucket": st.one_of(st.none(), st.integers(0, 900)),
        "count": st.integers(1, 5),
    }
)
SCHEMA = pa.schema(
    {
        **{name: pa.string() for name in ("app", "queue", "what")},
        "window": pa.int64(),
        "bucket": pa.int32(),
        **{name: pa.int64() for name in ("count", "max")},
    }
)


def of(flows: list[dict], *kinds: str) -> int:
    return sum(flow["count"] for flow in flows if flow["what"] in kinds)


@given(st.lists(FLOW, max_size=30), st.one_of(st.none(), st.integers(-3, 9)))
def test_a_minute_has_what_happened_in_it_and_the_lag_of_all_before(
    drawn: list[dict], before: int | None
):
    flows = []
    for flow in drawn:
        aged = flow["what"] == "lent" and flow["bucket"] is not None
        age = {"max": math.ceil(time_of(flow["bucket"]))} if aged else {"bucket": None}
        flows.append({**flow, **age})
    # What was in the queue before is a row, too.
    begun = [] if before is None else [{"what": "begun", "count": before}]
    key = (pa.scalar("a"), pa.scalar("queue/q"))
    made = queues._of_queue(key, pa.Table.from_pylist([*begun, *flows], SCHEMA)).to_pylist()
    lag = before or 0
    assert [row["window"] for row in made] == sorted({flow["window"] for flow in flows})
    for row in made:
        mine = [flow for flow in flows if flow["window"] == row["window"]]
        lag += of(mine, "stored", "replayed") - of(mine, "finished", "removed")
        assert (row["app"], row["queue"], row["hour"]) == ("a", "queue/q", hour(row["window"]))
        assert row["lag"] == lag
        assert {kind: row[kind] for kind in QUEUE_KINDS} == {k: of(mine, k) for k in QUEUE_KINDS}
        ages = sorted(
            f["bucket"] for f in mine if f["bucket"] is not None for _ in range(f["count"])
        )
        if not ages:
            assert (row["age_p50"], row["age_p99"], row["age_max"]) == (None, None, None)
            continue
        assert row["age_max"] == math.ceil(time_of(ages[-1]))
        for name, share in (("age_p50", 0.5), ("age_p99", 0.99)):
            assert row[name] == pytest.approx(time_of(ages[math.ceil(share * len(ages)) - 1]))


def test_flows_of_the_same_are_added_up_and_the_youngest_and_the_longest_wait_remain():
    same = {"app": "a", "queue": "queue/q", "what": "lent", "window": DAY, "bucket": 7}
    parts = [
        {**same, "count": 2, "frontier": DAY, "max": None},
        {**same, "count": 3, "frontier": DAY + 5, "max": 11},
        {**same, "count": 1, "frontier": None, "max": 10},
        {**same, "count": 4, "frontier": DAY + 9, "max": 1, "bucket": None},
    ]
    schema = SCHEMA.append(pa.field("frontier", pa.int64()))
    made = queues.flows(pa.Table.from_pylist(parts, schema)).to_pylist()
    assert sorted(made, key=lambda row: row["count"]) == [
        {**same, "count": 4, "frontier": DAY + 9, "max": 1, "bucket": None},
        {**same, "count": 6, "frontier": DAY + 5, "max": 11},
    ]


def test_queues_that_are_removed_and_letters_that_are_thrown_away_together_are_flows():
    about = {"app": "a", "target": "queue/q", "at": DAY + 5}
    rows = [
        {**about, "kind": "removed", "n": 2},
        {**about, "kind": "removed", "n": 3, "at": DAY + MINUTE - 1},
        {**about, "kind": "removed", "n": 4, "at": DAY + MINUTE},
        {**about, "kind": "removed", "target": "queue/r"},
        {**about, "kind": "purged", "n": 5},
        # Of a message by itself its path tells.
        {**about, "kind": "purged", "n": 1, "message": 7},
    ]
    made = queues.of_queues(pa.Table.from_pylist(rows, arrow_schema(EVENT)))
    assert made.schema == arrow_schema(TABLES["flows"]).remove(0)
    names = ("app", "queue", "what", "window", "bucket", "count", "frontier", "max")
    assert {tuple(row[name] for name in names) for row in made.to_pylist()} == {
        ("a", "queue/q", "removed", DAY, None, 5, None, None),
        ("a", "queue/q", "removed", DAY + MINUTE, None, 4, None, None),
        ("a", "queue/r", "removed", DAY, None, None, None, None),
        ("a", "queue/q", "purged", DAY, None, 5, None, None),
    }
    assert made.num_rows == 4


def test_what_is_of_no_known_number_is_none():
    rows = [{"what": what, "window": DAY} for what in ("removed", "purged")]
    flows = [{"what": "stored", "window": DAY, "count": 3}, *rows, {"what": "begun"}]
    key = (pa.scalar("a"), pa.scalar("queue/q"))
    [made] = queues._of_queue(key, pa.Table.from_pylist(flows, SCHEMA)).to_pylist()
    assert (made["stored"], made["purged"], made["lag"]) == (3, 0, 3)


def test_a_frontier_is_the_youngest_that_was_handed_out_of_all_that_is_told() -> None:
    names = ("app", "queue", "frontier")
    told = [
        [("a", "q", DAY), ("a", "q", DAY + 2), ("a", "r", None), ("b", "q", DAY + 3)],
        [("a", "q", DAY + 1), ("a", "q", None)],
        [],
    ]
    schema = pa.schema([("app", pa.string()), ("queue", pa.string()), ("frontier", pa.int64())])
    flows = [
        pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema)
        for rows in told
    ]
    assert queues.frontiers(flows) == {("a", "q"): DAY + 2, ("b", "q"): DAY + 3}
