"""A day with a known truth: what the tables say of it is what happened. D2"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import accumulate
from pathlib import Path

import pytest

from chappe.pipeline.sketch import ERROR
from chappe.pipeline.table import read
from tests.pipeline.day import BACK, END, KILLED, Day
from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND, hour

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def rank(values: list[int], share: float) -> int:
    """The value that this share of all is within."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def test_every_percentile_of_every_hop_is_right_within_the_sketch_s_error(tables: Path, day: Day):
    rows = read(tables, "latency").to_pylist()
    found = {(r["family"], r["hop"], r["role"], r["window"]): r for r in rows}
    assert found.keys() == day.steps.keys()
    for key, truth in day.steps.items():
        row = found[key]
        assert row["count"] == row["scaled"] == len(truth), key
        assert row["max"] == max(truth), key
        assert sum(bucket["count"] for bucket in row["buckets"]) == len(truth)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
            assert row[name] == pytest.approx(rank(truth, share), rel=ERROR * 1.0001), (key, name)


def test_the_audit_names_exactly_what_went_wrong(tables: Path, day: Day):
    rows = read(tables, "audit").to_pylist()
    found = {(r["verdict"], r["message"] or r["label"], r["reason"]) for r in rows}
    assert found == day.verdicts
    assert len(rows) == len(found)


def test_the_audit_tells_where_a_message_was_last_seen(tables: Path):
    [row] = [r for r in read(tables, "audit").to_pylist() if "come to n3" in r["reason"]]
    assert (row["node"], row["family"], row["target"]) == ("n2", "topic", "topic/t")
    assert 0 < row["at"] - row["born"] < 3000


def test_a_path_has_every_hop_by_one_clock(tables: Path):
    paths = [p for p in read(tables, "paths").to_pylist() if p["family"] == "topic"]
    for path in paths:
        hops = [hop for hop in path["hops"] if hop["kind"] == "published"]
        times = [(hop["came"] + hop["shift"], hop["at"] + hop["shift"]) for hop in hops]
        flat = [time for pair in dict.fromkeys(times) for time in pair]
        assert flat == sorted(flat)
        assert path["born"] == times[0][0]
        assert {hop["shift"] for hop in path["hops"] if hop["node"] == "n2"} == {-3 * SECOND}


def test_what_was_written_down_twice_happened_once(tables: Path):
    paths = read(tables, "paths", ["hops"]).to_pylist()
    for path in paths:
        serials = [(hop["node"], hop["boot"], hop["serial"]) for hop in path["hops"]]
        assert len(set(serials)) == len(serials)


def test_rows_that_make_no_sense_are_put_aside_with_the_reason(tables: Path, day: Day):
    rows = read(tables, "quarantine").to_pylist()
    assert Counter(row["problem"] for row in rows) == Counter(
        [
            "kind: missing",
            "kind: unknown",
            "share: not above 0 up to 1",
            "node: missing",
            "group_name: missing",
            "at: before any id was given",
        ]
    )
    assert len(rows) == len(day.bad)


def test_links_tell_what_was_handed_over_and_what_came(tables: Path, day: Day):
    handed: Counter[tuple[str, str]] = Counter()
    arrived: Counter[tuple[str, str]] = Counter()
    for row in read(tables, "links").to_pylist():
        if row["handed"]:
            handed[row["node"], row["peer"]] += row["handed"]
            arrived[row["node"], row["peer"]] += row["arrived"]
            assert row["success"] == row["arrived"] / row["handed"]
    assert (handed, arrived) == (day.handed, day.arrived)


def test_links_tell_how_far_clocks_are_apart_and_how_long_a_link_was_down(tables: Path):
    rows = [r for r in read(tables, "links").to_pylist() if (r["node"], r["peer"]) == ("n1", "n3")]
    assert {r["ahead"] for r in rows if r["beats"]} == {-2 * SECOND}
    assert {r["beats"] for r in rows} <= {0, 3}
    assert sum(r["down_us"] for r in rows) == BACK - KILLED - 5 * SECOND
    assert max(r["down_us"] for r in rows) == MINUTE
    assert (sum(r["ups"] for r in rows), sum(r["downs"] for r in rows)) == (2, 1)


def test_queues_tell_what_came_and_went_and_what_is_in_them(tables: Path, day: Day):
    rows = sorted(read(tables, "queues").to_pylist(), key=lambda row: row["window"])
    assert {r["window"]: r["stored"] for r in rows if r["stored"]} == day.stored
    windows = [r["window"] for r in rows]
    lags = accumulate(day.stored[window] - day.finished[window] for window in windows)
    assert [r["lag"] for r in rows] == list(lags)
    # One was never handed out, and one was with a node that died.
    assert rows[-1]["lag"] == 2
    totals = {name: sum(r[name] for r in rows) for name in ("returned", "died", "cancelled")}
    assert totals == {"returned": 2, "died": 1, "cancelled": 0}
    assert max(r["age_max"] or 0 for r in rows) == 90 * SECOND


def test_delivery_tells_the_share_that_came_and_that_came_in_time(tables: Path):
    rows = read(tables, "delivery").to_pylist()
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        for n, name in enumerate(("messages", "delivered", "in_time")):
            sums[row["family"]][n] += row[name]
    topics = 24 * 20 + 5 + 1
    # Three did not come, one of them for one receiver of several; one more was late.
    assert sums["topic"] == [topics, topics - 3, topics - 4]
    assert sums["request"] == [24 * 5 + 2, 24 * 5, 24 * 5]
    queued = 24 * 10 + 4 + 2
    # Never handed out; dead letter; with the dead. One waited too long; the first try counts.
    assert sums["queue"] == [queued, queued - 3, queued - 4]


def test_sessions_tell_who_is_online_also_when_a_node_dies(tables: Path):
    rows = sorted(read(tables, "sessions").to_pylist(), key=lambda row: row["window"])
    online = {row["window"]: row["online"] for row in rows}
    last_word = KILLED - MINUTE
    assert online[DAY + HOUR] == 10
    assert online[DAY + 2 * HOUR] == 15
    assert online[DAY + 4 * HOUR] == 17
    assert online[last_word] == 12
    assert sum(row["reconnects"] for row in rows) == 1
    [closing] = [row for row in rows if row["closed"]]
    assert closing["duration_p50"] == pytest.approx(59 * MINUTE + 55 * SECOND, rel=ERROR)
    assert closing["churn"] == pytest.approx(2 / (15 + 2))


def test_everything_is_in_its_birth_hour(tables: Path):
    for path in read(tables, "paths", ["hour", "born"]).to_pylist():
        assert path["hour"] == hour(path["born"])
    assert END < DAY + 24 * HOUR
