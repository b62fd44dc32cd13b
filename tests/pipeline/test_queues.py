"""A queue's minutes are what is counted of its flows one by one."""

from __future__ import annotations

import math
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import queues
from chappe.pipeline.kinds import QUEUE_KINDS
from chappe.pipeline.schema import EVENT, MINUTES, TABLES, arrow_schema
from chappe.pipeline.sketch import time_of
from tests.pipeline.tales import clocks
from tests.pipeline.traffic import DAY, HOUR, MINUTE

FLOW = st.fixed_dictionaries(
    {
        "what": st.sampled_from([*QUEUE_KINDS, "lent", "finished", "removed"]),
        "app": st.sampled_from(["a", None]),
        "queue": st.sampled_from(["queue/q", "queue/r"]),
        "window": st.integers(0, 4).map(lambda n: DAY + HOUR + n * MINUTE),
        "frontier": st.one_of(st.none(), st.integers(DAY, DAY + 9)),
        "bucket": st.one_of(st.none(), st.integers(0, 900)),
        "count": st.integers(1, 5),
    }
)
SCHEMA = arrow_schema(TABLES["flows"]).remove(0)


def aged(flow: dict) -> dict:
    """Only what is handed out has an age."""
    if flow["what"] == "lent" and flow["bucket"] is not None:
        return {**flow, "max": math.ceil(time_of(flow["bucket"]))}
    return {**flow, "bucket": None}


def of(flows: list[dict], *kinds: str) -> int:
    return sum(flow["count"] for flow in flows if flow["what"] in kinds)


@given(st.lists(FLOW, max_size=30))
def test_a_minute_has_what_happened_in_it(drawn: list[dict]):
    flows = [aged(flow) for flow in drawn]
    made = queues.minutes(pa.Table.from_pylist(flows, SCHEMA))
    assert made.schema == arrow_schema(MINUTES)
    keys = ("app", "queue", "window")
    told = {tuple(row[key] for key in keys): row for row in made.to_pylist()}
    assert len(told) == made.num_rows
    assert told.keys() == {tuple(flow[key] for key in keys) for flow in flows}
    for key, row in told.items():
        mine = [flow for flow in flows if tuple(flow[name] for name in keys) == key]
        assert row["change"] == of(mine, "stored", "replayed") - of(mine, "finished", "removed")
        assert {kind: row[kind] for kind in QUEUE_KINDS} == {k: of(mine, k) for k in QUEUE_KINDS}
        frontiers = [flow["frontier"] for flow in mine if flow["frontier"] is not None]
        assert row["frontier"] == max(frontiers, default=None)
        ages = sorted(
            f["bucket"] for f in mine if f["bucket"] is not None for _ in range(f["count"])
        )
        if not ages:
            assert (row["age_p50"], row["age_p99"], row["age_max"]) == (None, None, None)
            continue
        assert row["age_max"] == math.ceil(time_of(ages[-1]))
        for name, share in (("age_p50", 0.5), ("age_p99", 0.99)):
            assert row[name] == pytest.approx(time_of(ages[math.ceil(share * len(ages)) - 1]))


@given(st.lists(FLOW, max_size=12), st.lists(FLOW, max_size=3), st.lists(FLOW, max_size=3))
def test_flows_change_from_the_first_minute_on_that_has_others(
    same: list[dict], before: list[dict], now: list[dict]
):
    def shown(row: dict) -> str:
        # Whatever order its keys were drawn in.
        return repr(sorted(aged(row).items()))

    def counted(rows: list[dict]) -> Counter[str]:
        return Counter(map(shown, rows))

    old = pa.Table.from_pylist([aged(row) for row in [*same, *before]], SCHEMA)
    # In whatever order.
    new = pa.Table.from_pylist([aged(row) for row in [*now, *reversed(same)]], SCHEMA)
    others = (counted(before) - counted(now)) + (counted(now) - counted(before))
    windows = [row["window"] for row in [*before, *now] if shown(row) in others]
    assert queues.first_change(old, new) == min(windows, default=None)


def test_flows_of_the_same_are_added_up_and_the_youngest_and_the_longest_wait_remain():
    same = {"app": "a", "queue": "queue/q", "what": "lent", "window": DAY, "bucket": 7}
    parts = [
        {**same, "count": 2, "frontier": DAY, "max": None},
        {**same, "count": 3, "frontier": DAY + 5, "max": 11},
        {**same, "count": 1, "frontier": None, "max": 10},
        {**same, "count": 4, "frontier": DAY + 9, "max": 1, "bucket": None},
    ]
    made = queues.flows(pa.Table.from_pylist(parts, SCHEMA)).to_pylist()
    assert sorted(made, key=lambda row: row["count"]) == [
        {**same, "count": 4, "frontier": DAY + 9, "max": 1, "bucket": None},
        {**same, "count": 6, "frontier": DAY + 5, "max": 11},
    ]


def test_queues_that_are_removed_and_letters_that_are_thrown_away_together_are_flows():
    about = {"app": "a", "target": "queue/q", "at": DAY + 5, "node": "n1"}
    rows = [
        {**about, "kind": "removed", "n": 2},
        {**about, "kind": "removed", "n": 3, "at": DAY + MINUTE - 1},
        {**about, "kind": "removed", "n": 4, "at": DAY + MINUTE},
        {**about, "kind": "removed", "target": "queue/r"},
        {**about, "kind": "purged", "n": 5},
        # Of a message by itself its path tells.
        {**about, "kind": "purged", "n": 1, "message": 7},
    ]
    made = queues.of_queues(pa.Table.from_pylist(rows, arrow_schema(EVENT)), clocks({}))
    assert made.schema == arrow_schema(TABLES["flows"]).remove(0)
    names = ("app", "queue", "what", "window", "bucket", "count", "frontier", "max")
    assert {tuple(row[name] for name in names) for row in made.to_pylist()} == {
        ("a", "queue/q", "removed", DAY, None, 5, None, None),
        ("a", "queue/q", "removed", DAY + MINUTE, None, 4, None, None),
        ("a", "queue/r", "removed", DAY, None, None, None, None),
        ("a", "queue/q", "purged", DAY, None, 5, None, None),
    }
    assert made.num_rows == 4


def test_what_is_told_of_a_whole_queue_is_put_right_by_the_clock_of_who_tells_it():
    about = {"app": "a", "target": "queue/q", "kind": "purged", "at": DAY + MINUTE + 5}
    rows = [{**about, "node": "n1", "n": 2}, {**about, "node": "n2", "n": 3}]
    right = clocks({("n2", DAY + MINUTE): -6, ("n2", DAY): 7})
    made = queues.of_queues(pa.Table.from_pylist(rows, arrow_schema(EVENT)), right)
    assert {(row["window"], row["count"]) for row in made.to_pylist()} == {
        (DAY + MINUTE, 2),
        (DAY, 3),
    }


def test_what_is_of_no_known_number_is_none():
    about = {"app": "a", "queue": "queue/q", "window": DAY}
    rows = [{**about, "what": what} for what in ("removed", "purged")]
    flows = [{**about, "what": "stored", "count": 3}, *rows]
    [made] = queues.minutes(pa.Table.from_pylist(flows, SCHEMA)).to_pylist()
    assert (made["stored"], made["purged"], made["change"]) == (3, 0, 3)
